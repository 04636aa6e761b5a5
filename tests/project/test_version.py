"""The version is written once, in the package, and the metadata is read from there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import weft

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_metadata_has_the_version_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == weft.__version__


def test_the_version_is_written_once() -> None:
    assert "version" not in PYPROJECT["project"]
    assert PYPROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PYPROJECT["tool"]["hatch"]["version"]["path"]
    assert source.samefile(str(weft.__file__))
    found = [
        (path, line)
        for path in sorted((ROOT / "core").rglob("*.py"))
        for line in re.findall(r"^__version__ *=.*", path.read_text(), re.MULTILINE)
    ]
    assert found == [(source, f'__version__ = "{weft.__version__}"')]


def test_a_version_is_that_of_the_latest_release_or_one_on_the_way_to_the_next() -> None:
    """A number that was released is never given to other code."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    number, _, suffix = weft.__version__.partition(".dev")
    if suffix:
        assert all(_parts(number) > _parts(each) for each in headings[1:])
    else:
        assert number == headings[1]


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_license_is_shipped_and_named() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "the weft authors" in text
    assert PYPROJECT["project"]["license"] == "Apache-2.0"
    assert PYPROJECT["project"]["license-files"] == ["LICENSE"]
