"""Prologues: ops before a matrix product are fused where its kernel reads each element once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import GraphError
from weft.ir.target import Target
from weft.kernels import FusedOp, Group, fused, operand_indexing_map
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.movement import BroadcastOp
from weft.plan.plan import make_plan
from weft.transforms.capture import capture
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import both, check, everywhere, numbers
from running import CUDA_PARALLEL, FUSING, PARALLEL, PROCESSORS, SERIAL, plan_of

from weft_c import lower, takes_prologue

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

SHAPES = {
    "tiny": ((3, 4), (4, 5)),
    "odd": ((33, 70), (70, 5)),
    "whole tiles": ((24, 32), (32, 16)),
    "blocks of terms": ((137, 600), (600, 10)),
    "rows for all units": ((900, 130), (130, 7)),
    "batched": ((2, 3, 20, 50), (2, 3, 50, 8)),
    "one term": ((33, 1), (1, 5)),
    "no terms": ((7, 0), (0, 5)),
    "nothing": ((0, 3), (3, 5)),
}


def activation(x: weft.TensorOp, row: weft.TensorOp, column: weft.TensorOp, full: weft.TensorOp):
    return weft.relu(x)


def shifted(x: weft.TensorOp, row: weft.TensorOp, column: weft.TensorOp, full: weft.TensorOp):
    return weft.maximum(x * column + row, 0) - full


def shared(x: weft.TensorOp, row: weft.TensorOp, column: weft.TensorOp, full: weft.TensorOp):
    y = x - row
    return y * y + weft.where(y > 0, full, y)


def constant(x: weft.TensorOp, row: weft.TensorOp, column: weft.TensorOp, full: weft.TensorOp):
    return 3 - x * 2


PROLOGUES = {each.__name__: each for each in (activation, shifted, shared, constant)}


def operands(name: str, dtype: str = "float32"):
    """Return the operands, and a row, a column and a tensor for the first."""
    x, y = SHAPES[name]
    shapes = x, y, (x[-1],), (*x[:-1], 1), x
    return [numbers(dtype, *shape) for shape in shapes]


def check_prologue(
    name: str,
    before: Callable[..., Any],
    processor: str,
    dtype: str = "float32",
    exact: bool = True,
):
    def build(x: weft.TensorOp, y: weft.TensorOp, *others: Any):
        return MatmulOp(before(x, *others), y)

    check(build, *operands(name, dtype), processor=processor, exact=exact, passes=FUSING)


def titles(results: list[Any], *parameters: Any, processor: Processor = SERIAL):
    """Return the kinds of a plan's steps, kernels by their titles."""
    plan = plan_of(results, *parameters, processor=processor, passes=FUSING)
    return [
        each.op.kernel.title if isinstance(each.op, FusedOp) else type(each.op).__name__
        for each in plan.steps
    ]


@everywhere
@pytest.mark.parametrize("before", PROLOGUES)
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str, before: str, processor: str):
    check_prologue(name, PROLOGUES[before], processor)


