"""Imitated ranks: what they compute, how long they take, and that a backward pass hides it."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.communicators import Collective, connected
from weft.communicators.interface import result_shape
from weft.errors import UnknownPluginError
from weft.ir import dtypes
from weft.ops.control.effects import EffectOp
from weft.testing import imitation
from weft.testing.imitation import Network, imitated_ranks, ring, seconds

X = np.arange(24).reshape(12, 2) % 5
REDUCTIONS = {"sum": sum, "max": lambda rows: rows[0], "min": lambda rows: rows[0]}
COLLECTIVES = {
    **{
        f"{kind} {reduction}": Collective(kind, reduction)
        for kind in ("all_reduce", "reduce_scatter")
        for reduction in REDUCTIONS
    },
    "all_gather": Collective("all_gather"),
    "broadcast": Collective("broadcast"),
    "all_to_all": Collective("all_to_all"),
    "shift": Collective("shift", offset=-1),
    "shift to the end": Collective("shift", offset=1, wraps=False),
    "shift from the end": Collective("shift", offset=-1, wraps=False),
}


def what_each_gets(collective: Collective, rows: list[Any], rank: int) -> Any:
    """Return what a rank gets for the arrays of all."""
    size = len(rows)
    match collective.kind:
        case "all_reduce":
            return REDUCTIONS[collective.reduction](rows)
        case "reduce_scatter":
            return np.split(REDUCTIONS[collective.reduction](rows), size)[rank]
        case "all_gather":
            return np.concatenate(rows)
        case "all_to_all":
            return np.concatenate([np.split(row, size)[rank] for row in rows])
        case "broadcast":
            return rows[collective.root]
    source = collective.source(rank, size)
    return rows[0] * 0 if source is None else rows[source]


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize(("rank", "size"), [(1, 3), (3, 4), (0, 1)])
def test_a_rank_gets_what_ranks_with_its_array_give(
    name: str, dtype: str, rank: int, size: int
) -> None:
    collective = COLLECTIVES[name]
    x = X.astype(getattr(dtypes, dtype))
    with imitated_ranks(size) as ranks:
        ranks.rank = rank
        found = ranks.run(collective, x)
    wanted = what_each_gets(collective, [x] * size, rank)
    assert found.dtype == x.dtype
    assert found.shape == result_shape(collective, x.shape, size)
    np.testing.assert_array_equal(found, wanted)


def test_flags_have_extrema() -> None:
    flags = np.array([True, False])
    with imitated_ranks() as ranks:
        found = ranks.run(Collective("all_reduce", "max"), flags)
        part = ranks.run(Collective("reduce_scatter", "min"), np.repeat(flags, 2))
    assert found.tolist() == [True, False]
    assert part.tolist() == [True]


NETWORK = st.builds(
    Network,
    st.just("any"),
    latency=st.floats(0, 1e-3),
    bandwidth=st.floats(1e6, 1e12),
    sums=st.floats(1e8, 1e12) | st.just(math.inf),
)


@given(st.integers(2, 1024), st.integers(1, 10**9), NETWORK)
def test_a_ring_is_a_reduce_scatter_and_a_gathering_of_its_parts(
    ranks: int, nbytes: int, network: Network
) -> None:
    reduced = seconds(Collective("all_reduce"), ranks, nbytes, network)
    scattered = seconds(Collective("reduce_scatter"), ranks, nbytes, network)
    gathered = seconds(Collective("all_gather"), ranks, nbytes / ranks, network)
    assert reduced == ring(ranks, nbytes, network) == pytest.approx(scattered + gathered)
    assert seconds(Collective("all_to_all"), ranks, nbytes, network) == pytest.approx(gathered)


@given(st.sampled_from(list(COLLECTIVES.values())), st.integers(2, 1024), NETWORK)
def test_no_collective_is_shorter_than_a_message(
    collective: Collective, ranks: int, network: Network
) -> None:
    part = network.message(1000 / ranks)
    assert part <= seconds(collective, ranks, 1000, network)
    assert seconds(collective, ranks, 1000, imitation.NO_WAIT) == 0


class StoppedClock:
    """A clock that stands still, and notes how long threads would sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def perf_counter(self) -> float:
        return 100.0

    def sleep(self, duration: float) -> None:
        self.slept.append(duration)


