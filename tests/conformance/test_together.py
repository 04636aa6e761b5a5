"""Rows that are computed together report by themselves, whatever happens to the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.testing import cases
from weft.testing.cases import Case, examine, make_case
from weft.testing.table.rows import Row
from weft.testing.together import MOST, Batch

pytestmark = pytest.mark.slow

NUMBER = 13
NUMBERS = st.sets(st.integers(0, NUMBER - 1))
ADD = Row("add", lambda x: x + 1)
BROKEN = Row("add", lambda x: weft.reshape(x, (7, 7)), case="broken")


class Flawed(weft.NumPyTransformer):
    """Gives some results wrong, and refuses to compute programs with some arguments."""

    transformer_name = "flawed"
    wrong: set[int] = set()
    refused: set[int] = set()

    def transform_ordered_ops(
        self, program: Any, ordered_ops: Any, name: str
    ) -> Callable[..., None]:
        run = super().transform_ordered_ops(program, ordered_ops, name)
        count = len(program.graph.inputs)

        def flawed(*arrays: Any) -> None:
            run(*arrays)
            for argument, result in zip(arrays[:count], arrays[count:], strict=True):
                if argument[0] in self.refused:
                    raise OSError("no")
                if argument[0] in self.wrong:
                    result += 1

        return flawed


def numbered_cases() -> list[Case]:
    """Return cases whose only argument is their number."""
    made = [make_case(ADD, [(1,)], "float32", with_gradients=False) for _ in range(NUMBER)]
    for number, case in enumerate(made):
        case.label = f"{number}"
        case.arrays[0][0] = number
    return made


@pytest.mark.long
@settings(deadline=None)
@given(wrong=NUMBERS, refused=NUMBERS)
def test_what_is_wrong_is_pinned_to_its_case(wrong: set[int], refused: set[int]) -> None:
    transformer = Flawed(cache=False)
    transformer.wrong, transformer.refused = wrong, refused
    found = [finding.problems for finding in examine(transformer, numbered_cases())]
    for number, problems in enumerate(found):
        assert len(problems) == (number in wrong | refused)
        assert all(problem.startswith(f"{number}") for problem in problems)
        assert all(("OSError" in problem) == (number in refused) for problem in problems)


@pytest.mark.parametrize(("refused", "most"), [((), 1), ((5,), 9), ((0, 12), 17)])
def test_few_programs_find_an_error(
    refused: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs: list[int] = []
    compute = cases._problems

    def counted(transformer: Any, chosen: Any) -> Any:
        programs.append(len(chosen))
        return compute(transformer, chosen)

    monkeypatch.setattr(cases, "_problems", counted)
    transformer = Flawed()
    transformer.refused = set(refused)
    examine(transformer, numbered_cases())
    assert programs[0] == NUMBER
    assert len(programs) <= most


def test_a_row_that_cannot_be_made_does_not_disturb_the_others() -> None:
    batch = Batch([ADD, BROKEN], "float32")
    for _ in range(2):
        with pytest.raises(weft.errors.WeftError, match="reshape"):
            batch.findings(BROKEN, "numpy", True)
        findings = batch.findings(ADD, "numpy", True)
        assert len(findings) > len(ADD.shapes)
        assert not any(finding.problems for finding in findings)


def test_nothing_comes_of_a_dtype_that_is_not_computed_with() -> None:
    batch = Batch([ADD, BROKEN], "float128")
    assert [batch.findings(row, "numpy", True) for row in (ADD, BROKEN)] == [[], []]
    assert batch.target.name == "numpy"


SUITE = """
import pytest
from weft.testing.levels import VALUES, level
from weft.testing.together import MOST, together
from test_together import ADD, Row

ROWS = [Row("add", ADD.build, case=f"{number:02}") for number in range(MOST + 3)]

@level(VALUES)
@together
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row(batch, backend, row, dtype):
    assert row in batch.rows
    assert not batch.findings(row, backend, False)[0].problems
    print(f"<{row.case} {dtype} of {len(batch.rows)}>")
"""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("chosen", "sizes"),
    [("add", {MOST, 3}), ("float32-add-00 or float64", {1, MOST, 3}), ("float32-add-14", {1})],
)
def test_only_chosen_rows_of_one_dtype_are_together(
    chosen: str, sizes: set[int], tmp_path: Path
) -> None:
    tmp_path.joinpath("test_suite.py").write_text(SUITE)
    options = ["-p", "no:cacheprovider", "-q", "-s", "--weft-backend=numpy", "-k", chosen]
    command = [sys.executable, "-m", "pytest", "test_suite.py", *options]
    path = ["-o", f"pythonpath={Path(__file__).parent}"]
    done = subprocess.run([*command, *path], capture_output=True, text=True, cwd=tmp_path)
    assert " passed" in done.stdout
    assert " failed" not in done.stdout
    assert {size for size in range(MOST + 1) if f" of {size}>" in done.stdout} == sizes
