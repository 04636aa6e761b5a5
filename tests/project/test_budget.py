"""The work of `import weft`, which grows unseen, has a limit."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES, CALLS = 245, 50_000
"""What `import weft` may load after NumPy, and the functions that these modules may call while they
are loaded."""

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
    advice = "Import what few programs need where it is used"
    assert modules <= MODULES, f"import weft loads {modules} modules. {advice}"
    assert calls <= CALLS, f"modules of import weft make {calls} calls. {advice}"


def test_an_import_of_too_much_is_found() -> None:
    """The command loads typer and rich, and the kit its table."""
    modules, _ = work("weft, typer, rich.table")
    assert modules > MODULES
    _, calls = work("weft, weft.testing.table")
    assert calls > CALLS
