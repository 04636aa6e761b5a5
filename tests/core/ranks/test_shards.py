"""Shards of gradients: what optimizers and checkpoints make of them, and what is refused.

The ranks here are imitated, and have all the same; `tests/communicators` has real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.communicators import connected
from weft.errors import ArgumentError, ArtifactError, AxesError, CheckpointError, ParseError
from weft.testing.imitation import ImitatedRanks, imitated_ranks


class Second(ImitatedRanks):
    """Rank 1 of imitated ranks."""

    rank = 1


@pytest.fixture
def ranks() -> Iterator[ImitatedRanks]:
    with imitated_ranks(3, kind=Second) as found:
        yield found


@pytest.fixture(params=["numpy", "native", "opencl", "array"])
def transformer(
    request: pytest.FixtureRequest, transformer_of: Callable[[str], weft.Transformer]
) -> weft.Transformer:
    return transformer_of(request.param)


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


def test_a_rank_updates_its_shard(ranks: ImitatedRanks, transformer: weft.Transformer) -> None:
    x, loss, weights = network()
    gradients, variables = weft.data_parallel(loss, sharded=True)
    assert variables == weights
    assert [gradient.axes for gradient in gradients] == [
        weft.make_axes(weft.ShardAxis(weight.axes, 3, ranks.name)) for weight in weights
    ]
    update = weft.adam(gradients, variables, learning_rate=0.1)
    whole = weft.adam(loss, learning_rate=0.1)
    names = [{state.label for state in step.variables(lambda _: True)} for step in (update, whole)]
    assert names[0] == names[1]
    step = transformer.computation([loss, update], x)
    step(np.ones((6, 8), "float32"))
    found = transformer.get_value(weights[0])
    with weft.make_transformer("numpy") as other:
        other.computation([loss, whole], x)(np.ones((6, 8), "float32"))
        # 64 elements are 3 shards of 22; all ranks have what the second of three has.
        shard = other.get_value(weights[0]).reshape(-1)[22:44]
    np.testing.assert_allclose(found.reshape(-1), np.tile(shard, 3)[:64], rtol=1e-5)


def test_shards_are_exchanged_while_the_backward_pass_goes_on(ranks: ImitatedRanks) -> None:
    x, loss, _ = network()
    step = weft.adam(*weft.data_parallel(loss, bucket_bytes=256, sharded=True))
    transformer = weft.make_transformer("numpy", cache=False)
    computation = transformer.computation([loss, step], x)
    computation(np.ones((6, 8), "float32"))
    kinds = [type(each.op).__name__ for each in computation.plan.steps]
    places = {kind: [n for n, each in enumerate(kinds) if each == kind] for kind in kinds}
    products = places["MatmulOp"]
    starts = places["StartCollectiveOp"]
    assert [start < products[-1] for start in starts] == [True, True, True, False]
    assert places["WaitCollectiveOp"][0] > products[-1]
    assert len(places["AllGatherOp"]) == 1


def of_shards(build: Any) -> Any:
    """Return what a function makes of the sharded gradients and the variables of a network."""
    return lambda loss, weights: build(*weft.data_parallel(loss, sharded=True))


def of_unknown_length(loss: Any, weights: Any) -> Any:
    n = weft.symbol("n")
    open_one = weft.variable((n,))
    return weft.data_parallel(weft.sum(open_one), sharded=True)


NO_SHARDS = {
    "a whole tensor": (of_shards(lambda g, w: g[0] + 0.1 * w[0]), "1/3 of .8, 8. on imitated"),
    "a named tensor": (
        of_shards(lambda g, w: g[0] + weft.cast_axes(w[0], (weft.make_axis(64, "H"),))),
        "other shards of such axes only",
    ),
    "of another variable": (
        of_shards(lambda g, w: weft.sgd(g[:1], [weft.variable((3,))])),
        "a gradient with .*1/3 of .8, 8. on imitated.* does not fit",
    ),
    "unknown lengths": (of_unknown_length, "unknown lengths"),
    "a gradient that does not fit": (
        lambda loss, weights: weft.data_parallel([weft.zeros((2,))], weights[:1], sharded=True),
        "a gradient with Axes.2. does not fit",
    ),
    "a shard": (
        of_shards(lambda g, w: weft.data_parallel(g, w)),
        "a gradient is the shard 1/3 of .8, 8. on imitated.* already",
    ),
    "no bool": (
        lambda loss, weights: weft.data_parallel(loss, sharded=2),
        "sharded must be True or False, not 2",
    ),
    "no variable": (
        lambda loss, weights: weft.data_parallel([loss], [loss], sharded=True),
        "is not a variable",
    ),
}


@pytest.mark.parametrize("name", NO_SHARDS)
def test_what_has_no_shards_is_refused_with_its_line(name: str, ranks: ImitatedRanks) -> None:
    build, message = NO_SHARDS[name]
    _, loss, weights = network()
    with pytest.raises((AxesError, ArgumentError), match=message) as caught:
        build(loss, weights)
    assert Path(__file__).name in str(caught.value)


def test_padding_counts_for_no_norm(ranks: ImitatedRanks) -> None:
    # Without an epsilon the step of the padding is 0 / 0.
    start = np.linspace(1, 2, 5)
    w = weft.variable((5,), initial_value=start)
    gradients, variables = weft.data_parallel(weft.sum(w * w), sharded=True)
    update = weft.lamb(gradients, variables, learning_rate=0.1, epsilon=0)
    with weft.make_transformer("numpy") as made:
        made.computation(update)()
        assert np.isfinite(made.get_value(w)).all()


def test_a_shard_prints_and_parses_back(ranks: ImitatedRanks) -> None:
    x, loss, _ = network()
    gradients, variables = weft.data_parallel(loss, sharded=True)
    update = weft.lamb(weft.clip_by_global_norm(gradients, 1.0), variables)
    text = weft.capture([loss, update], [x]).text(full=True)
    assert f"Shard(Axes(8, 8), 3, {ranks.name!r})" in text
    assert weft.parse(text).text(full=True) == text


@pytest.mark.parametrize("text", ["Axes(2), 0, 'mpi'", "2, 2, 'mpi'", "Axes(2), -2, 'mpi'", ""])
def test_text_that_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="line 2"):
        weft.parse(f"graph('g')\nstate('w', 'variable', float32(Shard({text})))\nresult()\n")


def test_states_of_one_rank_are_no_whole(ranks: ImitatedRanks, tmp_path: Path) -> None:
    x, loss, _ = network()
    update = weft.adam(*weft.data_parallel(loss, sharded=True))
    with weft.make_transformer("numpy") as made:
        step = made.computation([loss, update], x)
        step(np.ones((6, 8), "float32"))
        for alone in (None, connected("local")):
            with pytest.raises(CheckpointError, match=r"_moment is 1 of 3 shards.*communicator="):
                made.save_states(tmp_path / "states", communicator=alone)
        with pytest.raises(ArtifactError, match="save_states"):
            step.save(tmp_path / "step", states=True)
        step.save(tmp_path / "step")
        assert not (tmp_path / "states").exists()
