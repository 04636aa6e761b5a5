"""Results: however many there are, each is the caller's own, in the structure asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.results import ResultOp
from weft.runtime.call_path import FEW

X = np.arange(6, dtype=np.float32).reshape(2, 3)
LARGE = (512, 256)


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 3 * FEW])
@pytest.mark.parametrize("form", [list, tuple, lambda ops: dict(enumerate(ops))])
def test_results_come_as_asked_for_and_are_the_callers_own(count: int, form: Any) -> None:
    x = weft.placeholder((2, 3))
    wanted = form([x + number for number in range(count)])
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation(wanted, x)
        first = computation(X)
        kept = [array.copy() for array in _values(first)]
        second = computation(X + 1)
    assert type(first) is (dict if isinstance(wanted, dict) else tuple)
    for number, (before, now, later) in enumerate(
        zip(kept, _values(first), _values(second), strict=True)
    ):
        np.testing.assert_array_equal(now, before)
        np.testing.assert_array_equal(now, X + number)
        np.testing.assert_array_equal(later, X + number + 1)


def _values(found: Any) -> list[Any]:
    return list(found.values() if isinstance(found, dict) else found)


def test_what_yields_no_tensor_is_none_among_many_results() -> None:
    x, state = weft.placeholder((2, 3)), weft.variable((2, 3), initial_value=X)
    results = [x, weft.doall([weft.assign(state, x + 1)]), *(x * n for n in range(FEW))]
    with weft.make_transformer("numpy") as transformer:
        found = transformer.computation(results, x)(X)
        np.testing.assert_array_equal(transformer.get_value(state), X + 1)
    assert [each is None for each in found[:3]] == [False, True, False]
    np.testing.assert_array_equal(found[-1], X * (FEW - 1))


def test_many_large_results_are_not_written_while_they_are_held() -> None:
    x = weft.placeholder(LARGE)
    with weft.make_transformer("numpy") as transformer:
        computation = transformer.computation([x + n for n in range(FEW + 1)], x)
        held = [computation(np.full(LARGE, turn, np.float32)) for turn in range(4)]
    for turn, arrays in enumerate(held):
        assert [array[0, 0] for array in arrays] == [turn + n for n in range(FEW + 1)]


def test_the_ops_of_several_results_differ_in_all_but_their_maker() -> None:
    x = weft.placeholder((2, 3))
    graph = weft.capture([x + 1, weft.sum(x), x[0]], [x])
    with weft.metadata(owner="me"), weft.Op.all_ops() as seen:
        results = weft.call(graph, x)
    ops = [op for op in seen if isinstance(op, ResultOp)]
    assert ops == list(results)
    assert [op.index for op in ops] == [0, 1, 2]
    assert [op.axes.lengths for op in ops] == [(2, 3), (), (3,)]
    assert len({op.serial for op in ops}) == len({op.order for op in ops}) == 3
    assert len({op.location for op in ops}) == 1
    assert len({op.name for op in ops}) == 3
    ops[1].metadata["owner"] = "you"
    assert [op.metadata["owner"] for op in ops] == ["me", "you", "me"]
