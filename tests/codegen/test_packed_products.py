"""Products with packed constants, and of rows by large matrices, against the references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from weft.kernels import FusedOp
from weft.ops.products.linalg import MatmulOp
from weft.testing.reference import evaluate
from weft.transforms.capture import capture
from weft_c.processor import Processor

pytest.importorskip("pyopencl")
from checking import check, numbers
from running import FUSING, PARALLEL, SERIAL, plan_of

from weft_c import legalized
from weft_c.matmul import row_streams
from weft_c.matmul.packed_panels import PackedMatmulOp

PASSES = (*FUSING[:4], "layout", *FUSING[4:])

ROWS = {
    "whole tiles": ((28, 64), (64, 64)),
    "odd": ((33, 70), (70, 50)),
    "one panel": ((40, 100), (100, 10)),
    "two rows": ((2, 300), (300, 77)),
    "blocks of terms": ((5, 2100), (2100, 33)),
    "rows that share sets of a cache": ((30, 1024), (1024, 40)),
    "a batch": ((2, 3, 20, 50), (50, 48)),
    "rows of a batch": ((6, 1, 64), (64, 80)),
}


def constant(shape: tuple[int, ...]):
    return weft.constant(numbers("float32", *shape))


@pytest.mark.parametrize("name", ROWS)
def test_a_constant_matrix_is_packed(name: str):
    rows, matrix = ROWS[name]
    x = weft.placeholder(rows)
    y = x @ constant(matrix)
    plain = plan_of([y], x, processor=SERIAL, passes=PASSES).steps
    assert [type(each.op) for each in plain] == [PackedMatmulOp]
    given = numbers("float32", *rows)
    check(lambda x: x @ constant(matrix), given, processor="serial", exact=False, passes=PASSES)


@pytest.mark.parametrize("name", ROWS)
def test_what_follows_is_computed_in_its_kernel(name: str):
    rows, matrix = ROWS[name]
    shape = (*rows[:-1], matrix[1])

    def build(x: weft.TensorOp, full: weft.TensorOp):
        y = weft.relu(x @ constant(matrix) + constant(matrix[1:])) + full
        return [y, weft.exp(y * -0.125)]

    given = numbers("float32", *rows), numbers("float32", *shape)
    x, full = (weft.placeholder(each.shape) for each in given)
    steps = plan_of(build(x, full), x, full, processor=SERIAL, passes=PASSES).steps
    assert [type(each.op) for each in steps] == [FusedOp]
    check(build, *given, processor="serial", exact=False, passes=PASSES)


def test_what_precedes_is_computed_where_rows_are_packed():
    def build(x: weft.TensorOp, bias: Any):
        return weft.relu(x + bias) @ constant((256, 16))

    given = numbers("float32", 512, 256), numbers("float32", 256)
    x, bias = (weft.placeholder(each.shape) for each in given)
    steps = plan_of([build(x, bias)], x, bias, processor=SERIAL, passes=PASSES).steps
    assert [type(each.op) for each in steps] == [FusedOp]
    check(build, *given, processor="serial", exact=False, passes=PASSES)


def test_the_reference_unpacks_the_matrix():
    x, y = weft.placeholder((6, 300)), constant((300, 77))
    found = legalized(MatmulOp(x, y), SERIAL)
    given = numbers("float32", 6, 300)
    ((own,), _) = evaluate(capture([found], [x]), [given])
    np.testing.assert_allclose(own, given @ y.const, 1e-6)


def test_rows_that_are_views_are_multiplied_as_they_lie():
    def build(x: weft.TensorOp):
        return weft.transpose(x, (1, 0, 2)) @ constant((50, 48))

    check(build, numbers("float32", 20, 3, 50), processor="serial", exact=False, passes=PASSES)


def test_single_rows_small_products_and_other_devices_are_not_packed():
    def found(rows: int, processor: Processor = SERIAL, matrix: weft.TensorOp | None = None):
        w = constant((64, 64)) if matrix is None else matrix
        return legalized(MatmulOp(weft.placeholder((rows, 64)), w), processor)

    assert type(found(28)) is PackedMatmulOp
    assert found(1) is None
    assert found(3) is None
    assert found(28, PARALLEL) is None
    assert found(28, replace(SERIAL, vector_lanes=1)) is None
    assert found(28, matrix=weft.placeholder((64, 64))) is None


STREAMS = {
    "one range of columns": ((1, 37), (37, 100)),
    "several ranges": ((1, 70), (70, 5003)),
    "a batch": ((3, 1, 64), (3, 64, 130)),
    "fewer rows than are added at a time": ((1, 5), (5, 500)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_row_is_multiplied_in_streams(name: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(row_streams, "MIN_BYTES", 1)
    shapes = STREAMS[name]
    used = []
    write = row_streams._RowStreamKernel.write
    monkeypatch.setattr(
        row_streams._RowStreamKernel, "write", lambda self: (used.append(self), write(self))
    )

    def build(x: weft.TensorOp, y: Any):
        return MatmulOp(x, y)

    def with_epilogue(x: Any, y: Any, full: Any):
        return weft.tanh(MatmulOp(x, y) * 0.125) + full

    given = [numbers("float32", *shape) for shape in shapes]
    full = numbers("float32", *shapes[0][:-1], shapes[1][-1])
    check(build, *given, processor="serial", exact=False)
    check(with_epilogue, *given, full, processor="serial", exact=False, passes=PASSES)
    assert used
