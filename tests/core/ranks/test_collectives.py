"""Collectives in graphs: their order and number, gradients, states, and failures.

The ranks here are imitated: three that all have what the only one has; `tests/communicators` has
real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.communicators import Collective, Request
from weft.errors import ArgumentError, CheckFailed, CommunicationError, IndexOutOfRange
from weft.ranks.collectives import started, waited
from weft.testing.imitation import ImitatedRanks, imitated_ranks

X = np.arange(12, dtype=np.float32).reshape(6, 2)


class Alike(ImitatedRanks):
    """Rank 1 of imitated ranks.

    Attributes
    ----------
    ran
        What was started in calls.
    left
        After how many collectives the others are gone.
    """

    rank = 1

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ran: list[str] = []
        self.left = 1000

    def start(self, collective: Collective, x: Any, out: Any) -> Request:
        if "Op in File" in collective.label:  # of a call, not of the compilation
            self.left -= 1
            if self.left < 0:
                raise CommunicationError("the others are gone")
            self.ran.append(collective.kind)
        return super().start(collective, x, out)


@pytest.fixture
def ranks() -> Iterator[Alike]:
    with imitated_ranks(3, kind=Alike) as found:
        assert isinstance(found, Alike)
        yield found


@pytest.fixture(params=["numpy", "native", "opencl", "array"])
def transformer(
    request: pytest.FixtureRequest, transformer_of: Callable[[str], weft.Transformer]
) -> weft.Transformer:
    return transformer_of(request.param)


def test_all_run_in_the_order_of_building_whoever_uses_them(
    ranks: Alike, transformer: weft.Transformer
) -> None:
    x = weft.placeholder((6, 2))
    gathered = weft.all_gather(x)
    total = weft.all_reduce(x)
    same = weft.all_reduce(x)  # equal ops are merged, equal collectives are not
    part = weft.reduce_scatter(weft.sin(total))
    results = [part, weft.send_receive(total + same), weft.sum(gathered)]
    found = transformer.computation(results, x)(X)
    assert ranks.ran == ["all_gather", "all_reduce", "all_reduce", "reduce_scatter", "shift"]
    np.testing.assert_allclose(found[0], np.sin(3 * X)[2:4] * 3, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], 6 * X)


def test_what_is_started_runs_before_what_is_built_after(
    ranks: Alike, transformer: weft.Transformer
) -> None:
    x = weft.placeholder((6, 2))
    _, one = weft.all_reduce_later(x)
    _, other = weft.all_reduce_later(one * 2)
    np.testing.assert_array_equal(transformer.computation(other + one, x)(X), 21 * X)


@pytest.mark.parametrize("control", ["call", "loop", "cond"])
def test_graphs_that_are_run_hold_collectives(
    control: str, ranks: Alike, transformer: weft.Transformer
) -> None:
    inner = weft.placeholder((6, 2))
    body = weft.capture([weft.all_reduce(weft.tanh(inner), "mean") + 1], [inner])
    other = weft.capture([weft.all_reduce(inner, "max")], [inner])
    x = weft.placeholder((6, 2))
    match control:
        case "call":
            (result,) = weft.call(body, x)
            expected, runs = np.tanh(X) + 1, 1
        case "loop":
            (result,) = weft.loop(body, 2, x)
            expected, runs = np.tanh(np.tanh(X) + 1) + 1, 2
        case _:
            (result,) = weft.cond(weft.greater(weft.sum(x), 0), body, other, [x], [x])
            expected, runs = np.tanh(X) + 1, 1
    found = transformer.computation(result, x)(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert ranks.ran == ["all_reduce"] * runs


DEPENDENTS = {
    # What each rank makes of the same x and the same adjoint: in the sum of all ranks' y, a
    # collective that spreads x over three ranks counts three times.
    "all_reduce": (lambda x: weft.all_reduce(x), 3),
    "mean": (lambda x: weft.all_reduce(x, "mean"), 1),
    "max": (lambda x: weft.all_reduce(x, "max"), 1),
    "all_gather": (lambda x: weft.all_gather(x), 3),
    "reduce_scatter": (lambda x: weft.reduce_scatter(x), 1),
    "send_receive": (lambda x: weft.send_receive(x, 2), 1),
    "later": (lambda x: weft.all_reduce_later(x)[1], 3),
    "gathered_later": (lambda x: waited(started("all_gather", x)), 3),
    "scattered_later": (lambda x: waited(started("reduce_scatter", x)), 1),
    "broadcast_from": (lambda x: weft.broadcast_from(x, 1), 3),
    "broadcast_from_another": (lambda x: weft.broadcast_from(x, 0), 0),
}


@pytest.mark.parametrize("name", DEPENDENTS)
def test_the_gradient_is_that_of_the_sum_over_all_ranks(name: str, ranks: Alike) -> None:
    build, times = DEPENDENTS[name]
    x = weft.placeholder((6, 2))
    gradient = weft.deriv(weft.sum(build(x)), x)
    found = weft.make_transformer("numpy").computation(gradient, x)(X)
    np.testing.assert_allclose(found, np.full_like(X, times), rtol=1e-6)


def test_the_gradient_of_a_call_exchanges_adjoints(ranks: Alike) -> None:
    inner = weft.placeholder((6, 2))
    body = weft.capture([weft.all_reduce(inner * inner)], [inner])
    x = weft.placeholder((6, 2))
    (y,) = weft.call(body, x)
    gradient = weft.make_transformer("numpy").computation(weft.deriv(weft.sum(y), x), x)
    np.testing.assert_allclose(gradient(X), 6 * X)


def test_a_failure_leaves_states_as_they_were(ranks: Alike, transformer: weft.Transformer) -> None:
    x = weft.placeholder((6, 2))
    w, v = (weft.variable((6, 2), initial_value=np.ones((6, 2))) for _ in range(2))
    first = weft.assign(w, weft.all_reduce(w * x))
    second = weft.assign(v, weft.all_reduce(v + x))
    step = transformer.computation([first, second, w, v], x)
    step(X)
    before = transformer.get_value(w).copy(), transformer.get_value(v).copy()
    np.testing.assert_array_equal(before[0], 3 * X)
    ranks.left = 1
    with pytest.raises(CommunicationError, match="the others are gone"):
        step(X)
    np.testing.assert_array_equal(transformer.get_value(w), before[0])
    np.testing.assert_array_equal(transformer.get_value(v), before[1])
    ranks.left = 1000
    step(X)
    np.testing.assert_array_equal(transformer.get_value(v), 3 * (before[1] + X))


def test_an_error_after_a_collective_does_not_run_it_again(
    ranks: Alike, transformer: weft.Transformer
) -> None:
    x, places = weft.placeholder((6, 2)), weft.placeholder((2,), "int64")
    y = weft.take(weft.all_reduce(x), places, axis=0)
    compute = transformer.computation(y, x, places)
    compute(X, [0, 1])
    with pytest.raises(IndexOutOfRange, match="7"):
        compute(X, [0, 7])
    assert ranks.ran == ["all_reduce"] * 2


def test_a_length_may_be_unknown_until_the_call(ranks: Alike) -> None:
    n = weft.symbol("n")
    x = weft.placeholder((n, 2))
    results = [weft.all_gather(x), weft.reduce_scatter(x)]
    compute = weft.make_transformer("numpy").computation(results, x)
    assert [each.shape for each in compute(X)] == [(18, 2), (2, 2)]
    with pytest.raises(weft.errors.AxesError, match="4 rows cannot be shared among 3 ranks"):
        compute(X[:4])


def test_it_prints_and_parses_back(ranks: Alike) -> None:
    x = weft.placeholder((6, 2))
    text = weft.capture([weft.send_receive(weft.all_reduce(x), 2)], [x]).text(full=True)
    assert weft.parse(text).text(full=True) == text


def network(depth: int = 4) -> tuple[Any, Any, list[Any]]:
    """Return an input, a loss, and the variables."""
    x = weft.placeholder((6, 8))
    weights = [
        weft.variable((8, 8), initial_value=np.eye(8) + number / 9) for number in range(depth)
    ]
    hidden = x
    for weight in weights:
        hidden = weft.tanh(hidden @ weight)
    return x, weft.mean(weft.square(hidden)), weights


BUCKETS = {1: 3 + 8, 100: 3 + 3, 128: 3 + 2, 256: 4, 512: 2, 600: 2, 10**9: 1}
"""The buckets of four gradients of 256 bytes, by their limit; the last is divided by its 8 rows."""


@pytest.mark.parametrize("limit", BUCKETS)
def test_gradients_are_averaged_in_buckets(
    limit: int, ranks: Alike, transformer: weft.Transformer
) -> None:
    x, loss, weights = network()
    means, variables = weft.data_parallel(loss, bucket_bytes=limit)
    assert variables == weights
    plain = [weft.deriv(loss, weight) for weight in weights]
    found = transformer.computation([*means, *plain], x)(np.ones((6, 8), "float32"))
    assert ranks.ran == ["all_reduce"] * BUCKETS[limit]
    for mean, gradient in zip(found[:4], found[4:], strict=True):
        np.testing.assert_allclose(mean, gradient, rtol=1e-5)


@pytest.mark.parametrize(
    ("view", "copies"),
    [
        (lambda x: x, 0),
        (lambda x: weft.reshape(x, (2, 6)), 0),
        (lambda x: weft.transpose(x, (1, 0)), 1),
        (lambda x: weft.broadcast(x[0], (6, 2)), 1),
        (lambda x: x[:, :1], 1),
    ],
)
def test_the_plan_copies_what_is_not_contiguous(view: Any, copies: int, ranks: Alike) -> None:
    x = weft.placeholder(X.shape)
    y = view(weft.tanh(x))
    transformer = weft.make_transformer("numpy", cache=False)
    computation = transformer.computation([weft.all_reduce(y), weft.sum(y)], x)
    total, of_one = computation(X)
    np.testing.assert_allclose(total.sum(), 3 * of_one, rtol=1e-5)
    kinds = [type(each.op).__name__ for each in computation.plan.steps]
    assert kinds[: kinds.index("AllReduceOp")].count("ContiguousOp") == copies
    for step in computation.plan.steps:
        assert not step.op.takes_contiguous or all(each.is_contiguous for each in step.args)


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_the_exchange_overlaps_with_the_backward_pass(backend: str, ranks: Alike) -> None:
    x, loss, _ = network()
    step = weft.adam(*weft.data_parallel(loss, bucket_bytes=256), learning_rate=0.1)
    transformer = weft.make_transformer(backend, cache=False)
    computation = transformer.computation([loss, step], x)
    computation(np.ones((6, 8), "float32"))
    kinds = [type(each.op).__name__ for each in computation.plan.steps]
    places = {kind: [n for n, each in enumerate(kinds) if each == kind] for kind in kinds}
    starts, waits = places["StartCollectiveOp"], places["WaitCollectiveOp"]
    products = places["MatmulOp"]
    # Of four buckets only the last starts after all gradients; nothing but writes of states
    # follows the first wait, and each start follows a gradient at once.
    assert [start < products[-1] for start in starts] == [True, True, True, False]
    assert [kinds[start - 1] for start in starts] == ["MatmulOp"] * 4
    assert waits == list(range(waits[0], waits[0] + 4))
    assert waits[0] > products[-1]


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_the_last_gradient_is_exchanged_while_it_is_computed(backend: str, ranks: Alike) -> None:
    x, loss, _ = network(2)
    means, _ = weft.data_parallel(loss, bucket_bytes=96)
    computation = weft.make_transformer(backend, cache=False).computation(means, x)
    computation(np.ones((6, 8), "float32"))
    steps = computation.plan.steps
    places = [n for n, step in enumerate(steps) if isinstance(step.op, weft.StartCollectiveOp)]
    parts = [steps[place - 1].op for place in places]
    assert [type(part) for part in parts] == [weft.MatmulOp] * 4
    assert [part.axes.lengths for part in parts] == [(8, 8), (3, 8), (3, 8), (2, 8)]
    assert places[-1] - places[1] == 4
    assert len({part.file_info for part in parts}) == 1, "that of the layers"


def test_a_gradient_that_two_variables_share_and_other_dtypes(ranks: Alike) -> None:
    one, other = (weft.variable((3,), initial_value=np.ones(3)) for _ in range(2))
    wide = weft.variable((2,), "float64", initial_value=np.ones(2))
    loss = weft.sum(weft.square(one)) + weft.sum(one)
    shared = weft.deriv(loss, one)
    means, variables = weft.data_parallel([shared, shared, wide * 2], [one, other, wide])
    assert variables == [one, other, wide]
    found = weft.make_transformer("numpy").computation(means)()
    assert ranks.ran == ["all_reduce"] * 2
    np.testing.assert_array_equal(found[0], found[1])
    assert [each.dtype for each in found] == ["float32", "float32", "float64"]


def test_two_exchanges_of_a_gradient_keep_their_lines(ranks: Alike) -> None:
    x, loss, _ = network(2)
    whole, _ = weft.data_parallel(loss)
    shards, _ = weft.data_parallel(loss, sharded=True)
    ops = weft.capture([*whole, *shards], [x]).ops
    starts = {op.file_info for op in ops if isinstance(op, weft.StartCollectiveOp)}
    assert len(starts) == 2
    # The cache stores the line of an op as its place in program order.
    line_at = {op.order: op.file_info for op in ops}
    assert [line_at[op.order] for op in ops] == [op.file_info for op in ops]


def test_a_graph_for_another_number_of_ranks_is_refused(transformer: weft.Transformer) -> None:
    x = weft.placeholder(X.shape)
    with imitated_ranks(3) as ranks:
        total = weft.AllReduceOp(x, communicator=ranks.name, ranks=2, reduction="sum")
        message = r"AllReduceOp.* was built for 2 ranks, but 'imitated.*' has 3(?s:.*)test_collec"
        with pytest.raises(CommunicationError, match=message):
            transformer.computation(total, x)(X)


@pytest.mark.parametrize("sharded", [False, True])
def test_one_rank_exchanges_nothing(sharded: bool) -> None:
    _, loss, weights = network()
    gradients, variables = weft.data_parallel(loss, sharded=sharded)
    assert variables == weights
    assert gradients == [weft.deriv(loss, weight) for weight in weights]


@pytest.mark.parametrize(("root", "ranks_there"), [(1, 1), (-1, 1), (3, 3), (-1, 3)])
def test_a_rank_that_is_not_there_is_refused(root: int, ranks_there: int) -> None:
    x = weft.placeholder((4,))
    with (
        imitated_ranks(ranks_there),
        pytest.raises(ArgumentError, match=f"there is no rank {root} among {ranks_there}"),
    ):
        weft.broadcast_from(x, root)


@pytest.mark.parametrize("number", [0.5, True, "1"])
@pytest.mark.parametrize("function", [weft.broadcast_from, weft.send_receive])
def test_a_rank_is_a_whole_number(function: Callable[..., Any], number: Any) -> None:
    with pytest.raises(ArgumentError, match=f"must be a whole number, not {number!r}"):
        function(weft.placeholder((4,)), number)


def test_nan_is_not_searched_for_where_other_ranks_would_have_to_join(
    ranks: Alike, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_CHECK_FINITE", "1")
    x = weft.placeholder((6, 2), name="x")
    body = weft.capture([weft.all_reduce(weft.sqrt(x))], [x], "body")
    with weft.make_transformer("numpy") as made:
        compute = made.computation(weft.call(body, x)[0], x)
        with pytest.raises(ArgumentError, match="search with one rank"):
            compute.find_nonfinite(X)
        assert np.isfinite(compute(X)).all()
        ran = len(ranks.ran)
        with pytest.raises(CheckFailed, match="search with one rank"):
            compute(-X)
        assert len(ranks.ran) == ran + 1
