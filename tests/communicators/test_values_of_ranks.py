"""Ranks that begin with different values are told so, unless these are meant to differ."""

from __future__ import annotations

import json
import re

import pytest
from mpi_launch import mpiexec

pytestmark = pytest.mark.slow

AGREED = {
    "same array": ("100.0", "100.0"),
    "same seed": None,
    "by rank": ("100.0", "100.0"),
    "broadcast": ("200.0", "200.0"),
    "broadcast from the last": ("202.0", "202.0"),
    "cast and broadcast": ("0.0", "0.0"),
    "broadcast of a constant": ("0.0", "0.0"),
    "set": ("1.0", "1.0"),
    "not shared": ("0.0", "1.0"),
}
"""What each rank computes; None for numbers that are the same, whatever they are."""

INITIAL = r"the ranks have different initial values of weights in .*values_of_ranks.py.*, which com"
CONSTANTS = (r"rank 0: Assig.*\(kind=constant, crc32=.*, line \d+", r"rank 1: Assig.*, line \d+")
GRAPHS = r"the ranks compile different graphs of computation"

REFUSED = {
    "array": (INITIAL, *CONSTANTS),
    "small array": (INITIAL, *CONSTANTS),
    "number": (INITIAL, *CONSTANTS),
    "seed": (INITIAL, r"rank 0: .*value=\[0, 1\]\) uint32", r"rank 1: .*value=\[1, 1\]\) uint32"),
    "order": (INITIAL, r"rank 0: SubtractOp\(%14, %12\)", r"rank 1: SubtractOp\(%12, %14\)"),
    "missing": (INITIAL, "rank 0: nothing, its graph is empty", CONSTANTS[1]),
    "another": (INITIAL, *CONSTANTS),
    "written only": (INITIAL, *CONSTANTS),
    "constant": (GRAPHS, *CONSTANTS),
    "result": (GRAPHS, *CONSTANTS),
    "assigned": (GRAPHS, *CONSTANTS),
    "called": (GRAPHS, *CONSTANTS),
    "broadcast and used": (GRAPHS, *CONSTANTS),
}
"""What every rank says."""


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each rank says of each case."""
    folder = tmp_path_factory.mktemp("initial")
    ended = mpiexec(2, "values_of_ranks.py", str(folder), WEFT_COLLECTIVE_TIMEOUT="20")
    assert ended.returncode == 0, ended.stderr
    found = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert found[0].keys() == found[1].keys() == {*AGREED, *REFUSED}
    return found


@pytest.mark.parametrize("case", AGREED)
def test_the_same_values_and_those_meant_to_differ_are_taken(
    case: str, heard: list[dict[str, str]]
) -> None:
    first, second = (each[case] for each in heard)
    assert re.fullmatch(r"[\d.]+", first), first
    assert (first, second) == (AGREED[case] or (first, first))


@pytest.mark.parametrize("case", REFUSED)
def test_different_values_are_an_error_on_all_ranks(case: str, heard: list[dict[str, str]]) -> None:
    for each in heard:
        for words in REFUSED[case]:
            assert re.search(words, each[case]), each[case]
