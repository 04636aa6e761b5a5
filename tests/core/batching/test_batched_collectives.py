"""Collectives of batched tensors, by imitated ranks that all have the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.batching import batched
from weft.communicators import Collective, Request
from weft.errors import BatchingError
from weft.testing.imitation import ImitatedRanks, imitated_ranks

ROWS = np.random.default_rng(0).uniform(-2, 2, (4, 6, 2)).astype("float32")


class Noted(ImitatedRanks):
    """Rank 1 of imitated ranks, which notes what was started in calls."""

    rank = 1

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ran: list[str] = []

    def start(self, collective: Collective, x: Any, out: Any) -> Request:
        if "Op in File" in collective.label:  # of a call, not of the compilation
            self.ran.append(collective.kind)
        return super().start(collective, x, out)


@pytest.fixture
def ranks() -> Iterator[Noted]:
    with imitated_ranks(3, kind=Noted) as found:
        assert isinstance(found, Noted)
        yield found


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "all_reduce": weft.all_reduce,
    "maximum": lambda x: weft.all_reduce(x, "max"),
    "all_gather": weft.all_gather,
    "reduce_scatter": weft.reduce_scatter,
    "broadcast_from": weft.broadcast_from,
    "all_to_all": weft.all_to_all,
    "send_receive": weft.send_receive,
    "rank": lambda x: x * weft.cast(weft.rank_index(), x.dtype),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("is_called", [False, True])
def test_the_examples_of_a_batch_are_exchanged_at_once(
    ranks: Noted, transformer_of: Callable[[str], Any], name: str, is_called: bool
) -> None:
    x, rows = weft.placeholder((6, 2)), weft.placeholder((4, 6, 2))
    value = FUNCTIONS[name](x)
    if is_called:
        inner = weft.placeholder((6, 2))
        graph = weft.capture([FUNCTIONS[name](inner)], [inner])
        (value,) = weft.call(graph, x)
    results = [value, weft.deriv(weft.sum(weft.square(value)), x)]
    found = batched(results, {x: rows}, 4)
    transformer = transformer_of("numpy")
    single = transformer.computation(results, x)
    whole = transformer.computation([each.op for each in found], rows)
    loop = [single(row) for row in ROWS]
    count = len(ranks.ran) // 4
    got = whole(ROWS)
    assert len(ranks.ran) == 5 * count
    for place, array in enumerate(got):
        np.testing.assert_allclose(array, [each[place] for each in loop], rtol=1e-5)


def test_collectives_of_a_called_graph_keep_their_order(
    ranks: Noted, transformer_of: Callable[[str], Any]
) -> None:
    a = weft.placeholder((6, 2))
    parts = [weft.all_gather(a), weft.all_to_all(a), weft.all_reduce(a), weft.reduce_scatter(a)]
    graph = weft.capture([weft.sum(part) for part in reversed(parts)], [a])
    x, rows = weft.placeholder((6, 2)), weft.placeholder((4, 6, 2))
    found = batched(weft.call(graph, x), {x: rows}, 4)
    transformer_of("numpy").computation([each.op for each in found], rows)(ROWS)
    assert ranks.ran == ["all_gather", "all_to_all", "all_reduce", "reduce_scatter"]


def test_examples_cannot_decide_whether_ranks_exchange(ranks: Noted) -> None:
    a, x, wanted = weft.placeholder((6, 2)), weft.placeholder((6, 2)), weft.placeholder((), "bool")
    exchanged = weft.capture([weft.all_reduce(a)], [a])
    kept = weft.capture([a * 1], [a])
    (value,) = weft.cond(wanted, exchanged, kept, [x], [x])
    with pytest.raises(BatchingError, match="exchanges tensors with other ranks"):
        batched([value], {wanted: weft.placeholder((4,), "bool")}, 4)
