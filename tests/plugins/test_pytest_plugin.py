"""The pytest plugin: which backends are tested, what fails and what skips."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from plugin_site import Site, backend

from weft.testing.table import TABLE
from weft_pytest import ONE_IN, Sample

pytestmark = pytest.mark.slow

SUITE = """
import pytest

def test_it(backend):
    pass

@pytest.mark.weft_skip_backend("numpy", reason="not on this one")
def test_skipped(backend):
    pass

@pytest.mark.weft_xfail_backend("numpy", reason="wrong there", raises=ZeroDivisionError)
def test_wrong(backend):
    1 / 0
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    folder.mkdir()
    folder.joinpath("test_suite.py").write_text(SUITE)
    return folder


def run_pytest(
    folder: Path, *options: str, paths: tuple[Path, ...] = (), off: str = ""
) -> tuple[int, str]:
    disabled = f"backends:opencl,backends:cupy,backends:native,{off}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *options],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "WEFT_DISABLE_PLUGINS": disabled,
        },
        capture_output=True,
        text=True,
        cwd=folder,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def packages(site: Site) -> tuple[Path, ...]:
    """Backends that are broken, each in its way, and one whose device is not there."""
    site.install(
        "weft-many",
        "[weft.backends]\nbroken = broken_engine\nasleep = asleep_engine\nodd = odd_engine\n"
        "twin = asleep_engine\nlost = lost_engine\n",
        {
            "broken_engine": "raise OSError('x')\n",
            "asleep_engine": backend("asleep", "return None, 'no card: plug one in'"),
            "odd_engine": backend("odd", "return 'ab'"),
            "lost_engine": "import a_missing_driver\n",
        },
        extras=("lost",),
    )
    site.install("weft-twin", "[weft.backends]\ntwin = asleep_engine\n", {})
    return tuple(site.root / name for name in ("weft-many", "weft-twin"))


def test_what_is_broken_fails_and_what_has_no_device_skips(
    suite: Path, packages: tuple[Path, ...]
) -> None:
    status, out = run_pytest(suite, "-k", "test_it", paths=packages)
    assert status == 1
    assert "1 passed, 2 skipped, 12 deselected, 3 errors" in out
    for words in (
        "no card: plug one in",
        "OSError: x",
        "its probe returned 'ab'",
        "more than once",
    ):
        assert words in out
    assert "pip install 'weft-many[lost]'" in out


@pytest.mark.long
def test_all_that_are_usable_are_tested_and_what_is_broken_fails(
    suite: Path, packages: tuple[Path, ...]
) -> None:
    options = ("-k", "test_it", "--weft-backend=usable")
    _, out = run_pytest(suite, *options, paths=packages)
    assert "1 passed" in out
    assert "3 errors" in out
    assert "skipped" not in out
    status, out = run_pytest(suite, *options, paths=packages, off="broken,odd,twin")
    assert status == 0
    assert "1 passed" in out


def test_a_named_backend_without_its_device_fails(suite: Path, packages: tuple[Path, ...]) -> None:
    options = ("-k", "test_it", "--weft-backend=asleep", "--weft-backend=numpy")
    status, out = run_pytest(suite, *options, paths=packages)
    assert status == 1
    assert "backend 'asleep' is not usable: no card: plug one in" in out
    assert "1 passed" in out
    assert "1 error" in out


def test_a_name_that_is_not_installed_is_one_usage_error(suite: Path) -> None:
    status, out = run_pytest(suite, "--weft-backend=nmba")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert out.count("There is no backend named 'nmba'.") == 1
    assert "--weft-backend=nmba" in out


@pytest.mark.long
def test_the_ini_file_and_marks_choose(suite: Path) -> None:
    suite.joinpath("pytest.ini").write_text("[pytest]\nweft_backend = numpy\nweft_level = values\n")
    status, out = run_pytest(suite, "--strict-markers")
    assert status == 0
    assert "1 passed, 1 skipped, 1 xfailed" in out
    assert "not on this one" in out
    suite.joinpath("pytest.ini").write_text("[pytest]\nweft_backend = nmba\n")
    assert run_pytest(suite)[0] == pytest.ExitCode.USAGE_ERROR
    suite.joinpath("pytest.ini").write_text("[pytest]\nweft_level = everything\n")
    status, out = run_pytest(suite)
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "there are values, gradients" in out


def test_weft_is_not_imported_before_it_is_used(tmp_path: Path) -> None:
    text = "import sys\ndef test_it(): assert not {'weft', 'numpy'} & set(sys.modules)\n"
    tmp_path.joinpath("test_stranger.py").write_text(text)
    status, out = run_pytest(tmp_path, "test_stranger.py")
    assert status == 0, out


def test_the_wheel_holds_the_plugin_beside_the_package(tmp_path: Path) -> None:
    builder = WheelBuilder(str(Path(__file__).parents[2]))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "[pytest11]\nweft = weft_pytest\n" in opened.read(entry_points).decode()
    assert {"weft_pytest.py", "weft/__init__.py"} <= set(names)


class _Item:
    """What the sample looks at of a test."""

    def __init__(self, row: object, dtype: str) -> None:
        self.callspec = self
        self.params = {"row": row, "dtype": dtype}

    def get_closest_marker(self, name: str) -> object:
        return name


def test_the_sample_has_one_row_of_some_functions_in_every_dtype() -> None:
    sample = Sample()
    taken = [
        (row.function, dtype)
        for row in TABLE
        for dtype in row.dtypes
        if sample.takes(_Item(row, dtype))  # type: ignore[arg-type]
    ]
    functions = {row.function for row in TABLE}
    assert max(Counter(function for function, _ in taken).values()) == 1
    assert len(functions) / ONE_IN / 2 < len(taken) < len(functions) / ONE_IN * 2
    assert {dtype for _, dtype in taken} >= {"float32", "float64", "int32", "bool"}
