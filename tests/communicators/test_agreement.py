"""Ranks that compile different graphs, or cannot compile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mpi_launch import mpiexec

pytestmark = pytest.mark.slow


def heard(how: str, folder: Path) -> list[str]:
    """Return what each rank says, in one line."""
    ended = mpiexec(2, "agreement.py", how, str(folder), WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    return [(folder / f"rank{rank}.txt").read_text().replace("\n", " / ") for rank in range(2)]


WORDS = {
    "attribute": r"rank 0: AllReduceOp\(.*=min\).*line 22.*rank 1: .*=max\).*line 22",
    "constant": r"rank 0: AssignableTensorOp\(.*rank 1: AssignableTensorOp\(.*line 24",
    "share": r"rank 0: ParameterOp\(\) float32\[4, 3\].*rank 1: .* float32\[0, 3\].*line 19",
    "longer": r"rank 0: nothing, its graph ends before / +rank 1: SinOp\(.*line 26",
}


@pytest.mark.parametrize("how", WORDS)
def test_different_graphs_are_an_error_on_all_ranks(how: str, tmp_path: Path) -> None:
    for text in heard(how, tmp_path):
        assert text.startswith("the ranks compile different graphs")
        assert re.search(WORDS[how], text), text


def test_one_rank_compiles_and_the_others_find_it(tmp_path: Path) -> None:
    assert heard("same", tmp_path) == ["found [False]", "found [True]"]


def test_a_rank_without_a_cache_compiles_itself(tmp_path: Path) -> None:
    assert heard("uncached", tmp_path) == ["found [False]", "found [False]"]


def test_the_others_hear_of_a_failure(tmp_path: Path) -> None:
    first, second = heard("failure", tmp_path)
    assert first.startswith("the compiler is out of order")
    assert re.match("rank 0 failed in the compilation of .*: RuntimeError: the comp", second)
