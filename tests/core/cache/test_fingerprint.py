"""Code counts by the file that it is in: a module, a zip file, or a frozen program."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from weft.cache import fingerprint as module
from weft.cache.fingerprint import fingerprint
from weft.cache.structure import NotCanonical

LONG_AGO = 10**9


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    module._of_package.cache_clear()


def archive(folder: Path, name: str, code: str, time: int = LONG_AGO) -> Path:
    path = folder / f"{name}.pyz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}/__init__.py", code)
        file.writestr(f"{name}_alone.py", code)
    os.utime(path, (time, time))
    return path


def test_a_package_in_a_zip_file_counts_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(archive(tmp_path, "in_a_zip", "x = 1"))
    for name in ("in_a_zip", "in_a_zip_alone"):
        (before,) = {fingerprint([f"{name}.inner"]) for _ in range(2)}
        module._of_package.cache_clear()
        archive(tmp_path, "in_a_zip", "x = 1", LONG_AGO + 1)
        assert fingerprint([f"{name}.inner"]) != before
        module._of_package.cache_clear()
        archive(tmp_path, "in_a_zip", "x = 1")


def test_a_package_in_a_frozen_program_counts_by_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start unpacks the files beside the program's code into another folder."""
    program = tmp_path / "program"
    found = set()
    for start, time in enumerate([LONG_AGO, LONG_AGO, LONG_AGO + 1]):
        unpacked = tmp_path / f"_MEI{start}"
        package = unpacked / "in_a_program"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        program.touch()
        os.utime(program, (time, time))
        with monkeypatch.context() as patch:
            patch.syspath_prepend(unpacked)
            patch.setattr(sys, "_MEIPASS", str(unpacked), raising=False)
            patch.setattr(sys, "executable", str(program))
            found.add(fingerprint(["in_a_program"]))
        module._of_package.cache_clear()
    assert len(found) == 2


@pytest.mark.parametrize("name", ["sys", "no_such_package", "__main__"])
def test_what_has_no_file_is_refused(name: str) -> None:
    with pytest.raises(NotCanonical):
        module._of_package(name)
