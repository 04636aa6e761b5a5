"""Epilogues: ops after a matrix product are fused into its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import GraphError
from weft.ir.target import Target
from weft.kernels import FusedOp, Group, fused
from weft.ops.products.linalg import MatmulOp
from weft.plan.plan import make_plan
from weft.transforms.capture import capture
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import both, check, everywhere, numbers
from running import CUDA_PARALLEL, FUSING, PROCESSORS, SERIAL, plan_of, work_of

from weft_c import lower

pytestmark = [pytest.mark.slow, pytest.mark.share(20)]

SHAPES = {
    "tiny": ((3, 4), (4, 5)),
    "odd": ((33, 70), (70, 50)),
    "whole tiles": ((24, 32), (32, 64)),
    "blocks of terms": ((37, 600), (600, 100)),
    "narrow": ((64, 100), (100, 10)),
    "batched": ((2, 3, 20, 50), (2, 3, 50, 48)),
    "rows of a batch": ((6, 1, 64), (6, 64, 40)),
    "row": ((1, 300), (300, 77)),
    "row of blocks of terms": ((1, 700), (700, 301)),
    "column": ((300, 129), (129, 1)),
    "long sum": ((1, 5000), (5000, 1)),
    "long sums": ((8, 3000), (3000, 8)),
    "no terms": ((7, 0), (0, 5)),
    "nothing": ((0, 3), (3, 5)),
}


def bias(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return product + row


def scaled(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return product * 3 - 1


def residual(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return weft.relu(product + row) + full


def several(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return [product, product + full, weft.maximum(product, row) * full]


def compared(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return [product > full, weft.where(full > 0, product, row)]


def cast(product: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
    return weft.cast(weft.cast(product, "float64") * 2, "int32") + weft.cast(full, "int32")


def gelu(product: Any, row: Any, full: Any):
    return weft.gelu(product + row) + full


EPILOGUES = {each.__name__: each for each in (bias, scaled, residual, several, compared, cast)}


def turned(x: Any):
    """Return a tensor with its last two axes swapped."""
    return weft.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def operands(name: str, dtype: str = "float32"):
    """Return the operands, a row, and a tensor of the shape of the product."""
    x, y = SHAPES[name]
    return [
        numbers(dtype, *x),
        numbers(dtype, *y),
        numbers(dtype, y[-1]),
        numbers(dtype, *x[:-1], y[-1]),
    ]


def check_epilogue(
    name: str,
    follow: Callable[..., Any],
    processor: str,
    dtype: str = "float32",
    exact: bool = True,
):
    given = operands(name, dtype)

    def build(x: weft.TensorOp, y: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
        return follow(MatmulOp(x, y), row, full)

    check(build, *given, processor=processor, exact=exact, passes=FUSING)


@everywhere
@pytest.mark.parametrize("follow", EPILOGUES)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, follow: str, processor: str):
    check_epilogue(name, EPILOGUES[follow], processor)


@everywhere
@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["odd", "blocks of terms", "row", "column", "long sums"])
def test_dtypes(name: str, dtype: str, processor: str):
    exact = dtype not in ("float16", "bfloat16")
    for follow in (scaled, several):
        check_epilogue(name, follow, processor, dtype, exact)


@both
@pytest.mark.parametrize("name", ["odd", "row"])
def test_functions(name: Any, processor: str):
    check_epilogue(name, gelu, processor, exact=False)


@both
@pytest.mark.parametrize("name", ["odd", "batched", "row", "column"])
def test_transposed_factors_and_operands(name: Any, processor: str):
    x, y, row, full = operands(name)
    x, y, full = (np.ascontiguousarray(np.swapaxes(each, -1, -2)) for each in (x, y, full))

    def build(x: weft.TensorOp, y: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp):
        return weft.relu(MatmulOp(turned(x), turned(y)) + row) * turned(full)

    check(build, x, y, row, full, processor=processor, passes=FUSING)


def titles(results: list[Any], *parameters: Any, processor: Processor = SERIAL):
    """Return the kinds of a plan's steps, kernels by their titles."""
    plan = plan_of(results, *parameters, processor=processor, passes=FUSING)
    return [
        each.op.kernel.title if isinstance(each.op, FusedOp) else type(each.op).__name__
        for each in plan.steps
    ]


GIVEN = [numbers("float32", *shape) for shape in ((40, 50), (50, 60), (60,), (40, 60), (50,))]

