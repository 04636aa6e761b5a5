"""What the Makefile runs is there, and its tests of devices are described."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
RECIPES = dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE))
OF_TIERS = ("test-all", "test-part", "test-lowest")
OF_PACKAGES = ("test-targets", "test-torch")
OF_DEVICES = [
    name for name in RECIPES if name.startswith("test-") and name not in (*OF_TIERS, *OF_PACKAGES)
]


def test_every_path_that_a_target_names_is_there() -> None:
    used = "".join(recipe for name, recipe in RECIPES.items() if name != "clean")
    named = set(re.findall(r" ((?:benchmarks|core|docs|examples|tests)/[\w/.]+)", used))
    assert len(named) > 5
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", OF_DEVICES)
def test_targets_that_test_a_device_are_described_and_run_the_kit(name: str) -> None:
    assert f"`make {name}`" in (ROOT / "docs" / "backends.md").read_text()
    assert re.search(r"--weft-backend=\w+ .*core/weft/testing", RECIPES[name])


def test_there_are_such_targets() -> None:
    assert OF_DEVICES == ["test-gpu", "test-intel"]


def printed(*options: str) -> str:
    """Return what make would run; it knows nothing of a make that runs these tests."""
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    environment.pop("MFLAGS", None)
    done = subprocess.run(
        ["make", "--dry-run", *options],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.needs("make")
@pytest.mark.parametrize(
    ("system", "tools"), [("Windows_NT", ".venv/Scripts/"), ("", ".venv/bin/")]
)
def test_tools_are_where_each_system_has_them(system: str, tools: str) -> None:
    text = printed("--always-make", "lint", f"OS={system}")
    lines = [line for line in text.splitlines() if line.startswith(".venv/")]
    assert len(lines) > 3
    assert all(line.startswith(tools) for line in lines)


@pytest.mark.needs("make")
def test_each_target_installs_what_it_needs_and_no_more(tmp_path: Path) -> None:
    def commands(target: str) -> str:
        return printed(target, f"VENV={tmp_path}")

    extras = re.compile(r"--editable '\.\[(.*)\]'")
    assert extras.findall(commands("demo")) == ["demo"]
    assert extras.findall(commands("fast")) == extras.findall(commands("test")) == ["dev"]
    assert "tests/needs.py" in commands("test")
    assert "tests/needs.py" not in commands("fast") + commands("demo")
    assert all("-m venv" in commands(target) for target in ("demo", "fast", "test"))
    for name in ("pyvenv.cfg", "ready"):
        (tmp_path / name).touch()
    assert "pip install" not in commands("demo"), "the tools include what the demo needs"
