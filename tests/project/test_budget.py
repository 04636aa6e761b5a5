"""What grows unseen has a limit: the work of `import weft`, and the code of each package."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from code_lines import code_lines, packages

BUDGET = tomllib.loads(Path(__file__).with_name("budget.toml").read_text())
LINES: dict[str, int] = BUDGET["lines"]
RAISE = (
    "A feature that needs more raises the number in tests/project/budget.toml, with a line under "
    "Unreleased in CHANGELOG.md that says what it is for"
)

pytestmark = pytest.mark.slow

IMPORTS = """
import sys
import numpy

calls = 0

def count(frame, event, _):
    global calls
    if event in ("call", "c_call"):
        calls += not frame.f_code.co_filename.startswith("<frozen importlib")

before = len(sys.modules)
sys.setprofile(count)
import {packages}
sys.setprofile(None)
print(len(sys.modules) - before, calls)
"""


@pytest.fixture(scope="module")
def found() -> dict[str, int]:
    """Return the lines of each package."""
    return packages()


def work(packages: str) -> tuple[int, int]:
    """Return how many modules an import loads after NumPy, and how many functions they call.

    Unlike the time, both depend on neither the machine nor what else it does. Calls of the import
    system itself do not count, as there are more of them the more folders are searched.
    """
    command = [sys.executable, "-c", IMPORTS.format(packages=packages)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules, calls = map(int, done.stdout.split())
    return modules, calls


def test_import_does_no_more_than_its_budget() -> None:
    modules, calls = work("weft")
    assert modules > 100
    assert calls > 10_000
    advice = f"Import what few programs need where it is used. {RAISE}"
    assert modules <= BUDGET["import"]["modules"], f"import weft loads {modules} modules. {advice}"
    assert calls <= BUDGET["import"]["calls"], (
        f"modules of import weft make {calls} calls. {advice}"
    )


def test_an_import_of_too_much_is_found() -> None:
    """The command loads typer and rich, and the kit its table."""
    modules, _ = work("weft, typer, rich.table")
    assert modules > BUDGET["import"]["modules"]
    _, calls = work("weft, weft.testing.table")
    assert calls > BUDGET["import"]["calls"]


def test_no_package_has_more_lines_than_its_budget(found: dict[str, int]) -> None:
    over = {
        name: f"has {lines} lines of code, may have {LINES.get(name, 0)}"
        for name, lines in found.items()
        if lines > LINES.get(name, 0)
    }
    assert over == {}, RAISE


def test_the_budget_is_close_to_what_there_is(found: dict[str, int]) -> None:
    """What has become smaller stays smaller."""
    loose = {
        name: f"has {found.get(name, 0)} lines of code, may have {lines}"
        for name, lines in LINES.items()
        if lines > found.get(name, 0) * 1.1 + 30
    }
    assert loose == {}, "lower these: python tests/project/code_lines.py prints the table"


def test_every_package_is_counted(found: dict[str, int]) -> None:
    assert {"weft", "weft.ops", "weft_numpy", "weft_passes", "weft_popxl"} <= set(found)
    assert sum(found.values()) > 30_000


def test_lines_are_counted_as_they_are_meant() -> None:
    source = (
        '"""Docstring,\n\nof several lines."""\n'  # 0
        "# a comment\n\n"  # 0
        "import os  # with a comment\n"  # 1
        'NAME = """text\n\nthat counts"""\n'  # 3
        '"""What NAME is."""\n'  # 0
        "def f(\n    x,\n):\n"  # 3
        '    """Return x."""\n'  # 0
        "    return (\n        # inside\n\n        x\n    )\n"  # 3
    )
    assert code_lines(source) == 10
