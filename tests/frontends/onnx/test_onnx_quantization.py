"""Quantization at the edges: NaN, infinities, scales that are 0 or infinite, axes and blocks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_judge import node_model

import weft_onnx
from weft_onnx.errors import NodeError

X = np.array([np.nan, np.inf, -np.inf, 1.0, -1.0, 0.0, 1e38], np.float32)
RANGES = {
    "uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767),
    "uint4": (0, 15), "int4": (-8, 7), "uint2": (0, 3), "int2": (-2, 1),
}  # fmt: skip
SCALES = [1.0, np.inf, 0.0, np.nan, 1e-45]


def run(
    op: str,
    operands: list[Any],
    backend: str = "numpy",
    opset: int = 25,
    outputs: int = 1,
    **attributes: Any,
):
    model, arrays = node_model(op, opset, attributes, operands, outputs)
    return list(weft_onnx.load(model).run(arrays, backend=backend).values())


def quantized(x: np.ndarray, scale: float, zero: int, low: int, high: int):
    """Return the definition, with the least number for NaN."""
    with np.errstate(all="ignore"):
        ratio = np.rint(x.astype(np.float32) / np.float32(scale)).astype(np.float64)
    return np.where(np.isnan(ratio), low, np.clip(ratio + zero, low, high))


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_nan_is_the_least_number_on_each_backend(backend: str, dtype: str):
    low, high = RANGES[dtype]
    operands = [X, np.array(np.inf, np.float32), np.array(1, dtype)]
    (found,) = run("QuantizeLinear", operands, backend)
    np.testing.assert_array_equal(found, quantized(X, np.inf, 1, low, high))


@pytest.mark.parametrize("dtype", RANGES)
def test_nan_is_the_least_number_in_each_type_and_for_each_scale(dtype: str):
    low, high = RANGES[dtype]
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for scale in SCALES:
        operands = [X, np.array(scale, np.float32), np.array(1, kind)]
        (found,) = run("QuantizeLinear", operands)
        assert found.dtype == kind
        np.testing.assert_array_equal(found.astype(int), quantized(X, scale, 1, low, high))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_floats_of_8_bits_keep_nan_and_saturate_infinities(dtype: str, saturate: int):
    kind = np.dtype(getattr(ml_dtypes, dtype))
    operands = [X, np.array(1, np.float32), np.array(0, kind)]
    (found,) = run("QuantizeLinear", operands, saturate=saturate)
    largest = float(ml_dtypes.finfo(kind).max)
    want = np.where(np.isnan(X), X, np.clip(X, -largest, largest))
    if not saturate:
        has_infinity = dtype == "float8_e5m2"
        want = np.where(np.abs(X) > largest, np.copysign(np.inf, X) if has_infinity else np.nan, X)
    np.testing.assert_array_equal(found.astype(np.float32), want)


def test_a_product_whose_scale_is_nan_is_the_least_number():
    a, b = np.full((2, 3), 9, np.int8), np.full((3, 2), 5, np.int8)
    zero, one = np.array(0, np.int8), np.array(1, np.float32)
    infinite = np.array(np.inf, np.float32)
    operands = [a, infinite, zero, b, one, zero, infinite, zero]
    np.testing.assert_array_equal(run("QLinearMatMul", operands)[0], np.full((2, 2), -128))
    image, filters = np.full((1, 1, 3), 9, np.int8), np.full((1, 1, 2), 5, np.int8)
    operands = [image, infinite, zero, filters, one, zero, infinite, zero]
    np.testing.assert_array_equal(run("QLinearConv", operands)[0], np.full((1, 1, 2), -128))


DYNAMIC = {
    "zeros": ([0.0, 0.0], [0, 0], 1.0, 0),
    "nothing": ([], [], 1.0, 0),
    "an infinity": ([np.inf, 1.0], [0, 0], np.inf, 0),
    "nan": ([0.0, np.nan], [0, 0], np.nan, 0),
    "both signs": ([-1.0, 2.0], [0, 255], 3 / 255, 85),
    "a scale that is too small for a float": ([1e-45, 0.0], [255, 0], 0.0, 0),
}
"""Operand, result, scale and zero point of a quantization by the range of the operand."""


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_range_that_is_no_range(name: str):
    x, *want = DYNAMIC[name]
    found = run("DynamicQuantizeLinear", [np.array(x, np.float32)], outputs=3)
    assert [each.dtype.name for each in found] == ["uint8", "float32", "uint8"]
    for result, each in zip(found, want, strict=True):
        np.testing.assert_allclose(result, np.array(each, result.dtype), 1e-6)


def test_the_division_has_the_precision_that_is_asked_for():
    x, scale = np.array([100.0, 33.25], np.float32), np.array(0.3, np.float32)
    for number in (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT):
        kind = helper.tensor_dtype_to_np_dtype(number)
        (found,) = run(
            "QuantizeLinear", [x, scale], precision=number, output_dtype=TensorProto.INT16
        )
        ratio = (x.astype(kind) / scale.astype(kind)).astype(np.float32)
        np.testing.assert_array_equal(found, np.rint(ratio))


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
def test_scales_that_do_not_fit_are_refused(op: str):
    x = np.zeros((4, 6), np.float32 if op == "QuantizeLinear" else np.int8)
    for shape, attributes in (
        ((3,), {"axis": 1}), ((6,), {"axis": 0}), ((6,), {"axis": 2}), ((4, 6), {}),
        ((4, 2), {"axis": 1, "block_size": 2}), ((4,), {"axis": 1, "block_size": 2}),
    ):  # fmt: skip
        with pytest.raises(NodeError, match=r"axis"):
            run(op, [x, np.ones(shape, np.float32)], **attributes)


def test_blocks_may_end_short():
    x, scale = np.arange(10, dtype=np.float32).reshape(2, 5), np.array([[1, 2, 4], [1, 1, 1]])
    operands = [x, scale.astype(np.float32)]
    (found,) = run("QuantizeLinear", operands, axis=1, block_size=2)
    np.testing.assert_array_equal(found, np.rint(x / np.repeat(scale, 2, 1)[:, :5]))


def test_two_types_that_differ_are_refused():
    operands = [X, np.array(1, np.float32), np.array(0, np.uint8)]
    with pytest.raises(NodeError, match="output_dtype is int8, and the zero point is uint8"):
        run("QuantizeLinear", operands, output_dtype=TensorProto.INT8)
