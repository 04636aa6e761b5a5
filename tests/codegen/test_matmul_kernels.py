"""Matrix products in C against the op's reference: serial, parallel and as CUDA C."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.ops.products.linalg import MatmulOp
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import both, check, everywhere, numbers
from running import OPENCL, SERIAL, plan_of, work_of

from weft_c import HostCall

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

SHAPES = {
    "tiny": ((3, 4), (4, 5)),
    "odd": ((33, 70), (70, 50)),
    "blocks of terms": ((37, 600), (600, 100)),
    "whole vectors": ((64, 32), (32, 64)),
    "narrow": ((128, 784), (784, 10)),
    "large": ((300, 520), (520, 300)),
    "batched": ((2, 3, 40, 50), (2, 3, 50, 48)),
    "rows of a batch": ((6, 1, 64), (6, 64, 40)),
    "row": ((1, 300), (300, 77)),
    "column": ((300, 129), (129, 1)),
    "long row": ((1, 130), (130, 1501)),
    "row of two tiles of vectors": ((1, 300), (300, 31)),
    "row of whole vectors": ((1, 300), (300, 288)),
    "narrow row": ((1, 600), (600, 13)),
    "batched row": ((6, 1, 256), (6, 256, 64)),
    "long sum": ((1, 5000), (5000, 1)),
    "no terms": ((7, 0), (0, 5)),
    "nothing": ((0, 3), (3, 5)),
}
DTYPES = ["int8", "uint16", "int32", "int64", "uint64", "float16", "bfloat16", "float64"]


def turned(x: weft.TensorOp):
    """Return a tensor with its last two axes swapped."""
    return weft.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


@everywhere
@pytest.mark.parametrize("name", SHAPES)
def test_lengths_and_layouts(name: str, processor: str):
    operands = [numbers("float32", *shape) for shape in SHAPES[name]]
    columns = [np.ascontiguousarray(np.swapaxes(each, -1, -2)) for each in operands]

    def build(
        x: weft.TensorOp, y: weft.TensorOp, x_columns: weft.TensorOp, y_columns: weft.TensorOp
    ):
        pairs = itertools.product((x, turned(x_columns)), (y, turned(y_columns)))
        return [MatmulOp(*pair) for pair in pairs]

    check(build, *operands, *columns, processor=processor)


@everywhere
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["odd", "blocks of terms", "row", "narrow row", "column"])
def test_dtypes(name: str, dtype: str, processor: str):
    operands = [numbers(dtype, *shape) for shape in SHAPES[name]]
    exact = dtype not in ("float16", "bfloat16")
    check(MatmulOp, *operands, processor=processor, exact=exact)


@both
def test_integers_wrap_around(processor: str):
    operands = [np.full(shape, 100, np.int8) for shape in SHAPES["odd"]]
    check(MatmulOp, *operands, processor=processor)


@both
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("columns", [1, 33])
def test_a_batch_that_shares_a_matrix_is_one_product(rows: int, columns: int, processor: str):
    def build(x: weft.TensorOp, y: weft.TensorOp):
        return MatmulOp(x, weft.broadcast(y, (4, 900, columns)))

    x, y = numbers("float32", 4, rows, 900), numbers("float32", 1, 900, columns)
    check(build, x, y, processor=processor)


@both
def test_slices_with_steps(processor: str):
    def build(x: weft.TensorOp, y: weft.TensorOp):
        return MatmulOp(x[::2, ::3], y[::-1, 1::2])

    x, y = numbers("float32", 80, 120), numbers("float32", 40, 101)
    check(build, x, y, processor=processor)


def work(m: int, k: int, n: int, processor: Processor, dtype: str = "float32"):
    """Return the launches of a product."""
    x, y = weft.placeholder((m, k), dtype=dtype), weft.placeholder((k, n), dtype=dtype)
    return work_of(plan_of([MatmulOp(x, y)], x, y, processor=processor), processor)[0]


SHARED = replace(SERIAL, shares_host=True)


@pytest.mark.parametrize(
    ("lengths", "processor", "dtype", "is_for_host"),
    [
        ((600, 600, 600), SHARED, "float32", True),
        ((600, 600, 599), SHARED, "float32", False),
        ((600, 600, 599), SHARED.alone, "float32", True),
        ((200, 200, 200), SHARED, "float32", True),
        ((64, 64, 64), SHARED.alone, "float32", False),
        ((600, 600, 600), SHARED, "int32", False),
        ((600, 600, 600), SERIAL, "float32", False),
    ],
)
def test_the_host_makes_large_products_where_it_shares_memory(
    lengths: tuple[int, ...], processor: Processor, dtype: str, is_for_host: bool
):
    made = work(*lengths, processor, dtype)
    assert any(isinstance(each, HostCall) for each in made) is is_for_host


def test_the_device_multiplies_large_matrices_with_vectors():
    shared = replace(SERIAL, shares_host=True)
    for m, n in ((1, 4000), (4000, 1)):
        (kernel,) = work(m, 4000, n, shared)
        assert not isinstance(kernel, HostCall)
        assert kernel.items > 1


def test_long_sums_are_split_where_there_are_few_tiles():
    parallel = replace(SERIAL, is_serial=False, units=100, dialect=OPENCL)
    titles = [each.function.title for each in work(32, 20000, 32, parallel)]
    assert titles == ["matmul", "add_parts"]
    assert [each.function.title for each in work(3000, 64, 3000, parallel)] == ["matmul"]


SCRATCH = {
    "a row of many columns": ((1, 288), (288, 32000), 3 * 65536),
    "a row whose last tile overlaps another": ((1, 300), (300, 301), 16 * 1024),
    "a column": ((6, 48, 256), (6, 256, 1), 16 * 1024),
    "many terms": ((1, 5000), (5000, 40), 16 * 1024),
    "a tiny product": ((3, 4), (4, 5), 0),
}


@pytest.mark.parametrize("name", SCRATCH)
def test_a_single_row_needs_no_copies(name: str):
    first, second, most = SCRATCH[name]
    x, y = weft.placeholder(first), weft.placeholder(second)
    plan = plan_of([MatmulOp(x, y)], x, y, processor=SERIAL)
    (step,) = (each for each in plan.steps if isinstance(each.op, MatmulOp))
    assert (step.workspace.nbytes if step.workspace else 0) <= most
    source = work_of(plan, SERIAL)[1]
    assert "columns" not in source
    assert "rows" not in source


@pytest.mark.parametrize("rows", ["a single row", "several rows"])
def test_the_declared_scratch_covers_every_layout(rows: Any):
    m = 1 if rows == "a single row" else 9

    def build(x: weft.TensorOp, y: weft.TensorOp, y_columns: weft.TensorOp):
        return [
            MatmulOp(each, other)
            for each in (x[:, ::2], x[:, :70])
            for other in (y, y[::-1], turned(y_columns), turned(y_columns)[:, ::-1])
        ]

    operands = numbers("float32", m, 140), numbers("float32", 70, 101), numbers("float32", 101, 70)
    check(build, *operands, processor="serial")
