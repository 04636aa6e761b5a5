"""Levels, expected gaps and the report of the conformance kit, run on a small suite of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.errors import UnsupportedOpError
from weft.ir.target import Target
from weft.testing.cases import make_cases, run_cases
from weft.testing.levels import LEVELS, includes
from weft.testing.report import FAILED, LACKING, PASSED, SKIPPED, Outcome, Report
from weft.testing.table.rows import Row

pytestmark = pytest.mark.slow

SUITE = """
import weft
from weft.testing.levels import BEHAVIOR, VALUES, level
from weft.testing.table.rows import Row
import pytest

ROWS = [Row("exp", weft.exp), Row("log", weft.log)]

@level(VALUES)
@pytest.mark.parametrize("row", ROWS, ids=["exp", "log"])
@pytest.mark.parametrize("dtype", ["float32"])
def test_row(transformer, row, dtype):
    assert row.function == "exp", "log is wrong\\nand this is why"

@level(BEHAVIOR)
def test_behavior(backend):
    pytest.skip("not today")

def test_of_weft_itself():
    pass
"""


def run_suite(folder: Path, *options: str) -> tuple[str, Path]:
    folder.joinpath("test_suite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "test_suite.py"]
    command += ["--weft-backend=numpy", f"--weft-report={folder / 'found' / 'report'}", *options]
    out = subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout
    return out, folder / "found"


@pytest.mark.long
def test_a_run_writes_both_forms_of_its_report(tmp_path: Path):
    out, found = run_suite(tmp_path)
    assert "1 failed, 2 passed, 1 skipped" in out
    assert "weft: report in" in out
    data = json.loads(found.joinpath("report.json").read_text())
    assert data["functions"]["exp"] == {"numpy": {"float32": PASSED}}
    assert data["functions"]["log"] == {"numpy": {"float32": FAILED}}
    numpy = data["backends"]["numpy"]
    assert numpy["levels"] == {"values": {"passed": 1, "failed": 1}, "behavior": {"skipped": 1}}
    assert numpy["device"]
    (failure,) = data["failures"]
    assert "log is wrong" in failure["reason"]
    page = found.joinpath("report.md").read_text()
    assert "| `exp` | float32 |" in page
    assert "| `log` | **no**: float32 |" in page
    assert "log is wrong" in page.partition("## What failed")[2]
    assert sorted(path.name for path in found.iterdir()) == ["report.json", "report.md"]


def test_a_level_leaves_out_what_is_above_it(tmp_path: Path):
    out, found = run_suite(tmp_path, "--weft-level=gradients")
    assert "1 failed, 2 passed, 1 deselected" in out
    assert "behavior" not in found.joinpath("report.md").read_text()


def test_levels_are_in_order():
    for place, name in enumerate(LEVELS):
        assert [includes(name, other) for other in LEVELS] == [
            other <= place for other in range(len(LEVELS))
        ]


@pytest.mark.parametrize(
    ("results", "cell"),
    [
        ({"float32": PASSED, "int32": PASSED}, "float32, int32"),
        ({"float32": PASSED, "int32": FAILED}, "**no**: int32; float32"),
        ({"float32": LACKING}, "lacks: float32"),
        ({"float32": SKIPPED}, "-"),
    ],
)
def test_a_cell_names_what_does_not_work_first(results: dict[str, str], cell: str):
    report = Report()
    for dtype, result in results.items():
        report.add(Outcome("one", "values", "test", "sin", dtype, result))
    assert f"| `sin` | {cell} |" in report.as_markdown()


@given(st.permutations(range(12)))
def test_a_report_does_not_depend_on_the_order_of_tests(order: list[int]):
    outcomes = [
        Outcome(backend, level, "test", "sin", dtype, PASSED)
        for backend in ("two", "one", "other")
        for level, dtype in (
            ("values", "float32"), ("values", "bool"), ("values", "int8"), ("threads", "float32"),
        )
    ]  # fmt: skip
    report = Report()
    for place in order:
        report.add(outcomes[place])
    report.sort(["two", "one"])
    assert report.outcomes == outcomes
    assert "| `sin` | float32, bool, int8 | float32, bool, int8 |" in report.as_markdown()


def test_the_worst_row_of_a_function_counts():
    report = Report()
    for result in (PASSED, FAILED, SKIPPED):
        report.add(Outcome("one", "values", "test", "sin", "float32", result))
    assert report.functions() == {"sin": {"one": {"float32": FAILED}}}


class Partial(weft.NumPyTransformer):
    """A backend that cannot take sines, and says so or not."""

    transformer_name = "partial"
    has_sine = False
    declared = {"SinOp": "the device has no sine"}

    @property
    def target(self):
        def supports(op: weft.TensorOp):
            return whole.supports(op) and (self.has_sine or type(op).__name__ != "SinOp")

        whole = super().target
        return Target(
            "partial", supports=supports, dtypes=whole.dtypes, lacks=self.declared, alignment=64
        )


ROWS = [Row("sin", weft.sin), Row("exp", weft.exp)]


def problems_of(**changes: Any):
    transformer, lacking = Partial(), set()
    for name, value in changes.items():
        setattr(transformer, name, value)
    cases = [case for row in ROWS for case in make_cases(row, "float32")]
    return run_cases(transformer, cases, lacking), lacking


def test_a_declared_gap_is_expected():
    problems, lacking = problems_of()
    assert problems == []
    assert lacking == {"SinOp"}


def test_a_gap_that_is_not_declared_is_a_failure():
    problems, lacking = problems_of(declared={})
    assert problems
    assert all(problem.startswith("sin ") and "SinOp" in problem for problem in problems)
    assert lacking == set()


def test_a_gap_that_is_none_is_a_failure():
    problems, _ = problems_of(has_sine=True)
    assert any("says it lacks SinOp, and yet computes it" in problem for problem in problems)


def test_the_reason_of_a_gap_is_in_the_error():
    x = weft.placeholder((2,))
    with pytest.raises(UnsupportedOpError, match="the device has no sine") as caught:
        Partial().computation(weft.sin(x), x)([1, 2])
    assert caught.value.kinds == ("SinOp",)


def test_a_dtype_that_the_target_does_not_list_is_refused():
    class Narrow(weft.NumPyTransformer):
        @property
        def target(self):
            whole = super().target
            return Target("narrow", supports=whole.supports, dtypes=frozenset({"float32", "bool"}))

    x = weft.placeholder((2,))
    with pytest.raises(UnsupportedOpError, match="does not compute with int64") as caught:
        Narrow().computation(weft.argmax(x), x)([1, 2])
    assert "test_report.py" in str(caught.value)
    assert Narrow().computation(weft.sum(x), x)([1, 2]) == 3
    with pytest.raises(UnsupportedOpError, match="TakeOp: it does not") as caught:
        Narrow().computation(x[[1, 0, 0]] + x[[0, 1, 1]], x)([1, 2])
    assert str(caught.value).count("TakeOp") == 1, "a line of the user's is named once"
    assert "AssignableTensorOp" not in str(caught.value)
