"""Each tier runs what marks and times of tests say, and the parts together are all of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tiers import MOST, MOST_TOGETHER, durations, module_marks

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FOLDERS = (TESTS, ROOT / "core" / "weft" / "testing")
FILES = [path for folder in FOLDERS for path in folder.rglob("test_*.py")]
FUNCTIONS = {
    name
    for path in FILES
    for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.MULTILINE)
}

SUITE = """
import pytest

@pytest.mark.parametrize("number", range(40))
def test_many(number): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.long
def test_long(): pass
"""

SHARED = """
import pytest

pytestmark = pytest.mark.share(8)

@pytest.mark.parametrize("number", range(40))
def test_like_its_module(number): pass

@pytest.mark.share(20)
@pytest.mark.parametrize("number", range(40))
def test_by_itself(number): pass

def test_alone(): pass
"""


def test_each_duration_is_that_of_a_test() -> None:
    timed = {name.partition("::")[2].partition("[")[0] for name in durations()}
    assert FUNCTIONS.issuperset(timed)


def test_circles_are_searched_for_in_each_tier() -> None:
    name = "tests/project/test_arrows.py::test_imports_make_no_circles"
    assert durations().get(name, 0.0) < MOST["fast"]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    tmp_path.joinpath("test_suite.py").write_text(SUITE)
    return tmp_path


def chosen(suite: Path, *options: str) -> set[str]:
    folder = suite if (suite / "tiers.py").exists() else TESTS
    command = [sys.executable, "-m", "pytest", "-p", "tiers", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [*command, "--collect-only", "-o", f"pythonpath={folder}", *options],
        capture_output=True, text=True, cwd=suite, check=False,
    )  # fmt: skip
    return set(re.findall(r"^test_suite.py::(\S+)$", done.stdout, flags=re.MULTILINE))


def test_a_tier_runs_what_the_one_before_it_does(suite: Path) -> None:
    fast, test, everything = (chosen(suite, f"--tier={tier}") for tier in ("fast", "test", "all"))
    assert len(fast) == 1
    assert fast < test
    assert everything - test == {"test_long"}
    assert len(test) == 41


def test_a_share_of_the_cases_is_in_the_second_tier(suite: Path) -> None:
    suite.joinpath("test_suite.py").write_text(SHARED)
    names = [name.partition("[")[0] for name in chosen(suite, "--tier=test")]
    assert Counter(names) == {"test_like_its_module": 5, "test_by_itself": 2, "test_alone": 1}
    assert len(chosen(suite)) == 81


@pytest.mark.parametrize(
    ("statement", "marks"),
    [
        ("pytestmark = pytest.mark.slow", {"slow"}),
        ("pytestmark = [\n    pytest.mark.share(2),\n    pytest.mark.long,\n]", {"long"}),
        ("pytestmark = pytest.mark.usefixtures('slow')", set()),
        ("pytestmark = pytest.mark.long('opencl')", set()),
        ("def test_it():\n    pytestmark = pytest.mark.slow", set()),
    ],
)
def test_marks_of_a_module_are_in_its_text(tmp_path: Path, statement: str, marks: set[str]) -> None:
    path = tmp_path / "test_module.py"
    path.write_text(f"import pytest\n\n{statement}\n")
    assert module_marks(path) == marks


def test_a_module_that_a_tier_leaves_out_is_not_imported(suite: Path) -> None:
    lines = ("import pytest", "pytestmark = pytest.mark.slow", "open('imported', 'w').close()")
    suite.joinpath("test_module.py").write_text("\n".join(lines))
    chosen(suite, "--tier=fast")
    assert not suite.joinpath("imported").exists()
    chosen(suite, "--tier=test")
    assert suite.joinpath("imported").exists()


def test_a_mark_may_be_for_some_backends(suite: Path) -> None:
    lines = (
        "import pytest",
        "@pytest.mark.long('opencl', 'native')",
        "@pytest.mark.parametrize('backend', ['numpy', 'opencl', 'other'])",
        "def test_it(backend): pass",
    )
    suite.joinpath("test_suite.py").write_text("\n".join(lines))
    assert chosen(suite, "--tier=test") == {"test_it[numpy]", "test_it[other]"}


def test_parts_together_are_all_above_a_tier(suite: Path) -> None:
    above = chosen(suite, "--above=fast")
    parts = [chosen(suite, "--above=fast", f"--part={number}/3") for number in range(3)]
    assert len(above) == 41
    assert sorted(above) == sorted(name for part in parts for name in part)
    assert all(parts)


@pytest.mark.parametrize("part", ["3", "3/3", "-1/3", "a/b", "0/0"])
def test_a_part_that_is_not_one_is_refused(suite: Path, part: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "tiers", "-o", f"pythonpath={TESTS}"]
    done = subprocess.run(
        [*command, f"--part={part}"], capture_output=True, text=True, cwd=suite, check=False
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{part} is not K/N, for a part from 0 to N - 1" in done.stderr


def test_what_takes_long_is_in_a_later_tier(suite: Path) -> None:
    suite.joinpath("tiers.py").write_text((TESTS / "tiers.py").read_text())
    times = {
        f"test_suite.py::test_many[{number}]": number * MOST["test"] / 8 for number in range(40)
    }
    (suite / "durations.json").write_text(json.dumps(times))
    many = {name for name in chosen(suite, "--tier=test") if name.startswith("test_many")}
    assert many == {f"test_many[{number}]" for number in range(8)}
    at_once = MOST["fast"] / MOST["test"] * 8
    assert chosen(suite, "--tier=fast") < {f"test_many[{number}]" for number in range(int(at_once))}
    mean = MOST_TOGETHER / 5
    (suite / "durations.json").write_text(json.dumps({"test_suite.py::test_many": mean}))
    many = {name for name in chosen(suite, "--tier=test") if name.startswith("test_many")}
    assert len(many) == 5


def test_a_file_in_which_all_take_long_has_its_quickest_test(suite: Path) -> None:
    suite.joinpath("tiers.py").write_text((TESTS / "tiers.py").read_text())
    names = ["test_slow", *(f"test_many[{number}]" for number in range(40))]
    times = {f"test_suite.py::{name}": 99.0 - place for place, name in enumerate(names)}
    (suite / "durations.json").write_text(json.dumps(times))
    assert chosen(suite, "--tier=test") == {"test_many[39]"}


def test_durations_are_recorded(suite: Path) -> None:
    suite.joinpath("tiers.py").write_text((TESTS / "tiers.py").read_text())
    suite.joinpath("durations.json").write_text('{"gone.py::test_gone": 2.0}')
    busy = "import time\n\ndef test_busy():\n    while time.process_time() - START < 1.1: pass\n"
    suite.joinpath("test_busy.py").write_text(f"{busy}\nSTART = time.process_time()\n")
    command = [sys.executable, "-m", "pytest", "-p", "tiers", "-q", "--record-durations", "-n", "1"]
    subprocess.run([*command, "-o", "pythonpath=."], cwd=suite, check=True, capture_output=True)
    found = json.loads(suite.joinpath("durations.json").read_text())
    assert found.pop("gone.py::test_gone") == 2.0
    assert list(found) == ["test_busy.py::test_busy"]
    assert found["test_busy.py::test_busy"] >= 1.0


def test_backends_of_other_distributions_are_left_out_unless_named(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = suite / "other-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text("[weft.backends]\nother = weft_other\n")
    cases = "@pytest.mark.parametrize('backend', ['numpy', 'other'])\ndef test_it(backend): pass\n"
    suite.joinpath("test_suite.py").write_text(f"import pytest\n\n{cases}")
    monkeypatch.setenv("PYTHONPATH", str(suite))
    assert chosen(suite) == {"test_it[numpy]"}
    assert chosen(suite, "--weft-backend=other") == {"test_it[numpy]", "test_it[other]"}
