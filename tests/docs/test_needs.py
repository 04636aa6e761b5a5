"""Tests skip where a machine lacks what they need; the last lines say so, or the session ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import needs
import pytest
from needs import EXTRAS, NEEDS, VARIABLE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
FILES = [*ROOT.glob("tests/**/*.py")]

PLUGIN = """
import needs

for name in ("qemu", "wine"):
    needs.NEEDS[name] = needs.NEEDS[name]._replace(absence=lambda: "it was sold")
needs.NEEDS["zig"] = needs.NEEDS["zig"]._replace(absence=lambda: "")
"""

SUITE = """
import pytest
from needs import skip_without

@pytest.mark.parametrize("number", range(3))
@pytest.mark.needs("zig", "qemu")
def test_in_an_emulator(number): raise AssertionError

@pytest.fixture
def wine(): skip_without("wine")

def test_on_windows(wine): raise AssertionError

@pytest.mark.needs("zig")
def test_with_zig(): pass

def test_otherwise():
    pytest.skip("a reason that is not a lack")
"""

MODULE = """
import pytest
pytest.importorskip("no_such_package.part")
"""

EXPECTED = f"""
3 tests need QEMU: {NEEDS["qemu"].source}
1 test needs Wine: {NEEDS["wine"].source}
1 file needs the package no_such_package: pip install 'weftc[dev]'
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    for name, text in (("sold", PLUGIN), ("test_suite", SUITE), ("test_module", MODULE)):
        tmp_path.joinpath(f"{name}.py").write_text(text)
    return tmp_path


def run(suite: Path, *options: str, require: str = "") -> subprocess.CompletedProcess[str]:
    plugins = ["-p", "tiers", "-p", "needs", "-p", "sold", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-o", f"pythonpath={TESTS} .", *plugins, *options],
        capture_output=True, text=True, cwd=suite, check=False,
        env={**os.environ, VARIABLE: require, "COLUMNS": "200", "PYTHONPATH": f"{TESTS}:{suite}"},
    )  # fmt: skip


def test_the_last_lines_count_what_was_not_tried(suite: Path) -> None:
    done = run(suite, "-n", "2")
    assert "1 passed, 6 skipped" in done.stdout
    assert EXPECTED in done.stdout
    assert done.returncode == 0


def test_nothing_is_said_where_all_is_there_that_is_required(suite: Path) -> None:
    done = run(suite, "-k", "with_zig or otherwise", "test_suite.py", require="zig")
    assert "1 passed, 1 skipped" in done.stdout
    assert "not tried here" not in done.stdout


def test_what_is_required_and_absent_ends_the_session_at_once(suite: Path) -> None:
    done = run(suite, "-n", "2", require="zig, qemu")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = done.stdout + done.stderr
    assert f"{VARIABLE} names what is not here:" in said
    assert f"QEMU: it was sold; {NEEDS['qemu'].source}" in said
    assert "passed" not in said
    assert "Zig" not in said


def test_a_name_that_nothing_has_is_refused(suite: Path) -> None:
    done = run(suite, require="compiller")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    said = done.stdout + done.stderr
    assert f"{VARIABLE} names compiller; it can name opencl, webgpu, compiler," in said


def test_what_is_lost_later_fails_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NEEDS, "zig", NEEDS["zig"]._replace(absence=lambda: "it was sold"))
    monkeypatch.setenv(VARIABLE, "zig")
    needs.absence.cache_clear()
    with pytest.raises(pytest.fail.Exception, match="names zig: it was sold"):
        needs.skip_without("zig")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(pytest.skip.Exception, match="needs zig: it was sold"):
        needs.skip_without("zig")
    needs.absence.cache_clear()


WITHOUT_GPU = """
import tiers
tiers.is_left_out = lambda config, backend: backend == "cupy"
"""


def test_what_was_left_out_for_want_of_a_backend_is_counted(tmp_path: Path) -> None:
    tmp_path.joinpath("sold.py").write_text(WITHOUT_GPU)
    tests = '@pytest.mark.parametrize("backend", ["numpy", "cupy"])\ndef test_it(backend): pass\n'
    tmp_path.joinpath("test_suite.py").write_text(f"import pytest\n{tests}")
    done = run(tmp_path, "-n", "2")
    assert "1 passed" in done.stdout
    assert f"1 test needs an NVIDIA GPU: {NEEDS['gpu'].source}\n" in done.stdout


def test_wheels_are_asked_for_only_where_something_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in list(NEEDS):
        monkeypatch.setitem(NEEDS, name, NEEDS[name]._replace(absence=lambda: ""))
    assert needs.missing_wheels() == []
    monkeypatch.setitem(NEEDS, "compiler", NEEDS["compiler"]._replace(absence=lambda: "none"))
    assert needs.missing_wheels() == ["ziglang"]


def literals() -> set[str]:
    """Return the names that tests give to the mark and to the function."""
    calls = re.compile(r"\b(?:mark\.needs|skip_without)\(([^)]*)\)")
    given = (each for path in FILES for each in calls.findall(path.read_text()))
    return {name for each in given for name in re.findall(r'"([^"]+)"', each)}


def test_each_name_is_known_and_used() -> None:
    assert literals() - set(NEEDS) == set()
    text = "".join(path.read_text() for path in FILES if path != Path(__file__))
    assert [name for name in NEEDS if f'"{name}"' not in text] == []


def test_only_this_mechanism_skips_for_what_a_machine_lacks() -> None:
    """What is skipped otherwise is so on every machine."""
    own = {Path(__file__), ROOT / "tests" / "plugins" / "test_pytest_plugin.py"}
    conditions = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in FILES
        if path not in own
        for line in path.read_text().splitlines()
        if re.search(r"skipif\(|importorskip\(.*reason=", line)
    }
    assert conditions == set()


def test_extras_bring_the_packages() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    brought = dict(re.findall(r"^(\w+) = (\[[^]]*\])", text, flags=re.MULTILINE))
    names = {"docutils": "sphinx"}
    for extra, packages in EXTRAS.items():
        assert [each for each in packages if names.get(each, each) not in brought[extra]] == []
