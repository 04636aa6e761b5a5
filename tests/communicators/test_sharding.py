"""Sharded optimizer state under real MPI: the weights it gives, its bytes, and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi_launch import mpiexec

from weft.runtime.checkpoints import read_values

pytestmark = pytest.mark.slow

long = pytest.mark.long


@pytest.mark.parametrize(
    ("ranks", "backend", "control"),
    [
        (2, "numpy", "step"),
        (2, "native", "step"),
        pytest.param(1, "numpy", "step", marks=long),
        pytest.param(2, "numpy", "call", marks=long),
        pytest.param(2, "numpy", "loop", marks=long),
        pytest.param(2, "native", "loop", marks=long),
        pytest.param(2, "opencl", "step", marks=long),
        pytest.param(4, "numpy", "step", marks=long),
    ],
)
def test_every_optimizer_gives_the_same_weights_with_a_share_of_the_state(
    ranks: int, backend: str, control: str
) -> None:
    ended = mpiexec(ranks, "sharded_steps.py", backend, control)
    assert ended.returncode == 0, ended.stderr


def trained(
    ranks: int, form: str, first: int, end: int, path: Path, backend: str = "numpy"
) -> dict[str, Any]:
    weights = path.with_name("weights.npz")
    steps = str(first), str(end)
    ended = mpiexec(ranks, "sharded_checkpoint.py", backend, form, *steps, str(path), str(weights))
    assert ended.returncode == 0, ended.stderr
    with np.load(weights) as found:
        return dict(found)


@pytest.mark.parametrize(
    ("saved_by", "restored_by"),
    [
        ((2, "sharded"), (1, "sharded")),
        pytest.param((2, "sharded"), (4, "sharded"), marks=long),
        pytest.param((4, "sharded"), (2, "sharded"), marks=long),
        pytest.param((4, "sharded"), (1, "whole"), marks=long),
        pytest.param((2, "sharded"), (2, "whole"), marks=long),
        pytest.param((1, "whole"), (2, "sharded"), marks=long),
        pytest.param((2, "whole"), (4, "sharded"), marks=long),
    ],
)
def test_training_goes_on_with_other_shards(
    saved_by: tuple[int, str], restored_by: tuple[int, str], tmp_path: Path
) -> None:
    pytest.importorskip("safetensors")
    uninterrupted = trained(1, "whole", 0, 6, tmp_path / "uninterrupted")
    trained(*saved_by, 0, 3, tmp_path / "checkpoint")
    at_rest = read_values(tmp_path / "checkpoint")
    assert at_rest["w_first_moment"].shape == at_rest["w"].shape == (5, 3)
    found = trained(*restored_by, 3, 6, tmp_path / "checkpoint")
    for name, value in uninterrupted.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6)
    whole, sharded = (read_values(tmp_path / name) for name in ("uninterrupted", "checkpoint"))
    assert whole.keys() == sharded.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(sharded[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


def test_ranks_that_stay_as_many_go_on_to_the_bit(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    uninterrupted = trained(2, "sharded", 0, 6, tmp_path / "uninterrupted")
    trained(2, "sharded", 0, 3, tmp_path / "checkpoint")
    found = trained(2, "sharded", 3, 6, tmp_path / "checkpoint")
    for name, value in uninterrupted.items():
        np.testing.assert_array_equal(found[name], value)
