"""Every row of the op table on a batch: what a loop over examples gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from loops_over_examples import is_assigned, on_a_batch, require_what_a_loop_gives

import weft
from weft.errors import StateError
from weft.ir.axes import make_axes
from weft.testing.cases import Case, make_case, seeded
from weft.testing.reference import evaluate
from weft.testing.samples import sample
from weft.testing.table import TABLE
from weft.testing.table.rows import Row

COUNT = 3
ROWS = [pytest.param(row, id=row.name) for row in TABLE if row.operands]


def choices(count: int) -> list[tuple[int, ...]]:
    """Return which operands are batched: each by itself, then all."""
    return [*((number,) for number in range(count)), *([tuple(range(count))] if count > 1 else [])]


def examples_of(row: Row, case: Case, chosen: tuple[int, ...], count: int) -> list[list[Any]]:
    """Return arrays of a case for each example, which differ in the chosen operands."""
    random = seeded(case.label, str(chosen))
    return [
        [
            sample(operand.domain, x.axes.shape, x.dtype, random, number)
            if number in chosen
            else array
            for number, (operand, x, array) in enumerate(
                zip(row.operands, case.placeholders, case.arrays, strict=True)
            )
        ]
        for _ in range(count)
    ]


def cases_of(row: Row) -> Iterator[tuple[Case, tuple[int, ...]]]:
    """Yield the cases of a row for each shape, with each choice of batched operands."""
    for shapes in row.shapes:
        if all(make_axes(axes).is_static for axes in shapes):
            case = make_case(row, shapes, row.dtypes[0])
            for chosen in choices(len(case.placeholders)):
                yield case, chosen


def require_batched(row: Row, case: Case, chosen: tuple[int, ...], count: int, size: Any) -> Any:
    """Compare a case on a batch with a loop; an assignment of a batched value is an error."""
    examples = examples_of(row, case, chosen, count)
    if is_assigned(case.results, [case.placeholders[number] for number in chosen]):
        with pytest.raises(StateError, match="the value is batched, and a state has no batch axis"):
            on_a_batch(case.results, case.placeholders, examples, chosen, size)
        return None
    return require_what_a_loop_gives(case.results, case.placeholders, examples, chosen, size)


@pytest.mark.share(20)
@pytest.mark.parametrize("row", ROWS)
def test_a_row_on_a_batch_gives_what_a_loop_gives(row: Row):
    """Values, and gradients that were built before; batched ones are differentiated, too."""
    for case, chosen in cases_of(row):
        batch = require_batched(row, case, chosen, COUNT, None)
        if batch is not None and case.gradients and batch.results[0].is_batched:
            require_gradients(case, chosen, batch)


def require_gradients(case: Case, chosen: tuple[int, ...], batch: Any) -> None:
    """Compare gradients of the batched value with batched gradients, or with their sum."""
    value = batch.results[0].op
    weights = np.broadcast_to(case.weights.const, value.axes.shape)
    error = weft.constant(weights, value.axes)
    derived = [weft.deriv(value, batch.placeholders[n], error=error) for n in case.gradients]
    made = [op for op, _ in batch.results[1:]]
    graph = weft.capture([*derived, *made], batch.placeholders)
    values, _ = evaluate(graph, batch.arrays, wide=True)
    gradients = zip(case.gradients, batch.results[1:], values[len(made) :], strict=True)
    for got, (number, (_, is_batched), each) in zip(values, gradients, strict=False):
        several = each if is_batched else np.broadcast_to(each, (COUNT, *each.shape))
        want = several if number in chosen else several.sum(axis=0)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8, err_msg=case.label)


@pytest.mark.share(200)
@pytest.mark.parametrize("count", [0, 1, None])
@pytest.mark.parametrize("row", ROWS)
def test_a_row_on_batches_of_other_lengths(row: Row, count: int | None):
    """Batches of no example and of one, and of an unknown number."""
    size = weft.symbol("n") if count is None else None
    for case, chosen in cases_of(row):
        require_batched(row, case, chosen, COUNT if count is None else count, size)
