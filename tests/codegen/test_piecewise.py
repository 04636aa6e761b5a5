"""Kernels in C that read padded, concatenated and shifted values piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

pytest.importorskip("pyopencl")
from checking import awkward, check, numbers, with_vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from running import FUSING, SERIAL, plan_of, work_of

from weft.kernels import FusedOp, PiecewiseOp
from weft_c.processor import Processor

Build = Callable[[Any], Any]


def neighbors(x: Any, *axes: int) -> Any:
    """Return the sum of the neighbors along some axes, with 3 outside."""
    padded = weft.pad(x, [(int(n in axes),) * 2 for n in range(x.rank)], value=3)
    total = x * 2
    for axis in axes:
        for part in (slice(None, -2), slice(2, None)):
            at = [slice(1, -1) if n in axes else slice(None) for n in range(x.rank)]
            at[axis] = part
            total = total + padded[tuple(at)]
    return total


def taps(x: Any, axis: int) -> Any:
    """Return a filter of five taps along an axis."""
    length = x.shape[axis]
    padded = weft.pad(x, [(2, 2) if n == axis else (0, 0) for n in range(x.rank)])
    at = [slice(None)] * x.rank
    total = x
    for tap in range(5):
        at[axis] = slice(tap, tap + length)
        total = total + (tap - 2) * padded[tuple(at)]
    return total


PIECEWISE: dict[str, tuple[tuple[int, ...], Build]] = {
    "a row": ((70,), lambda x: neighbors(x, 0)),
    "whole vectors": ((64,), lambda x: neighbors(x, 0)),
    "few more than a vector": ((19,), lambda x: neighbors(x, 0)),
    "less than a vector": ((9,), lambda x: neighbors(x, 0)),
    "rows and columns": ((9, 70), lambda x: neighbors(x, 0, 1)),
    "rows": ((9, 70), lambda x: neighbors(x, 0)),
    "columns": ((9, 70), lambda x: neighbors(x, 1)),
    "the middle": ((3, 9, 70), lambda x: neighbors(x, 1)),
    "the first and the last": ((5, 3, 33), lambda x: neighbors(x, 0, 2)),
    "all of three": ((5, 6, 33), lambda x: neighbors(x, 0, 1, 2)),
    "with axes of one element": ((1, 6, 1, 33), lambda x: neighbors(x, 1, 3)),
    "along an axis of one element": ((1, 33), lambda x: neighbors(x, 0)),
    "transposed": ((70, 9), lambda x: neighbors(x.T, 0, 1)),
    "transposed, and not": ((40, 40), lambda x: neighbors(x.T, 0, 1) + x),
    "backwards": ((70,), lambda x: neighbors(x[::-1], 0)),
    "every other": ((7, 90), lambda x: neighbors(x[:, ::2], 1)),
    "several taps": ((9, 70), lambda x: (taps(x, 0), taps(x, 1))),
    "a row for all": ((9, 33), lambda x: neighbors(weft.broadcast(x[0], x.axes), 0)),
    "padding as it is": ((9, 30), lambda x: weft.pad(x, ((1, 0), (0, 5)), value=3) * 2),
    "nothing but padding": ((9, 30), lambda x: weft.pad(x, ((4, 0), (0, 0)))[:2] * 2 + x[:2]),
    "rolled rows": ((9, 70), lambda x: x + weft.roll(x, 2, 0) + weft.roll(x, -1, 0)),
    "rolled columns": ((9, 70), lambda x: x + weft.roll(x, 3, 1) - weft.roll(x, -2, 1)),
    "rolled both ways": ((20, 70), lambda x: x + weft.roll(weft.roll(x, 3, 1), 1, 0)),
    "a frame of two paddings": (
        (9, 70), lambda x: weft.pad(weft.pad(x, ((1, 0), (0, 2))), ((0, 1), (1, 1))) + 1
    ),
    "paddings with other constants": (
        (9, 70), lambda x: weft.pad(weft.pad(x, ((1, 1), (0, 0)), value=2), ((0, 0), (1, 1))) + 1
    ),
    "paddings with zeros of both signs": (
        (9, 70),
        lambda x: 1 / -weft.pad(weft.pad(x, ((1, 1), (0, 0))), ((0, 0), (1, 1)), value=-0.0),
    ),
    "a border that wraps around": (
        (9, 70), lambda x: weft.pad(x, ((1, 1), (1, 1)), mode="wrap")[2:, 1:-1] - x
    ),
    "two halves put together again": (
        (8, 40), lambda x: weft.concat([x[:3], x[3:]], 0) + x
    ),
    "three rows of parts": (
        (8, 40), lambda x: weft.concat([x[:3] * 2, x[6:], weft.cumsum(x, 1)[:3]], 0) - x
    ),
    "a border of its own": ((9, 70), lambda x: weft.pad(x, ((0, 0), (2, 3)), mode="edge") + 1),
    "a slice of parts": ((9, 70), lambda x: weft.concat([x, x[:, :5]], 1)[:, 2:72] + x),
    "parts that are computed": ((9, 70), lambda x: neighbors(weft.cumsum(x, 0), 0, 1)),
}  # fmt: skip


OTHER_CONSTANTS = {"paddings with other constants", "paddings with zeros of both signs"}
"""The programs whose inner padding is in memory."""


@with_vectors
@pytest.mark.parametrize("name", PIECEWISE)
def test_piecewise(name: str, processor: Processor):
    shape, build = PIECEWISE[name]
    check(build, numbers("float32", *shape), processor=processor, passes=FUSING)


@with_vectors
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint32", "float16", "float64"])
def test_dtypes(dtype: str, processor: Processor):
    def build(x: Any) -> Any:
        above, left = weft.pad(x, ((1, 0), (0, 0)))[:-1], weft.roll(x, 1, 1)
        return weft.where(weft.equal(above, left), x, left)

    check(build, numbers(dtype, 9, 70), processor=processor, passes=FUSING)


@with_vectors
def test_numbers_that_are_not_finite_stay_where_they_are(processor: Processor):
    check(lambda x: neighbors(x, 0, 1), awkward("float32", 9, 70),
        processor=processor, passes=FUSING)  # fmt: skip


def kernels_of(build: Build, *shape: int) -> list[Any]:
    x = weft.placeholder(shape)
    plan = plan_of([build(x)], x, processor=SERIAL, passes=FUSING)
    return [step.op.kernel if isinstance(step.op, FusedOp) else step.op for step in plan.steps]


@pytest.mark.parametrize("name", [n for n in PIECEWISE if n not in OTHER_CONSTANTS])
def test_nothing_is_padded_or_concatenated_in_memory(name: str):
    shape, build = PIECEWISE[name]
    x = weft.placeholder(shape)
    results = build(x)
    results = list(results) if isinstance(results, tuple) else [results]
    steps = plan_of(results, x, processor=SERIAL, passes=FUSING).steps
    kinds = {type(step.op).__name__ for step in steps}
    assert kinds.isdisjoint({"PadOp", "ConcatOp"}), kinds


def test_a_stencil_is_one_kernel_that_reads_its_operand_where_it_is():
    (kernel,) = kernels_of(lambda x: neighbors(x, 0, 1), 40, 70)
    read = [each for each in kernel.body if isinstance(each.op, PiecewiseOp)]
    assert len(read) == 4
    ((number,),) = {each.args for each in read}
    assert kernel.operands[number].places == (None, None)
    assert not kernel.may_overwrite(0, number)


def test_vectors_are_loaded_in_the_interior():
    x = weft.placeholder((40, 70))
    plan = plan_of([neighbors(x, 0, 1)], x, processor=SERIAL, passes=FUSING)
    _, source = work_of(plan, SERIAL)
    assert "i0 >= 1 && i0 + 16 <= 69" in str(source)


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_paddings_slices_and_concatenations(data: Any):
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    order = data.draw(st.permutations(range(len(shape))))
    widths = data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5)))
    shift, start = data.draw(st.integers(-9, 9)), data.draw(st.integers(0, sum(widths)))

    def build(x: Any) -> Any:
        x = weft.transpose(x, tuple(order))
        at = [slice(None)] * x.rank
        at[axis] = slice(start, start + x.shape[axis])
        padded = weft.pad(x, [widths if n == axis else (0, 0) for n in range(x.rank)], value=2)
        return x * 2 + padded[tuple(at)] - weft.roll(x, shift, axis), padded + 1

    for processor in ("serial", "parallel", "vectors"):
        check(build, numbers("int32", *shape), processor=processor, passes=FUSING)


@pytest.mark.needs("compiler")
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_on_native(dtype: str):
    arrays = {name: numbers(dtype, *shape) for name, (shape, _) in PIECEWISE.items()}
    given = [weft.placeholder(array.shape, dtype) for array in arrays.values()]
    results = []
    for x, (_, build) in zip(given, PIECEWISE.values(), strict=True):
        found = build(x)
        results += found if isinstance(found, tuple) else [found]
    found, wanted = (
        weft.make_transformer(backend).computation(results, *given)(*arrays.values())
        for backend in ("native", "numpy")
    )
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
