"""FFT convolution: large filters become products of spectra, the rest stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import skip_without_backend

import weft
from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft.nn.spatial.geometry import Pairs, Sliding
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.transforms.capture import capture
from weft_passes.fft_convolution import FFTConvolution, SpectralConvolution

KINDS = (ConvolutionOp, ConvolutionInputOp, ConvolutionFilterOp)


def convolutions(
    images: tuple[int, ...], filters: tuple[int, ...], padding: Pairs, groups: int
) -> list[BilinearConvolutionOp]:
    """Return each of the three ops of these shapes, of random operands."""
    rng = np.random.default_rng(0)
    ones = (1,) * len(padding)
    geometry = {"stride": ones, "padding": padding, "dilation": ones, "groups": groups}
    counts = Sliding(filters[2:], ones, padding, ones).counts(images[2:])
    x, w, y = (
        weft.constant(rng.normal(size=shape))
        for shape in (images, filters, (images[0], filters[0], *counts))
    )
    return [
        ConvolutionOp(x, w, **geometry),
        ConvolutionInputOp(y, w, lengths=images[2:], **geometry),
        ConvolutionFilterOp(x, y, kernel=filters[2:], **geometry),
    ]


@given(st.data())
@settings(max_examples=10, deadline=None)
def test_products_of_spectra_are_each_of_the_three_ops(data: st.DataObject):
    count, groups, outputs, channels, rank = (data.draw(st.integers(1, 3)) for _ in range(5))
    padding = tuple(data.draw(st.tuples(*[st.integers(-1, 3)] * 2)) for _ in range(rank))
    kernel = tuple(data.draw(st.integers(1, 5)) for _ in range(rank))
    spare = (data.draw(st.integers(0, 3)) for _ in range(rank))
    lengths = (
        max(k + more - a - b, 1, -a - b + 1)
        for k, more, (a, b) in zip(kernel, spare, padding, strict=True)
    )
    images, filters = (count, groups * channels, *lengths), (groups * outputs, channels, *kernel)
    for op in convolutions(images, filters, padding, groups):
        with weft.make_transformer("numpy") as transformer:
            found = transformer.computation(SpectralConvolution(op).result())()
        wanted = op.reference(*(each.const for each in op.args))
        np.testing.assert_allclose(found, wanted, atol=1e-12 * abs(wanted).max() + 1e-12)


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl", "cupy"])
def test_large_filters_and_their_gradients_are_transformed(backend: str):
    skip_without_backend(backend)
    x, w = weft.placeholder((1, 1, 512)), weft.placeholder((1, 1, 257))
    y = weft.conv(x, w, padding=128)
    results = [y, *(weft.deriv(weft.sum(weft.square(y)), each) for each in (x, w))]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=each.axes.shape).astype("float32") for each in (x, w)]
    found = {}
    for passes in (DEFAULT_PIPELINE, ("fft-convolution", *DEFAULT_PIPELINE)):
        with weft.make_transformer(backend, passes=passes) as transformer:
            found[passes] = transformer.computation(results, x, w)(*values)
            graph = FFTConvolution().do_pass(capture(results, [x, w]), transformer.target)
    assert not any(isinstance(op, BilinearConvolutionOp) for op in graph.ops)
    for wanted, by_transforms in zip(*found.values(), strict=True):
        np.testing.assert_allclose(by_transforms, wanted, atol=1e-5 * abs(wanted).max())


STAY = {
    "a small filter": ((1, 1, 90, 90), (1, 1, 3, 3), "float32", {}),
    "a stride": ((1, 1, 90, 90), (1, 1, 31, 31), "float32", {"stride": 2}),
    "a dilation": ((1, 1, 90, 90), (1, 1, 31, 31), "float32", {"dilation": 2}),
    "integers": ((1, 1, 90, 90), (1, 1, 31, 31), "int32", {}),
    "an unknown length": ((1, 1, weft.symbol("n"), 90), (1, 1, 31, 31), "float32", {}),
    "no images": ((0, 1, 90, 90), (1, 1, 31, 31), "float32", {}),
}


@pytest.mark.parametrize("name", STAY)
def test_other_convolutions_stay(name: str):
    *shapes, dtype, options = STAY[name]
    x, w = (weft.placeholder(shape, dtype) for shape in shapes)
    graph = capture([weft.conv(x, w, padding=15, **options)], [x, w])
    with weft.make_transformer("numpy") as transformer:
        assert FFTConvolution().do_pass(graph, transformer.target) is graph


def test_the_pass_is_off_by_default():
    assert "fft-convolution" not in DEFAULT_PIPELINE
