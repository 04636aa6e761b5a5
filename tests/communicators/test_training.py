"""Data-parallel training under real MPI: as one process on the whole batch, and reproducible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi_launch import mpiexec

pytestmark = pytest.mark.slow


def trained(ranks: int, backend: str, optimizer: str, path: Path) -> dict[str, Any]:
    ended = mpiexec(ranks, "training.py", backend, str(path), optimizer)
    assert ended.returncode == 0, ended.stderr
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize(
    ("ranks", "backend", "optimizer"),
    [
        (2, "numpy", "adam"),
        pytest.param(2, "native", "sgd", marks=pytest.mark.long),
        pytest.param(2, "opencl", "sgd", marks=pytest.mark.long),
        pytest.param(4, "numpy", "sgd", marks=pytest.mark.long),
    ],
)
def test_ranks_follow_one_process_and_each_other_to_the_bit(
    ranks: int, backend: str, optimizer: str, tmp_path: Path
) -> None:
    alone = trained(1, backend, optimizer, tmp_path / "alone.npz")
    once = trained(ranks, backend, optimizer, tmp_path / "once.npz")
    again = trained(ranks, backend, optimizer, tmp_path / "again.npz")
    for name, values in alone.items():
        np.testing.assert_array_equal(once[name], again[name])
        np.testing.assert_allclose(once[name], values, rtol=2e-5, atol=2e-6)
