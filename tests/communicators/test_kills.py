"""A hundred kills at random moments lose nothing: what a checkpoint holds is never of two steps."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpi_launch import HANG, left_running, mpiexec

from weft.runtime.checkpoints import read_values

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")

RUNS, KILLS = 50, 2
"""So many runs are killed so many times each, one time after the other."""
STEPS = 60
PLACES = ("step", "collective", "checkpoint")


class Reference(NamedTuple):
    """A run that nothing stopped.

    The states at each checkpoint; for each rank and place, how many events each turn there had.
    """

    states: dict[int, dict[str, Any]]
    events: list[dict[str, list[int]]]


def run(
    folder: Path, rank: int, place: str = "step", turn: int = 0, event: int = 0, delay: float = 0
) -> tuple[int, str]:
    """Train, with a kill; return the exit status, and what is said on standard error."""
    arguments = (str(folder), str(rank), place, str(turn), str(event), str(delay))
    begun = time.monotonic()
    ended = mpiexec(2, "train_until_killed.py", *arguments, WEFT_COLLECTIVE_TIMEOUT="20")
    assert time.monotonic() - begun < HANG / 2
    assert not left_running(ended.stdout)
    return ended.returncode, ended.stderr


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    status, said = run(folder, 2)
    assert status == 0, said
    states: dict[int, dict[str, Any]] = {}
    for path in folder.glob("*.npz"):
        with np.load(path) as found:
            states[int(path.stem)] = dict(found)
    events = [json.loads((folder / f"events{rank}.json").read_text()) for rank in range(2)]
    assert max(states) == STEPS
    for each in events:
        assert len(each["step"]) == STEPS <= len(each["collective"])
        assert all(min(each[place]) > 1 for place in PLACES)
    return Reference(states, events)


def steps_kept(folder: Path, reference: Reference) -> int:
    """Return the steps that the checkpoint holds; it has to be the one of the reference."""
    path = folder / "checkpoint"
    if not path.exists():
        return 0
    found = read_values(path)
    steps = int(found["steps"])
    assert found.keys() == reference.states[steps].keys()
    for name, value in reference.states[steps].items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    return steps


@pytest.mark.long
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(
    seed: int, reference: Reference, tmp_path: Path
) -> None:
    chosen = random.Random(seed)
    kept = 0
    for _ in range(KILLS):
        rank, place = chosen.randrange(2), chosen.choice(PLACES)
        # Within so many steps that the kills of a run all come before its end. A first call has
        # more events where nothing is in the cache yet: there the kill comes at the call's end.
        events = reference.events[rank][place]
        turn = chosen.randrange(len(events) // (KILLS + 1))
        event = chosen.randint(1, events[turn])
        delay = chosen.choice((0.0, chosen.random() / 500))
        status, said = run(tmp_path, rank, place, turn, event, delay)
        assert status != 0, said
        before, kept = kept, steps_kept(tmp_path, reference)
        assert before <= kept < STEPS
    status, said = run(tmp_path, 2)
    assert status == 0, said
    assert steps_kept(tmp_path, reference) == STEPS
    left = [each for each in tmp_path.iterdir() if each.name.startswith("checkpoint")]
    assert len(left) == 3, "the index and a file of each rank"
