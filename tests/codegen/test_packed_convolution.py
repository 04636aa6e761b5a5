"""Convolutions with packed filters against the references of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.kernels import FusedOp
from weft.nn.spatial.convolutions import ConvolutionInputOp
from weft.testing.reference import evaluate
from weft.transforms.capture import capture
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import check, numbers
from running import FUSING, PARALLEL, SERIAL, plan_of, work_of

from weft_c import legalized
from weft_c.matmul.packed_panels import PackPanelsOp
from weft_c.spatial import packed_filters
from weft_c.spatial.packed_convolution import plan
from weft_c.spatial.packed_filters import PackedConvolutionOp

CONVOLUTIONS = {
    "same size": ((2, 8, 14, 14), (32, 8, 3, 3), {"padding": 1}),
    "one result a group too many": ((1, 8, 14, 14), (33, 8, 3, 3), {"padding": 1}),
    "two tiles of rows": ((3, 16, 7, 7), (64, 16, 3, 3), {"padding": 1}),
    "stride": ((2, 16, 29, 29), (32, 16, 3, 3), {"stride": 2, "padding": 1}),
    "all attributes": (
        (1, 16, 31, 29),
        (64, 8, 3, 2),
        {"stride": (2, 1), "padding": [(1, 0), (2, 1)], "dilation": (2, 3), "groups": 2},
    ),
    "lines": ((3, 8, 150), (48, 8, 5), {"padding": 2}),
    "single elements": ((2, 64, 13, 13), (96, 64, 1, 1), {}),
    "padding beyond single elements": ((2, 24, 20), (64, 24, 1), {"padding": [(1, 3)]}),
    "padding beyond filters": ((2, 16, 9, 8), (32, 16, 2, 3), {"padding": [(4, 2), 3]}),
    "several blocks of rows": ((1, 32, 90, 60), (32, 32, 3, 3), {"padding": 1}),
    "a window as large as the image": ((8, 24, 5, 5), (32, 24, 5, 5), {}),
}
SLOW = {"several blocks of rows"}
"""Those with the most multiplications, whose gradients are left out."""


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch):
    """Pack filters whatever it costs in a call."""
    monkeypatch.setattr(packed_filters, "MIN_PIXELS", 1)
    monkeypatch.setattr(packed_filters, "DIRECT_EFFICIENCY", 0.25)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_results_are_those_of_the_convolution(name: str):
    images, filters, attributes = CONVOLUTIONS[name]
    shapes = numbers("float32", *images), numbers("float32", *filters)

    def build(x: weft.TensorOp, w: weft.TensorOp):
        found = legalized(weft.conv(x, w, **attributes), SERIAL)
        assert type(found) is PackedConvolutionOp
        return found

    x, w = (weft.placeholder(each.shape) for each in shapes)
    own, _ = evaluate(capture([build(x, w)], [x, w]), shapes)
    meant, _ = evaluate(capture([weft.conv(x, w, **attributes)], [x, w]), shapes)
    np.testing.assert_array_equal(own[0], meant[0])
    check(build, *shapes, processor="serial")


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name not in SLOW])
def test_gradients_of_stride_one_are_convolutions_as_well(name: str):
    images, filters, attributes = CONVOLUTIONS[name]
    x, w = weft.placeholder(images), weft.placeholder(filters)
    y = weft.conv(x, w, **attributes)

    def gradient(delta: weft.TensorOp, w: weft.TensorOp):
        lengths = images[2:]
        return ConvolutionInputOp(delta, w, lengths=lengths, **y.geometry())

    found = legalized(gradient(weft.placeholder(y.axes.shape), w), SERIAL)
    strides = attributes.get("stride", 1)
    if strides != 1:
        assert found is None
        return
    assert type(found) is PackedConvolutionOp
    check(
        lambda delta, w: legalized(gradient(delta, w), SERIAL),
        numbers("float32", *y.axes.shape), numbers("float32", *filters), processor="serial",
    )  # fmt: skip


def residual(y: weft.TensorOp, bias: weft.TensorOp, full: weft.TensorOp):
    return weft.relu(y + bias) + full


def several(y: weft.TensorOp, bias: weft.TensorOp, full: weft.TensorOp):
    return [y, weft.tanh(y * 0.125) + full, y > bias]


@pytest.mark.parametrize("epilogue", [residual, several])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_ops_after_it_are_computed_in_its_kernel(name: str, epilogue: Callable[..., Any]):
    images, filters, attributes = CONVOLUTIONS[name]
    x = weft.placeholder(images)
    y = weft.conv(x, weft.placeholder(filters), **attributes)
    bias = (1, filters[0], *[1] * (len(images) - 2))

    def build(x: weft.TensorOp, w: weft.TensorOp, bias: weft.TensorOp, full: weft.TensorOp):
        return epilogue(weft.conv(x, w, **attributes), bias, full)

    arrays = [numbers("float32", *shape) for shape in (images, filters, bias, y.axes.shape)]
    given = [weft.placeholder(each.shape) for each in arrays]
    results = build(*given)
    results = results if isinstance(results, list) else [results]
    steps = plan_of(results, *given, processor=SERIAL, passes=FUSING).steps
    made = [each.op for each in steps if type(each.op) is FusedOp]
    assert [type(each.kernel.product.op) for each in made] == [PackedConvolutionOp]
    check(build, *arrays, processor="serial", exact=False, passes=FUSING)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("groups", "count", "channels"), [(1, 20, 5), (3, 12, 7)])
def test_packing_moves_filters_into_panels(
    groups: int, count: int, channels: int, is_transposed: bool
):
    def build(w: weft.TensorOp):
        return PackPanelsOp(w, groups=groups, width=16, is_transposed=is_transposed)

    w = numbers("float32", groups * count, channels, 3, 2)
    check(build, w, processor="serial")
    check(lambda w: build(weft.transpose(w, (0, 1, 3, 2))), w, processor="serial")
    x = weft.placeholder(w.shape)
    ((packed,), _) = evaluate(capture([build(x)], [x]), [w])
    results, summed = (channels, count) if is_transposed else (count, channels)
    assert packed.shape == (groups, -(-results // 16), summed * 6, 16)
    first, second = (4, 2) if is_transposed else (2, 4)
    assert packed[groups - 1, 0, 4 * 6 + 5, 2] == w[(groups - 1) * count + first, second, 2, 1]
    assert not packed[:, -1, :, results % 16 :].any()


def found(
    images: tuple[int, ...],
    filters: tuple[int, ...],
    processor: Processor = SERIAL,
    is_constant: bool = True,
    **attributes: Any,
):
    """Return what takes the place of a convolution."""
    w = weft.constant(np.ones(filters, "float32")) if is_constant else weft.placeholder(filters)
    return legalized(weft.conv(weft.placeholder(images), w, **attributes), processor)


def test_few_filters_and_other_devices_keep_the_convolution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    image = (1, 64, 14, 14)
    assert found(image, (64, 64, 3, 3), padding=1) is not None
    assert found(image, (64, 64, 3, 3), PARALLEL, padding=1) is None
    assert found(image, (64, 64, 3, 3), replace(SERIAL, vector_lanes=1), padding=1) is None
    assert found((1, 64, 56, 56), (3, 64, 3, 3), padding=1) is None
    assert found(image, (64, 1, 3, 3), padding=1, groups=64) is None
    assert found((1, 8, 9, 9, 9), (32, 8, 3, 3, 3)) is None


def test_filters_that_may_change_are_packed_for_many_results_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    filters = (64, 64, 3, 3)
    assert found((1, 64, 14, 14), filters, is_constant=False, padding=1) is None
    assert found((8, 64, 14, 14), filters, is_constant=False, padding=1) is not None


def test_one_image_is_divided_for_all_units():
    made = found((1, 256, 14, 14), (256, 256, 3, 3), padding=1)
    assert plan(made, SERIAL).items >= SERIAL.units
    made = found((64, 256, 14, 14), (256, 256, 3, 3), padding=1)
    assert plan(made, SERIAL).panels == 1


def test_constant_filters_are_packed_at_compile_time():
    x = weft.placeholder((2, 8, 14, 14))
    w = weft.constant(numbers("float32", 33, 8, 3, 3))
    steps = plan_of([weft.conv(x, w)], x, processor=SERIAL, passes=FUSING).steps
    assert [type(each.op) for each in steps] == [PackedConvolutionOp]


def test_a_view_of_a_large_tensor_is_read_with_wide_indices():
    """The channels of a few images may lie more than 31 bits apart."""
    x, w = weft.placeholder((24, 40, 13, 200_000)), weft.placeholder((96, 24, 1, 1))
    result = legalized(weft.conv(weft.transpose(x[..., :13], (1, 0, 2, 3)), w), SERIAL)
    assert type(result) is PackedConvolutionOp
    _, source = work_of(plan_of([result], x, w, processor=SERIAL), SERIAL)
    assert "channel * 104000000" in source
    assert "for (i64 channel = 0" in source
    assert "i32 row" not in source.partition("convolution")[2]


def test_padding_beyond_31_bits_is_not_copied():
    x, w = weft.placeholder((1, 64, 1, 1)), weft.placeholder((16, 64, 1, 1))
    for padding, kind in ((4, PackedConvolutionOp), (4000, type(None))):
        found = legalized(weft.conv(x, w, padding=padding), SERIAL)
        assert type(found) is kind