@everywhere
@pytest.mark.parametrize("dtype", ["int8", "uint64", "int32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["tiny", "odd", "blocks of terms"])
def test_dtypes(name: str, dtype: str, processor: str):
    exact = dtype not in ("float16", "bfloat16")
    check_prologue(name, shifted, processor, dtype, exact=exact)


@both
@pytest.mark.parametrize("name", ["tiny", "odd", "blocks of terms", "batched"])
def test_functions_before_and_after(name: str, processor: str):
    def build(
        x: weft.TensorOp,
        y: weft.TensorOp,
        row: weft.TensorOp,
        column: weft.TensorOp,
        full: weft.TensorOp,
    ):
        product = MatmulOp(weft.silu(x + row) * full, y)
        return [weft.gelu(product) + 1, product]

    given = [each / 8 for each in operands(name)]
    check(build, *given, processor=processor, exact=False, passes=FUSING)


@both
def test_a_batch_that_shares_a_matrix(processor: str):
    def build(x: weft.TensorOp, y: weft.TensorOp):
        return MatmulOp(weft.relu(x) - 1, weft.broadcast(y, (4, 90, 6)))

    x, y = numbers("float32", 4, 9, 90), numbers("float32", 1, 90, 6)
    check(build, x, y, processor=processor, passes=FUSING)


@both
def test_layouts_of_what_is_read(processor: str):
    def build(x: weft.TensorOp, y: weft.TensorOp, z: weft.TensorOp):
        return MatmulOp(weft.relu(weft.transpose(x) + z[::-1, ::2]), y[:, ::-1])

    given = numbers("float32", 70, 133), numbers("float32", 70, 6), numbers("float32", 133, 140)
    check(build, *given, processor=processor, passes=FUSING)


FIRST, NARROW, WIDE = ((900, 130), (130, 8), (130, 900))

STEPS = {
    "a chain": (lambda x, y, w: weft.relu(x * 2 + 1) @ y, ["multiply_add_relu_matmul"]),
    "one op": (lambda x, y, w: weft.exp(x) @ y + 1, ["exp_matmul_add"]),
    "a wide product": (lambda x, y, w: weft.relu(x * 2) @ w, ["multiply_relu", "MatmulOp"]),
    "a row": (lambda x, y, w: weft.relu(x[:1] * 2) @ y, ["multiply_relu", "MatmulOp"]),
    "one column": (lambda x, y, w: weft.relu(x * 2) @ y[:, :1], ["multiply_relu", "MatmulOp"]),
    "two products": (lambda x, y, w: [weft.relu(x) @ y, weft.relu(x) @ y[:, ::-1]],
        ["MatmulOp", "MatmulOp", "ReluOp"]),
}  # fmt: skip


@both
@pytest.mark.parametrize("name", STEPS)
def test_what_is_computed_before_a_product_and_what_is_not(name: str, processor: str):
    build, expected = STEPS[name]
    parameters = [weft.placeholder(shape) for shape in (FIRST, NARROW, WIDE)]
    found = build(*parameters)
    results = found if isinstance(found, list) else [found]
    made = titles(results, *parameters, processor=PROCESSORS[processor])
    assert sorted(made) == sorted(expected)


TAKEN = {
    "few columns": (SERIAL, (900, 130, 8), True),
    "columns for several work items": (SERIAL, (900, 130, 900), False),
    "one work item": (SERIAL, (60, 60, 60), True),
    "a tile of columns": (PARALLEL, (900, 130, 8), True),
    "several tiles of columns": (PARALLEL, (900, 130, 900), False),
    "the host's product": (replace(SERIAL, shares_host=True), (9000, 300, 8), False),
    "the library's product": (replace(CUDA_PARALLEL, has_blas=True), (9000, 300, 8), False),
    "a row": (SERIAL, (1, 130, 8), False),
    "a column": (PARALLEL, (900, 130, 1), False),
}


@pytest.mark.parametrize("name", TAKEN)
def test_which_products_take_a_prologue(name: str):
    processor, (m, k, n), expected = TAKEN[name]
    product = MatmulOp(weft.placeholder((m, k)), weft.placeholder((k, n)))
    assert takes_prologue(product, processor) is expected


@pytest.mark.parametrize("processor", [SERIAL, PARALLEL], ids=["serial", "parallel"])
@pytest.mark.parametrize(("m", "n"), [(1, 9), (9, 1)])
def test_a_vector_is_not_computed_before_a_product(m: int, n: int, processor: Processor):
    x, y = weft.placeholder((m, 50)), weft.placeholder((50, n))
    graph = capture([weft.relu(x) @ y], [x, y])
    relu, product = (op for op in graph.ops if op.args and not isinstance(op, BroadcastOp))
    group = Group((m, n), {relu: operand_indexing_map(product, 0, (0, 1)), product: (0, 1)})
    target = Target("c", supports=lambda op: True)
    (step,) = make_plan(fused(graph, [group]), target).steps
    with pytest.raises(GraphError, match="compute no vector for a product"):
        lower(step, processor)


@both
def test_random_prologues(processor: str):
    """Values with several uses, constants, and broadcast rows and columns."""
    random = np.random.default_rng(0)
    for _ in range(12):
        m, k, n = random.integers(2, 70), random.integers(1, 300), random.integers(2, 9)
        kinds = random.integers(0, 5, size=random.integers(1, 7))
        picks = random.integers(0, 100, size=(len(kinds), 2))

        def build(
            x: weft.TensorOp,
            y: weft.TensorOp,
            row: weft.TensorOp,
            column: weft.TensorOp,
            kinds: Any = kinds,
            picks: Any = picks,
            shape: Any = (int(m), int(k)),
        ):
            known = [x, weft.broadcast(row, shape), weft.broadcast(column, shape)]
            for kind, (one, other) in zip(kinds, picks, strict=True):
                a, b = known[one % len(known)], known[other % len(known)]
                made = (a + b, a - b * 0.5, weft.maximum(a, b), weft.where(a > b, b, 1), abs(a))
                known.append(made[kind])
            return MatmulOp(known[-1] + x, y)

        shapes = (m, k), (k, n), (k,), (m, 1)
        given = [numbers("float32", *shape) for shape in shapes]
        check(build, *given, processor=processor, exact=False, passes=FUSING)
