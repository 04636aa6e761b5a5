"""The script that tries bare machines reads what it must, and writes rows of a table."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "machines"
PAGE = (ROOT / "docs" / "support.md").read_text()
CI = (ROOT / ".ci" / "run").read_text()


def loaded() -> ModuleType:
    loader = SourceFileLoader("machines_script", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


pytestmark = pytest.mark.needs("posix")


@pytest.fixture(scope="module")
def script() -> Any:
    return loaded()


OUTPUT = """\
FAILED tests/core/test_one.py::test_first[numpy] - assert 1 == 2
FAILED tests/core/test_one.py::test_first[native] - assert 1 == 2
ERROR tests/core/test_two.py::test_second - OSError: no room
=============================== not tried here ================================
1,203 tests need an OpenCL device: apt-get install pocl-opencl-icd
1 file needs Wine: apt-get install wine wine64
===== 2 failed, 24509 passed, 12 skipped, 3 xfailed, 1 error in 231.77s (0:03:51) =====
"""


def test_the_last_lines_of_pytest_are_read(script: Any) -> None:
    assert script.counts(OUTPUT) == {"passed": 24509, "failed": 3, "skipped": 12}
    assert script.reasons(OUTPUT) == (
        "failed: test_first, test_second; 1,203 tests need an OpenCL device; 1 file needs Wine"
    )
    assert script.counts("make: *** Error 2\n") == {"passed": 0, "failed": 0, "skipped": 0}
    assert script.reasons("make: *** Error 2\n") == ""


@pytest.mark.parametrize(
    "text",
    [
        "Types: deb\n# URIs: http://old\nURIs: http://mine/debian\nSuites: sid\n",
        "# deb http://old stable main\ndeb http://mine/debian bookworm main\n",
        "deb [arch=amd64 trusted=yes] http://mine/debian bookworm main\n",
    ],
)
def test_the_mirror_is_that_of_this_system(script: Any, text: str) -> None:
    assert script.mirror({"empty": "", "sources": text}) == "http://mine/debian"


def test_without_a_mirror_the_reason_is_said(script: Any) -> None:
    with pytest.raises(script.NoMachineError, match="name no mirror"):
        script.mirror({"empty": "# nothing\n"})


def test_rows_are_replaced_and_stand_in_the_order_of_the_machines(script: Any) -> None:
    head = "text\n\n| machine | system |\n| --- | --- |\n"
    page = script.with_rows(f"{head}\nafter\n", {"sid": "| `sid` | Debian sid | 1 |"})
    assert page == f"{head}| `sid` | Debian sid | 1 |\n\nafter\n"
    page = script.with_rows(page, {"trixie": "| `trixie` | Debian trixie | 2 |"})
    page = script.with_rows(page, {"sid": "| `sid` | Debian sid | 3 |"})
    assert page == (
        f"{head}| `trixie` | Debian trixie | 2 |\n| `sid` | Debian sid | 3 |\n\nafter\n"
    )


def test_a_row_has_a_cell_for_each_column_of_the_page(script: Any) -> None:
    ended = script.Ended(1, 231.8, OUTPUT)
    row = script.row("trixie-equipped", "Python 3.13.5", script.Ended(0, 14.2, ""), ended)
    assert "passed, 14 s | failed (1), 232 s | 24509 | 3 | 12 | failed: test_first" in row
    head = next(line for line in PAGE.splitlines() if line.startswith("| machine |"))
    assert row.count(" | ") == head.count(" | ")
    assert script.with_rows(PAGE, {"trixie-equipped": row}).count(row) == 1


def test_each_machine_is_on_the_page_and_passed_what_it_ran(script: Any) -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| Debian .*$", PAGE, flags=re.MULTILINE)
    assert rows == [name for name in script.MACHINES if name in rows]


def test_commands_of_the_readme_are_run(script: Any) -> None:
    readme = (ROOT / "README.md").read_text()
    bare = script.MACHINES["trixie"]
    assert f"$ {bare.demo} " in readme
    assert f"$ {bare.test} " in readme


def test_ci_takes_machines_that_are_there(script: Any) -> None:
    found = re.search(r"bare=\((.*)\)\n", CI)
    assert found is not None
    names = found[1].split()
    assert len(names) > 2
    assert set(names) <= set(script.MACHINES)
    assert "tests/machines --fast" in CI


def run(*arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True, text=True, check=False, env={"PATH": path},
    )  # fmt: skip


def test_where_no_machine_can_be_made_a_plain_line_says_so(tmp_path: Path) -> None:
    for options, code in ((["--fast"], 0), ([], 2)):
        done = run(*options, "sid", path=str(tmp_path))
        assert done.returncode == code
        assert done.stdout.startswith("No machine is tried: debootstrap, unshare, chroot")
        assert done.stderr == ""


def test_a_machine_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run("buster", path=str(tmp_path))
    assert done.returncode == 2
    assert "there is no buster; there are bookworm, trixie, sid," in done.stderr
