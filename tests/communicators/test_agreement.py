"""Ranks that compile different graphs, or cannot compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mpi_launch import mpiexec

WORDS = {
    "attribute": r"rank 0: AllReduceOp\(.*reduction=min.*line 20.*rank 1: .*reduction=max.*line 20",
    "constant": r"rank 0: AssignableTensorOp\(.*rank 1: AssignableTensorOp\(.*line 22",
    "longer": r"rank 0: nothing, its graph ends before / +rank 1: SinOp\(.*line 24",
}


@pytest.mark.parametrize("how", WORDS)
def test_different_graphs_are_an_error_on_all_ranks(how: str, tmp_path: Path) -> None:
    ended = mpiexec(2, "agreement.py", how, str(tmp_path), WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert sorted(line[:11] for line in lines) == ["rank 0 says", "rank 1 says"]
    for line in lines:
        assert "the ranks compile different graphs" in line
        assert re.search(WORDS[how], line), line


def test_one_rank_compiles_and_the_others_find_it(tmp_path: Path) -> None:
    ended = mpiexec(2, "agreement.py", "same", str(tmp_path))
    assert sorted(ended.stdout.splitlines()) == ["rank 0 found [False]", "rank 1 found [True]"]


def test_a_rank_without_a_cache_compiles_itself(tmp_path: Path) -> None:
    ended = mpiexec(2, "agreement.py", "uncached", str(tmp_path), WEFT_COLLECTIVE_TIMEOUT="20")
    assert sorted(ended.stdout.splitlines()) == ["rank 0 found [False]", "rank 1 found [False]"]


def test_the_others_hear_of_a_failure(tmp_path: Path) -> None:
    ended = mpiexec(2, "agreement.py", "failure", str(tmp_path), WEFT_COLLECTIVE_TIMEOUT="20")
    first, second = sorted(ended.stdout.splitlines())
    assert first.startswith("rank 0 says the compiler is out of order")
    assert re.match("rank 1 says rank 0 failed in the compilation of .*: RuntimeError: the", second)
