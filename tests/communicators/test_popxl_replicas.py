"""PopXL's replicas as ranks of real MPI processes."""

from __future__ import annotations

import re

import pytest
from mpi_launch import mpiexec

pytestmark = pytest.mark.slow

PROGRAM = "popxl_replicas.py"


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
def test_collectives_are_what_numpy_makes_of_the_arrays_of_all_replicas(backend: str) -> None:
    ended = mpiexec(2, PROGRAM, "check", backend)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"of 2: {backend} is right") == 2


@pytest.mark.long
def test_collectives_of_four_replicas() -> None:
    ended = mpiexec(4, PROGRAM, "check", "numpy")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("of 4: numpy is right") == 4


def test_other_numbers_of_replicas_than_ranks_are_refused_on_all_of_them() -> None:
    ended = mpiexec(2, PROGRAM, "unequal", "numpy")
    assert ended.returncode == 0, ended.stderr
    said = r"rank (\d): .* replication_factor of (\d), .*'mpi' has a size of 2.*Ir\(replication=2\)"
    found = re.findall(said, ended.stdout)
    assert sorted(found) == [("0", "1"), ("0", "3"), ("1", "1"), ("1", "3")]
