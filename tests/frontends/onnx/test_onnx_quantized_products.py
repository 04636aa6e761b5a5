"""Products and convolutions between quantized tensors, against the reference evaluator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import weft_onnx
from weft.kernels import FusedOp
from weft_c.matmul.grouped import GroupedMatmulOp
from weft_c.matmul.packed_panels import PackedMatmulOp
from weft_c.spatial.packed_filters import PackedConvolutionOp

pytestmark = pytest.mark.needs("compiler")

RANDOM = np.random.default_rng(0)
ROWS, TERMS, COLUMNS = 40, 70, 50
IMAGES, FILTERS = (2, 6, 13, 11), (20, 6, 3, 3)


def matrix(dtype: str, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def scales(*shape: int) -> Any:
    return RANDOM.uniform(0.001, 0.01, shape).astype(np.float32)


CONSTANTS = {
    "sx": np.float32(0.02), "zx": np.uint8(120), "zi": np.int8(-128), "sy": np.float32(0.07),
    "zy": np.uint8(128), "w": matrix("int8", TERMS, COLUMNS), "wt": matrix("int8", COLUMNS, TERMS),
    "sw": scales(COLUMNS), "zw": np.zeros(COLUMNS, np.int8), "s1": np.float32(0.004),
    "z1": np.int8(0), "u": matrix("uint8", TERMS, COLUMNS), "zu": np.uint8(128),
    "bias": scales(COLUMNS) * 100, "f": matrix("int8", *FILTERS), "sf": scales(FILTERS[0]),
    "zf": np.zeros(FILTERS[0], np.int8), "fbias": np.arange(FILTERS[0], dtype=np.int32) * 100,
    "outlying": np.where(np.arange(TERMS * COLUMNS) % 7, 1, 3).reshape(TERMS, COLUMNS).astype("f4"),
}  # fmt: skip

for kind, bits in {"int4": 4, "uint4": 4, "int8": 8, "uint8": 8}.items():
    numbers, zeros = (
        RANDOM.integers(0, 2**bits, each) - 2 ** (bits - 1) * (kind[0] == "i")
        for each in ((64, 24), (4, 24))
    )
    CONSTANTS[f"w_{kind}"], CONSTANTS[f"z_{kind}"] = (
        each.astype(getattr(ml_dtypes, kind, kind)) for each in (numbers, zeros)
    )
CONSTANTS |= {f"t{name}": each.T for name, each in CONSTANTS.items() if "int" in name}
CONSTANTS |= {"sg": scales(4, 24), "tsg": scales(24, 4)}

QUANTIZE = ("QuantizeLinear", "x sx zx", "q", {}), ("DequantizeLinear", "q sx zx", "d", {})
SIGNED = ("QuantizeLinear", "x sx zi", "q", {}), ("DequantizeLinear", "q sx zi", "d", {})
AGAIN = ("QuantizeLinear", "p sy zy", "a", {}), ("DequantizeLinear", "a sy zy", "y", {})
PADS = {"pads": [1, 0, 1, 2], "strides": [1, 2]}

MODELS: dict[str, tuple[Any, ...]] = {
    "MatMul": (
        *QUANTIZE, ("DequantizeLinear", "w sw zw", "dw", {"axis": 1}), ("MatMul", "d dw", "p", {}),
        *AGAIN,
    ),
    "MatMul of int8": (
        *SIGNED, ("DequantizeLinear", "w s1 z1", "dw", {}), ("MatMul", "d dw", "y", {}),
    ),
    "MatMul by uint8": (
        *QUANTIZE, ("DequantizeLinear", "u s1 zu", "dw", {}), ("MatMul", "d dw", "y", {}),
    ),
    "Gemm": (
        *QUANTIZE, ("DequantizeLinear", "wt sw zw", "dw", {"axis": 0}),
        ("Gemm", "d dw bias", "r", {"transB": 1}), ("Relu", "r", "p", {}), *AGAIN,
    ),
    "MatMulInteger": (
        ("QuantizeLinear", "x sx zx", "q", {}), ("MatMulInteger", "q w zx z1", "y", {}),
    ),
    "DynamicQuantizeLinear": (
        ("DynamicQuantizeLinear", "x", "q s z", {}), ("MatMulInteger", "q w z z1", "i", {}),
        ("Cast", "i", "c", {"to": 1}), ("Mul", "s s1", "m", {}), ("Mul", "c m", "y", {}),
    ),
    "QLinearMatMul": (
        ("QuantizeLinear", "x sx zx", "q", {}),
        ("QLinearMatMul", "q sx zx w s1 z1 sy zy", "y", {}),
    ),
    "Conv": (
        *QUANTIZE, ("DequantizeLinear", "f sf zf", "df", {"axis": 0}),
        ("Conv", "d df", "p", PADS), *AGAIN,
    ),
    "ConvInteger": (
        ("QuantizeLinear", "x sx zx", "q", {}), ("ConvInteger", "q f zx z1", "y", PADS),
    ),
    "QLinearConv": (
        ("QuantizeLinear", "x sx zx", "q", {}),
        ("QLinearConv", "q sx zx f sf zf sy zy fbias", "y", PADS),
    ),
}  # fmt: skip

KEPT_IN_FLOAT: dict[str, tuple[Any, ...]] = {
    "scales along the terms": (
        *QUANTIZE, ("DequantizeLinear", "w sw zw", "dw", {"axis": 1}),
        ("Transpose", "dw", "dt", {"perm": [1, 0]}), ("MatMul", "d dt", "y", {}),
    ),
    "an operand in float": (
        ("DequantizeLinear", "w sw zw", "dw", {"axis": 1}), ("MatMul", "x dw", "y", {}),
    ),
    "a matrix that is no longer of eight bits": (
        *QUANTIZE, ("DequantizeLinear", "w sw zw", "dw", {"axis": 1}),
        ("Mul", "dw outlying", "m", {}), ("MatMul", "d m", "y", {}),
    ),
}  # fmt: skip


def run(
    nodes: tuple[Any, ...],
    shape: tuple[int, ...],
    kinds: Any = (PackedMatmulOp, PackedConvolutionOp),
    dtype: Any = np.int32,
) -> tuple[Any, Any, int]:
    """Return results of weft and of the evaluator, and how many products are of a kind."""
    made = [helper.make_node(op, i.split(), o.split(), **more) for op, i, o, more in nodes]
    read = {name for node in made for name in node.input}
    graph = helper.make_graph(
        made, "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in CONSTANTS.items()
         if name in read],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = RANDOM.normal(0, 2, shape).astype(np.float32)
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    program = weft_onnx.load(model).prepare("native")
    found = program.run({"x": x})["y"]
    (step,) = program.steps()
    ops = [each.op for each in step.computation.program.plan.steps]
    ops = [each.kernel.product.op if isinstance(each, FusedOp) and each.kernel.product else each
           for each in ops]  # fmt: skip
    return found, wanted, sum(isinstance(op, kinds) and op.dtype == dtype for op in ops)


@pytest.mark.parametrize("name", MODELS)
def test_integers_are_multiplied(name: str):
    shape = IMAGES if "Conv" in name else (ROWS, TERMS)
    found, wanted, count = run(MODELS[name], shape)
    assert count == 1
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    # Sums in float32 are rounded, so a few numbers are a step off where they are quantized again.
    step = CONSTANTS["sy"] if wanted.dtype == np.float32 else 1
    is_again = any("zy" in inputs for _, inputs, _, _ in MODELS[name])
    if wanted.dtype == np.int32:
        np.testing.assert_array_equal(found, wanted)
    elif is_again:
        difference = np.abs(found.astype(np.float32) - wanted.astype(np.float32))
        assert difference.max() <= step * 1.001
        assert (difference > step * 0.001).mean() < 0.01
    else:
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", KEPT_IN_FLOAT)
def test_other_products_stay_in_float(name: str):
    found, wanted, count = run(KEPT_IN_FLOAT[name], (ROWS, COLUMNS if "along" in name else TERMS))
    assert count == 0
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("zero", ["a zero point", "no zero point"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "int8", "uint8"])
def test_codes_in_blocks_are_unpacked_in_products(kind: str, zero: str):
    """Of a matrix in blocks along its rows, and of a transposed one along its columns."""
    given = f"w_{kind} sg z_{kind}" if zero == "a zero point" else f"w_{kind} sg"
    turned = " ".join(f"t{name}" for name in given.split())
    blocks = {"block_size": 16}
    nodes = (
        ("DequantizeLinear", given, "d", {"axis": 0, **blocks}), ("MatMul", "x d", "p", {}),
        ("DequantizeLinear", turned, "t", {"axis": 1, **blocks}),
        ("Gemm", "x t", "q", {"transB": 1}), ("Add", "p q", "y", {}),
    )  # fmt: skip
    for rows in (1, 9):
        found, wanted, count = run(nodes, (rows, 64), GroupedMatmulOp, np.float32)
        assert count == 2
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * np.abs(wanted).max())
