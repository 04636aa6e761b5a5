"""Convolutions and pooling in C against the ops' references: serial, parallel and as CUDA C."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.nn.spatial.convolutions import ConvolutionFilterOp, ConvolutionInputOp
from weft.nn.spatial.pooling import MaxPoolInputOp
from weft_c.spatial import filter_products

pytest.importorskip("pyopencl")
from checking import awkward, both, check, everywhere, numbers
from running import SERIAL

pytestmark = [pytest.mark.slow, pytest.mark.share(16)]

CONVOLUTIONS = {
    "same size": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": 1}),
    "stride": ((2, 3, 9, 10), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    "all attributes": (
        (1, 4, 17, 19),
        (6, 2, 3, 2),
        {"stride": (2, 3), "padding": [(1, 0), (2, 1)], "dilation": (2, 1), "groups": 2},
    ),
    "lines": ((3, 2, 30), (5, 2, 4), {"stride": 2, "padding": 3, "dilation": 2}),
    "volumes": ((2, 2, 5, 6, 7), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    "wide rows": ((1, 2, 3, 130), (8, 2, 1, 7), {}),
    "several rows in a vector": ((5, 3, 7, 7), (9, 3, 3, 3), {"padding": 1}),
    "many filters": ((2, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
    "single elements": ((2, 5, 20, 20), (8, 5, 1, 1), {}),
    "patches": ((1, 2, 16, 16), (3, 2, 4, 4), {"stride": 4}),
    "stride beyond the filter": ((2, 2, 7, 7), (3, 2, 2, 2), {"stride": 3}),
    "no images": ((0, 2, 7, 7), (3, 2, 3, 3), {}),
}
POOLS = {
    "tiles": ((2, 3, 8, 8), {"kernel": 2}),
    "overlap": ((2, 3, 9, 10), {"kernel": 3, "stride": 2, "padding": 1}),
    "line": ((1, 2, 17), {"kernel": 3, "stride": 1, "padding": 1, "dilation": 2}),
    "volume": ((1, 2, 5, 6, 7), {"kernel": 2, "stride": (1, 2, 3)}),
    "over the end": ((2, 2, 7, 7), {"kernel": 3, "stride": 2, "ceil_mode": True}),
    "flat windows": ((1, 2, 6, 6), {"kernel": (1, 3), "stride": 1}),
}


def three(attributes: dict[str, int]):
    """Return a function that builds a convolution and both of its gradients."""

    def build(x: weft.TensorOp, w: weft.TensorOp, delta: weft.TensorOp):
        y = weft.conv(x, w, **attributes)
        geometry = y.geometry()
        lengths, kernel = x.axes.lengths[2:], w.axes.lengths[2:]
        return [
            y,
            ConvolutionInputOp(delta, w, lengths=lengths, **geometry),
            ConvolutionFilterOp(x, delta, kernel=kernel, **geometry),
        ]

    return build


def operands(name: str, dtype: str):
    """Return images, filters and outputs of a convolution."""
    images, filters, attributes = CONVOLUTIONS[name]
    y = weft.conv(weft.placeholder(images), weft.placeholder(filters), **attributes)
    return [numbers(dtype, *shape) for shape in (images, filters, y.axes.shape)]


@everywhere
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, processor: str):
    build = three(CONVOLUTIONS[name][2])
    check(build, *operands(name, "float32"), processor=processor)


@pytest.mark.parametrize("units", [1, 2, 3])
@pytest.mark.parametrize("batch", [5, 7, 11])
def test_places_of_no_image_do_not_count(batch: Any, units: Any):
    """Work items have several images at a time, some of them one fewer."""
    arrays = [
        numbers("float32", *shape) for shape in ((batch, 2, 6, 12), (9, 2, 3, 6), (batch, 9, 6, 9))
    ]
    build = three({"padding": 1})
    check(build, *arrays, processor=replace(SERIAL, units=units))


FILTER_PRODUCTS = {
    "one more than two vectors": ((3, 5, 9, 10), (33, 5, 3, 3), {"padding": 1}),
    "groups": (
        (2, 8, 7, 6),
        (40, 4, 3, 2),
        {"groups": 2, "stride": (2, 1), "padding": [(1, 0), (2, 1)], "dilation": (1, 2)},
    ),
    "parts of a channel": ((2, 3, 15, 15), (16, 3, 7, 7), {"stride": 2, "padding": 3}),
    "lines": ((5, 20, 41), (50, 20, 1), {}),
    "volumes": ((2, 3, 4, 5, 4), (17, 3, 2, 1, 2), {"padding": (1, 0, 0)}),
}


@pytest.mark.parametrize("name", FILTER_PRODUCTS)
def test_products_of_vectors_of_filters(name: str, monkeypatch: pytest.MonkeyPatch):
    """Many filters at once, in one block and in many, whole and in parts, in each kind of sum."""
    images, filters, attributes = FILTER_PRODUCTS[name]
    y = weft.conv(weft.placeholder(images), weft.placeholder(filters), **attributes)
    geometry = y.geometry()

    def build(x: weft.TensorOp, delta: weft.TensorOp):
        return ConvolutionFilterOp(x, delta, kernel=filters[2:], **geometry)

    for depth, cached, units, dtype in (
        (1024, 1 << 17, 1, "float32"), (11, 99, 1, "float32"), (25, 300, 7, "float32"),
        (20, 1 << 17, 2, "bfloat16"), (1024, 500, 7, "float16"), (9, 400, 1, "int8"),
    ):  # fmt: skip
        monkeypatch.setattr(filter_products, "DEPTH", depth)
        monkeypatch.setattr(filter_products, "CACHED", cached)
        arrays = [numbers(dtype, *shape) for shape in (images, y.axes.shape)]
        exact = dtype not in ("float16", "bfloat16")
        check(build, *arrays, processor=replace(SERIAL, units=units), exact=exact)


@everywhere
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float16", "bfloat16", "float64"])
def test_dtypes_of_convolutions(dtype: Any, processor: str):
    name = "all attributes"
    exact = dtype not in ("float16", "bfloat16")
    check(three(CONVOLUTIONS[name][2]), *operands(name, dtype), processor=processor, exact=exact)


@both
def test_convolutions_of_views(processor: str):
    def build(x: weft.TensorOp, w: weft.TensorOp):
        turned = weft.transpose(w, (1, 0, 2, 3))
        return weft.conv(x[:, :, ::-1, 1::2], turned, padding=1)

    images, filters = numbers("float32", 2, 3, 9, 21), numbers("float32", 3, 4, 3, 3)
    check(build, images, filters, processor=processor)


@both
def test_strides_with_many_phases(processor: str):
    images, filters = numbers("float32", 1, 2, 15, 15), numbers("float32", 3, 2, 5, 5)
    delta = numbers("float32", 1, 3, 3, 3)
    check(three({"stride": 5}), images, filters, delta, processor=processor)


@both
def test_padding_does_not_reach_the_image(processor: str):
    images, filters = numbers("float32", 2, 3, 9, 10), numbers("float32", 4, 3, 3, 3)
    images[1] = np.inf
    build = lambda x, w: weft.conv(x, abs(w) + 1, padding=1)  # noqa: E731
    check(build, images, filters, processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("name", POOLS)
def test_maxima_and_where_they_are(name: str, dtype: str, processor: str):
    shape, attributes = POOLS[name]
    build = lambda x: weft.max_pool_with_indices(x, **attributes)  # noqa: E731
    check(build, awkward(dtype, *shape), processor=processor)


@everywhere
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("name", POOLS)
def test_means(name: str, count_include_pad: bool, processor: str):
    shape, attributes = POOLS[name]

    def build(x: weft.TensorOp):
        return weft.avg_pool(x, **attributes, count_include_pad=count_include_pad)

    check(build, numbers("float32", *shape), processor=processor, exact=False)


@everywhere
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", POOLS)
def test_shares_of_the_largest(name: str, dtype: str, processor: str):
    shape, attributes = POOLS[name]
    images = numbers(dtype, *shape)
    images.reshape(-1)[20] = np.nan
    pooled = weft.max_pool(weft.placeholder(shape, dtype=dtype), **attributes)

    def build(delta: weft.TensorOp, x: weft.TensorOp):
        y = weft.max_pool(x, **attributes)
        return MaxPoolInputOp(delta, x, y, **y.sliding._asdict())

    delta = numbers(dtype, *pooled.axes.shape)
    check(build, delta, images, processor=processor, exact=False)


@everywhere
@pytest.mark.parametrize("name", [*POOLS, "rows", "rows of three"])
def test_shares_of_infinite_adjoints(name: str, processor: str):
    more = {
        "rows": ((2, 3, 6, 28), {"kernel": 2}),
        "rows of three": ((1, 2, 6, 57), {"kernel": (2, 3)}),
    }
    shape, attributes = (POOLS | more)[name]
    images = awkward("float32", *shape)
    pooled = weft.max_pool(weft.placeholder(shape), **attributes)

    def build(delta: weft.TensorOp, x: weft.TensorOp):
        y = weft.max_pool(x, **attributes)
        return y, MaxPoolInputOp(delta, x, y, **y.sliding._asdict())

    delta = awkward("float32", *pooled.axes.shape)
    check(build, delta, images, processor=processor, exact=False)


@both
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("length", [11, 33, 70])
def test_rows_of_maxima(kernel: int, stride: int, length: int, processor: str):
    def build(x: weft.TensorOp):
        padding = [(kernel // 2, kernel // 2), (kernel // 2, kernel // 3)]
        return weft.max_pool(x, kernel, stride=stride, padding=padding)

    check(build, awkward("float32", 2, 2, 9, length), processor=processor)
