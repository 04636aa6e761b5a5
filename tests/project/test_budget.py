"""What grows unseen has a limit: the time of `import weft`, and the code of each package."""

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
from time import process_time
start = process_time()
import numpy
middle = process_time()
import {package}
print(middle - start, process_time() - middle)
"""


@pytest.fixture(scope="module")
def found() -> dict[str, int]:
    """Return the lines of each package."""
    return packages()


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for compiled modules, so that no time is that of compiling them."""
    return tmp_path_factory.mktemp("bytecode")


def import_ratio(package: str, bytecode: Path, most: float, rounds: int) -> float:
    """Return the processor time of an import after NumPy's, as a multiple of NumPy's.

    Each time is the least of several interleaved runs, since a busy machine only adds to it. The
    runs end as soon as the ratio is at most `most`; the first one, which writes bytecode, does not
    count. The BLAS has one thread, so that the time of others is not counted.
    """
    command = [sys.executable, "-c", IMPORTS.format(package=package)]
    env = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": str(bytecode)}
    numpy = own = float("inf")
    for turn in range(rounds + 1):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        times = tuple(map(float, done.stdout.split()))
        if turn:
            numpy, own = min(numpy, times[0]), min(own, times[1])
            if turn > 2 and own / numpy <= most:
                break
    return own / numpy


def test_import_takes_no_longer_than_its_budget(bytecode: Path) -> None:
    most = BUDGET["import"]["ratio"]
    ratio = import_ratio("weft", bytecode, most, 20)
    assert 0.3 < ratio <= most, (
        f"import weft takes {ratio:.2f} times the processor time of import numpy, and may take "
        f"{most}. Import what few programs need where it is used. {RAISE}"
    )


def test_a_slow_import_is_found(bytecode: Path) -> None:
    """The command loads typer and rich, and with the kit more than the limit allows."""
    most = BUDGET["import"]["ratio"]
    assert import_ratio("weft, weft.testing.table, weft.cli, rich", bytecode, most, 1) > most


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
