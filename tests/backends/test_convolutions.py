"""Convolutions in blocks give what the references of their ops give."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sliding_work import (
    BLOCKS,
    TOLERANCES,
    check,
    geometries,
    numbers,
    placeholder,
)

import weft
from weft.nn.spatial.convolutions import ConvolutionFilterOp, ConvolutionInputOp, ConvolutionOp


@given(
    geometries(),
    st.tuples(*[st.sampled_from((1, 1, 2, 3))] * 3), st.sampled_from((0, 1, 3, 8)),
    st.sampled_from(sorted(TOLERANCES)), st.fixed_dictionaries(BLOCKS),
)  # fmt: skip
@settings(max_examples=250, deadline=None)
def test_convolutions_give_what_the_references_give(
    geometry: Any, channels: Any, batch: int, dtype: str, options: Any
) -> None:
    sliding, lengths = geometry
    groups, inner, outer = channels
    x = numbers(0, (batch, groups * inner, *lengths), dtype)
    w = numbers(1, (groups * outer, inner, *sliding.kernel), dtype)
    form = sliding._asdict()
    form["groups"] = groups
    kernel = form.pop("kernel")
    images, filters = placeholder(x), placeholder(w)
    forward = ConvolutionOp(images, filters, **form)
    delta = numbers(2, forward.axes.shape, dtype)
    outputs = placeholder(delta)
    check(forward, (x, w), **options)
    check(ConvolutionInputOp(outputs, filters, lengths=lengths, **form), (delta, w), **options)
    check(ConvolutionFilterOp(images, outputs, kernel=kernel, **form), (x, delta), **options)


def two_dimensional(
    x: Any, filters: Any, stride: int = 1, padding: int = 1, groups: int = 1
) -> tuple[Any, Any, Any]:
    """Return the three convolutions of images and filters of given shapes."""
    form: Any = {
        "stride": (stride,) * 2, "padding": ((padding,) * 2,) * 2, "dilation": (1, 1),
        "groups": groups,
    }  # fmt: skip
    images, w = weft.placeholder(x), weft.placeholder(filters)
    forward = ConvolutionOp(images, w, **form)
    outputs = weft.placeholder(forward.axes.shape)
    return (
        forward,
        ConvolutionInputOp(outputs, w, lengths=x[2:], **form),
        ConvolutionFilterOp(images, outputs, kernel=filters[2:], **form),
    )


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 0), (1, 1)])
def test_what_is_not_finite_stays_in_its_windows(value: float, stride: int, padding: int) -> None:
    forward, images, filters = two_dimensional((2, 4, 6, 6), (4, 4, 3, 3), stride, padding)
    x, w = numbers(0, (2, 4, 6, 6), "float32"), numbers(1, (4, 4, 3, 3), "float32")
    delta = numbers(2, forward.axes.shape, "float32")
    for at in ((0, 0, 5, 5), (1, 3, 0, 5), (1, 2, 3, 0)):
        spoiled = x.copy()
        spoiled[at] = value
        check(forward, (spoiled, w))
        check(filters, (spoiled, delta))
    w[3, 2, 0, 2] = value
    check(images, (delta, w))


def test_a_convolution_that_is_a_matrix_product_becomes_one() -> None:
    x, w = weft.placeholder((2, 3, 20, 20)), weft.placeholder((4, 3, 1, 1))
    computation = weft.make_transformer("numpy").computation(weft.conv(x, w), x, w)
    arrays = numbers(0, (2, 3, 20, 20), "float32"), numbers(1, (4, 3, 1, 1), "float32")
    wanted = np.einsum("nchw,oc->nohw", arrays[0], arrays[1][..., 0, 0])
    np.testing.assert_allclose(computation(*arrays), wanted, rtol=1e-4, atol=1e-4)
    kinds = {type(step.op) for step in computation.program.plan.steps}
    assert ConvolutionOp not in kinds


def test_a_call_allocates_no_more_than_numpy_does_for_its_iterators() -> None:
    """NumPy takes pieces of 8192 elements through buffers of its own, for each operand."""
    x, w = weft.placeholder((32, 4, 32, 32)), weft.placeholder((8, 4, 3, 3))
    loss = weft.sum(weft.max_pool(weft.conv(x, w, padding=1), 2) ** 2)
    results = [loss, weft.deriv(loss, x), weft.deriv(loss, w)]
    computation = weft.make_transformer("numpy", threads=1).computation(results, x, w)
    arrays = numbers(0, x.axes.shape, "float32"), numbers(1, w.axes.shape, "float32")
    kept = computation(*arrays)
    found = []
    tracemalloc.start()
    try:
        for _ in range(5):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            kept = computation(*arrays)
            _, peak = tracemalloc.get_traced_memory()
            found.append(peak - before - sum(np.asarray(value).nbytes for value in kept))
    finally:
        tracemalloc.stop()
    assert min(found) < 3 * 8192 * 4 + 8192 < x.axes.size * 4


def test_no_channels_in_many_blocks() -> None:
    """The padded images take no memory, and each of them is cut into several blocks."""
    ops = two_dimensional((1, 0, 40, 40), (2, 0, 3, 3))
    for op in ops:
        arrays = [numbers(0, arg.axes.shape, "float32") for arg in op.args]
        check(op, arrays, cached=64, least=1)


@pytest.mark.parametrize("classes", [10, 4000])
def test_threads_share_a_program_that_is_mostly_small_products(classes: int) -> None:
    """Its large products are cut, so that no thread of the BLAS takes a processor afterwards."""
    x, w = weft.placeholder((32, 4, 24, 24)), weft.placeholder((8, 4, 3, 3))
    v, b = weft.placeholder((1152, classes)), weft.placeholder((classes,))
    pooled = weft.reshape(weft.max_pool(weft.relu(weft.conv(x, w, padding=1)), 2), (32, 1152))
    given = x, w, v, b
    arrays = [numbers(n, each.axes.shape, "float32") for n, each in enumerate(given)]
    results = [pooled @ v + b, weft.deriv(weft.sum(pooled @ v), w), weft.flip(pooled, 0) @ v]
    found = []
    for threads in (1, 2, 3):
        computation = weft.make_transformer("numpy", threads=threads).computation(results, *given)
        found.append([np.array(each) for each in computation(*arrays)])
        again = computation(*arrays)
        for one, two in zip(found[-1], again, strict=True):
            np.testing.assert_array_equal(one, two)
        is_shared = threads > 1 and classes == 10
        assert ("for at in range" in computation.source) == is_shared
    for each in found[1:]:
        for one, two in zip(found[0], each, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-3)