def test_collectives_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = StoppedClock()
    monkeypatch.setattr(imitation, "time", clock)
    network = Network("slow", 1.0, 8.0)
    x = np.zeros(4, np.float32)
    with imitated_ranks(2, network) as ranks:
        for _ in range(2):
            ranks.run(Collective("all_reduce"), x)  # two messages of a second and 8 bytes
        ranks.network = imitation.NO_WAIT
        ranks.run(Collective("all_reduce"), x)
    assert clock.slept == [4.0, 8.0, 8.0]
    assert (ranks.imposed, ranks.waited) == (8.0, 0.0)


def test_each_context_has_ranks_of_its_own() -> None:
    with imitated_ranks(2) as two:
        with imitated_ranks(3) as three:
            assert connected() is three
            assert weft.all_gather(weft.placeholder((4,))).axes.lengths == (12,)
        assert connected() is two
        with pytest.raises(UnknownPluginError, match=three.name):
            connected(three.name)


class SlowBackwardOp(EffectOp):
    """The operand, whose adjoint takes some time.

    Attributes
    ----------
    duration
        The seconds for which a value sleeps.
    backward
        Those of its adjoint.
    """

    duration: float
    backward: float

    def perform(self, *values: Any) -> None:
        time.sleep(self.duration)

    def generate_adjoints(self, delta: Any, x: Any) -> tuple[Any]:
        return (SlowBackwardOp(delta, duration=self.backward, backward=0.0),)


LAYERS = 5


def training(backward: float, **options: Any) -> tuple[Any, Any, list[Any]]:
    """Return the results of a step, the placeholder, and the variables."""
    x = h = weft.placeholder((4, 8))
    weights = [weft.variable((8, 8), initial_value=np.eye(8) + n / 9) for n in range(LAYERS)]
    for weight in weights:
        h = SlowBackwardOp(weft.tanh(h @ weight), duration=0.0, backward=backward)
    loss = weft.mean(weft.square(h))
    update = weft.sgd(*weft.data_parallel(loss, **options), learning_rate=0.1)
    return [loss, update], x, weights


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_training_is_that_of_one_rank(backend: str) -> None:
    data = np.random.default_rng(0).normal(size=(4, 8)).astype("f4")
    found = []
    for size in (1, 4):
        with imitated_ranks(size), weft.make_transformer(backend) as transformer:
            results, x, weights = training(0.0, bucket_bytes=256)
            step = transformer.computation(results, x)
            losses = [float(step(data)[0]) for _ in range(3)]
            found.append((losses, [transformer.get_value(weight) for weight in weights]))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_a_backward_pass_hides_the_reductions(backend: str) -> None:
    """Layers sleep, as the network does, so that other programs disturb neither."""
    a_layer, data = 0.1, np.ones((4, 8), "f4")
    hidden = {}
    for what, bucket_bytes in {"buckets": 256, "one": 2**20}.items():
        with imitated_ranks() as ranks, weft.make_transformer(backend) as transformer:
            results, x, _ = training(a_layer, bucket_bytes=bucket_bytes)
            step = transformer.computation(results, x)
            step(data)
            count = LAYERS if what == "buckets" else 1
            # Each way imposes four fifths of a backward pass.
            ranks.network = Network("slow", 0.8 * a_layer * LAYERS / count / 6, math.inf)
            ranks.imposed = ranks.waited = 0.0
            step(data)
            assert ranks.imposed == pytest.approx(0.8 * a_layer * LAYERS)
            hidden[what] = 1 - ranks.waited / ranks.imposed
    # All but the last bucket, 80 %, and nothing.
    assert hidden["one"] < 0.5 < hidden["buckets"]
