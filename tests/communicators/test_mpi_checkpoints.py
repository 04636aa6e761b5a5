"""Checkpoints of real MPI processes, one of which is killed in the middle."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from mpi_launch import HANG, mpiexec

import weft

pytestmark = pytest.mark.slow

pytest.importorskip("safetensors")


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_that_is_killed_leaves_a_checkpoint_that_is_whole(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "step.index.json"
    delay = random.Random(seed).random() / 4
    begun = time.monotonic()
    ended = mpiexec(2, "checkpoints.py", str(path), str(delay), WEFT_COLLECTIVE_TIMEOUT="5")
    assert ended.returncode != 0
    assert time.monotonic() - begun < HANG / 2
    index = json.loads(path.read_text())
    assert index["metadata"] == {"ranks": 2}
    assert len(set(index["weight_map"].values())) == 2
    states = [weft.variable((1000,), name=f"s{number}") for number in range(8)]
    with weft.make_transformer("numpy") as transformer:
        transformer.computation(states)
        transformer.load_states(path)
        found = {transformer.get_value(state).tobytes() for state in states}
    assert len(found) == 1
    assert found != {bytes(4000)}
