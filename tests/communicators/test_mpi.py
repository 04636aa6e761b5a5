"""Collectives and faults between the ranks of real MPI processes."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from mpi_launch import HANG, mpiexec, side_by_side

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("backend", ["numpy", "native", "opencl"])
def test_every_collective_is_what_numpy_makes_of_all_arrays(backend: str) -> None:
    ended = mpiexec(2, "every_collective.py", backend)
    assert ended.returncode == 0, ended.stderr
    assert sorted(re.findall(r"rank \d of 2: \w+ is right", ended.stdout)) == [
        f"rank {rank} of 2: {backend} is right" for rank in range(2)
    ]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 4])
def test_every_collective_of_other_numbers_of_ranks(ranks: int) -> None:
    ended = mpiexec(ranks, "every_collective.py", "numpy")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count(f"of {ranks}: numpy is right") == ranks


@pytest.mark.parametrize(
    ("backend", "ranks"),
    [
        ("numpy", 3),
        pytest.param("native", 2, marks=pytest.mark.long),
        pytest.param("numpy", 4, marks=pytest.mark.long),
        pytest.param("numpy", 1, marks=pytest.mark.long),
    ],
)
def test_reductions_have_the_same_bits_on_all_ranks(backend: str, ranks: int) -> None:
    ended = mpiexec(ranks, "reductions.py", backend)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("reductions are right") == ranks


@pytest.mark.parametrize(
    ("ranks", "first", "count"),
    [
        (2, 0, 12),
        (3, 1000, 12),
        *(
            pytest.param(ranks, 10_000 * ranks + first, 70, marks=pytest.mark.long)
            for ranks in (2, 3, 4)
            for first in range(0, 280, 70)
        ),
    ],
)
def test_random_programs_give_right_numbers_or_an_error(ranks: int, first: int, count: int) -> None:
    arguments = map(str, (first, count))
    ended = mpiexec(ranks, "random_ranks.py", *arguments, WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{count} programs of {ranks} ranks" in ended.stdout


@pytest.mark.parametrize(
    "how",
    ["nested", *(pytest.param(x, marks=pytest.mark.long) for x in ("choice", "skipped", "loop"))],
)
def test_ranks_that_choose_otherwise_are_told_apart(how: str) -> None:
    ended = mpiexec(2, "choices.py", "numpy", how, WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode != 0
    assert not ended.stdout
    lines = [
        rf"rank {rank}: all_reduce .*choices.py\", line \d+, in call 2 of .* after the choices \d+"
        for rank in range(2)
    ]
    assert all(re.search(line, ended.stderr) for line in lines), ended.stderr


@pytest.mark.parametrize("backend", ["native", pytest.param("opencl", marks=pytest.mark.long)])
def test_ranks_that_choose_alike_go_on(backend: str) -> None:
    ended = mpiexec(2, "choices.py", backend, "alike", WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("went on") == 2


@pytest.mark.parametrize(
    "backend",
    ["native", *(pytest.param(x, marks=pytest.mark.long) for x in ("numpy", "opencl"))],
)
def test_a_rank_that_leaves_a_collective_keeps_the_arrays_of_it(
    backend: str, tmp_path: Path
) -> None:
    ended = mpiexec(2, "abandoned.py", backend, str(tmp_path), WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("goes on") == 2


FAULTS = {
    "order": [
        r"did not start the same collective",
        r"rank 0: all_gather of float32\[4, 3\] for AllGatherOp in .*faults.py",
        r"rank 1: all_reduce sum of float32\[4, 3\] for AllReduceOp in .*faults.py",
    ],
    "shape": [r"rank 0: all_reduce sum of float32\[4, 3\]", r"rank 1: .* of float32\[2, 3\]"],
    "count": [
        r"rank 0 gave up after 2 s \(WEFT_COLLECTIVE_TIMEOUT\)",
        r"rank 0: waits for all_reduce sum of float32\[4, 3\] for AllReduceOp in .*faults.py",
        r"rank 1: waits for none",
    ],
    "ended": [
        r"did not start the same collective",
        r"rank 0: all_reduce sum of float32\[4, 3\] for AllReduceOp in .*faults.py",
        r"rank 1: the end of its program",
    ],
    "skipped": [
        r"did not start the same collective",
        r"rank 0: all_reduce sum .*faults.py\", line \d+, in call 2 of computation_0 \(\w+\.0\)",
        r"rank 1: all_reduce sum .*faults.py\", line \d+, in call 3 of computation_0 \(\w+\.0\)",
    ],
    "equal graphs": [
        r"rank 0: .*faults.py\", line \d+, in call 1 of computation_3 \(\w+\.1\)",
        r"rank 1: .*faults.py\", line \d+, in call 1 of computation_4 \(\w+\.2\)",
    ],
    "threads": [r"in call 1 of computation_3", r"in call 1 of computation_4"],
    "one computation in threads": [r"two threads exchange tensors at once, in call \d of"],
    "lengths": [
        r"rank 0: .*in call 3 of computation_3 \(\w+\.0\) for \[\(3,\)\]",
        r"rank 1: .*in call 3 of computation_3 \(\w+\.0\) for \[\(4,\)\]",
    ],
    "killed in a step": [],
    "killed in a collective": [],
    "exception": [r"ValueError: only here", r"ValueError ends all 2 ranks"],
}
"""What the ranks say, as they end."""
LIMITS = {"count": "2"}
"""The seconds after which a rank gives up, where it has no other way to find out."""


OFTEN = ("order", "count", "ended", "killed in a collective", "lengths", "exception")
"""Those that `make test` runs: each reaches another branch."""


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(OFTEN, id="often"),
        pytest.param(FAULTS.keys() - {*OFTEN}, id="others", marks=pytest.mark.long),
    ],
)
def test_a_fault_of_one_rank_ends_all_of_them(cases: Collection[str]) -> None:
    def with_fault(how: str) -> subprocess.CompletedProcess[str]:
        limit = LIMITS.get(how, str(HANG))
        return mpiexec(2, "faults.py", how, WEFT_COLLECTIVE_TIMEOUT=limit)

    begun = time.monotonic()
    for how, ended in side_by_side(with_fault, sorted(cases)):
        assert ended.returncode != 0, how
        assert "went on" not in ended.stdout, how
        for words in FAULTS[how]:
            assert re.search(words, ended.stderr), f"{how}: {ended.stderr}"
    assert time.monotonic() - begun < HANG / 2


def test_a_forked_process_is_no_rank_and_ends_none() -> None:
    ended = mpiexec(2, "faults.py", "forked", WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    assert "forked from rank 1 and is not a rank itself" in ended.stderr
    assert ended.stdout.count("went on") == 2