STEPS = {
    "a chain": (lambda x, y, row, full, v: weft.relu(x @ y + row) * full,
        ["matmul_add_relu_multiply"]),
    "a cast": (lambda x, y, row, full, v: weft.cast(x @ y, "float64"), ["matmul_cast"]),
    "a vector": (lambda x, y, row, full, v: weft.relu(v @ y + row), ["matmul_add_relu"]),
    "the product is a result too": (lambda x, y, row, full, v: [x @ y, weft.tanh(x @ y) + 1],
        ["matmul_tanh_add"]),
    "two readers": (lambda x, y, row, full, v: [weft.relu(x @ y), x @ y * full],
        ["matmul_relu_multiply"]),
    "a sum": (lambda x, y, row, full, v: weft.sum(x @ y, axis=1), ["MatmulOp", "SumOp"]),
    "softmax": (lambda x, y, row, full, v: weft.softmax((x @ y) * 2 + full),
        ["matmul_multiply_add", "max_subtract_exp_sum_divide"]),
    "an op and a sum": (
        lambda x, y, row, full, v: [weft.relu(x @ y) + 1, weft.sum(x @ y, axis=0)],
        ["matmul_relu_add", "SumOp"]),
    "another product": (
        lambda x, y, row, full, v: weft.relu(x @ y + row) @ weft.transpose(y),
        ["matmul_add_relu", "MatmulOp"]),
    "two products": (lambda x, y, row, full, v: x @ y + x[::-1] @ y, ["MatmulOp", "matmul_add"]),
    "a transposition": (lambda x, y, row, full, v: weft.transpose(x @ y)[::2] * 2,
        ["MatmulOp", "MultiplyOp"]),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", STEPS)
def test_what_follows_a_product_and_what_does_not(name: Any, processor: str):
    build, expected = STEPS[name]
    parameters = [weft.placeholder(each.shape) for each in GIVEN]
    found = build(*parameters)
    results = found if isinstance(found, list) else [found]
    assert sorted(titles(results, *parameters, processor=PROCESSORS[processor])) == sorted(expected)
    check(build, *GIVEN, processor=processor, exact=False, passes=FUSING)


@both
def test_gradients(processor: str):
    def build(x: weft.TensorOp, y: weft.TensorOp, row: weft.TensorOp, full: weft.TensorOp, v: Any):
        cost = weft.sum(weft.tanh(x @ y + row) * full, axis=(0, 1))
        return [weft.deriv(cost, each) for each in (x, y, row)]

    check(build, *(each / 16 for each in GIVEN), processor=processor, exact=False, passes=FUSING)


SHARED = replace(SERIAL, shares_host=True)
WITH_BLAS = replace(CUDA_PARALLEL, has_blas=True)

MAKERS = {
    "the host makes large products": (SHARED, (600, 600, 600), "float32", False),
    "kernels make small ones": (SHARED, (64, 64, 64), "float32", True),
    "kernels multiply vectors": (SHARED, (1, 4000, 4000), "float32", True),
    "the host has floats only": (SHARED, (600, 600, 600), "int32", True),
    "kernels make all where memory is not the host's": (SERIAL, (200, 200, 200), "float32", True),
    "cuBLAS makes large products": (WITH_BLAS, (200, 200, 200), "float32", False),
    "cuBLAS has floats only": (WITH_BLAS, (200, 200, 200), "int32", True),
    "kernels multiply vectors on a GPU": (WITH_BLAS, (1, 4000, 4000), "float32", True),
    "kernels make tiny products": (WITH_BLAS, (4, 4, 4), "float32", True),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_product_computed_by_a_blas_is_not_fused(name: str):
    processor, (m, k, n), dtype, expected = MAKERS[name]
    x, y = weft.placeholder((m, k), dtype=dtype), weft.placeholder((k, n), dtype=dtype)
    apart = ["MatmulOp", "multiply_add"]
    found = titles([x @ y * 3 + 1], x, y, processor=processor)
    assert found == (["matmul_multiply_add"] if expected else apart)


def test_a_batch_that_shares_a_matrix_is_for_a_blas():
    x, y = weft.placeholder((64, 1, 80)), weft.placeholder((80, 90))
    repeated = weft.broadcast(weft.reshape(y, (1, 80, 90)), (64, 80, 90))
    product = MatmulOp(x, repeated)
    assert titles([product * 3], x, y, processor=WITH_BLAS) == ["MatmulOp", "MultiplyOp"]
    assert titles([product * 3], x, y, processor=CUDA_PARALLEL) == ["matmul_multiply"]


@both
@pytest.mark.parametrize(("m", "n"), [(41, 60), (1, 301), (1, 288), (30, 45), (1, 31)])
def test_a_result_in_an_operand_s_memory(m: int, n: int, processor: str):
    """The last tile overlaps its predecessor along rows or columns: each sum is stored once."""

    def build(x: weft.TensorOp, y: weft.TensorOp, full: weft.TensorOp):
        return weft.cumsum(weft.relu(x @ y + weft.cumsum(full, 1)), 1)

    shapes = (m, 80), (80, n), (m, n)
    parameters = [weft.placeholder(shape) for shape in shapes]
    chosen = PROCESSORS[processor]
    plan = plan_of([build(*parameters)], *parameters, processor=chosen, passes=FUSING)
    (step,) = (each for each in plan.steps if isinstance(each.op, FusedOp))
    assert step.outs[0] in step.args
    given = [numbers("float32", *shape) for shape in shapes]
    check(build, *given, processor=processor, passes=FUSING)


def test_rows_of_a_product_are_not_reduced_in_its_kernel():
    x, y = weft.placeholder((4, 5)), weft.placeholder((5, 6))
    graph = capture([weft.sum(weft.tanh(x @ y), axis=1)], [x, y])
    product, tanh, total = (op for op in graph.ops if op.args)
    group = Group((4, 6), {product: (0, 1), tanh: (0, 1), total: (0,)})
    target = Target("c", supports=lambda op: True)
    (step,) = make_plan(fused(graph, [group]), target).steps
    with pytest.raises(GraphError, match="do not reduce the rows of a product"):
        lower(step, SERIAL)


LAUNCHES = {
    "tiles": (SERIAL, (64, 64), (64, 64), ["matmul_relu_add"]),
    "parts": (CUDA_PARALLEL, (8, 3000), (3000, 8), ["matmul", "add_parts_relu_add"]),
    "columns": (CUDA_PARALLEL, (1, 200), (200, 7000), ["matvec_relu_add"]),
    "parts of columns": (CUDA_PARALLEL, (1, 3000), (3000, 70), ["matvec", "add_parts_relu_add"]),
    "rows": (CUDA_PARALLEL, (70, 300), (300, 1), ["matvec_relu_add"]),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launches(name: str):
    processor, first, second, expected = LAUNCHES[name]
    x, y = weft.placeholder(first), weft.placeholder(second)
    plan = plan_of([weft.relu(x @ y) + 1], x, y, processor=processor, passes=FUSING)
    work, _ = work_of(plan, processor)
    assert [each.function.title for each in work] == expected
