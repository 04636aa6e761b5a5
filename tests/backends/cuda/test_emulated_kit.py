"""The conformance kit, executed in CUDA C and in OpenCL C for parallel devices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

PARTS = 10
"""Parts into which the kit is cut, each of which takes some minutes."""


def run_kit(folder: Path, form: str, *arguments: str) -> tuple[int, str]:
    """Run tests of the kit; returns how many launches there were, and what was printed."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "emulated_kit", "-p", "tiers",
        "-p", "no:cacheprovider",
        "--weft-backend=cupy", f"--form={form}", f"--kernels={folder}", "--pyargs", *arguments,
    ]  # fmt: skip
    folders = str(Path(__file__).parent), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join(folders)
    environment = os.environ | {"PYTHONPATH": path, "WEFT_CACHE": "0"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    found = re.search(r"emulated launches: (\d+)", done.stdout)
    assert found is not None
    return int(found[1]), done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("form", ["cuda", "opencl"])
def test_the_whole_kit(tmp_path: Path, form: str, part: int) -> None:
    launches, printed = run_kit(tmp_path, form, f"--part={part}/{PARTS}", "weft.testing")
    assert launches > 1_500
    assert re.search(r"\b[3-9]\d{2,} passed", printed)


@pytest.mark.usefixtures("emulator")
def test_long_products_on_many_units(tmp_path: Path) -> None:
    """Parts, work items and rows of the product of a column multiply without rounding each time."""
    module = "weft.testing.test_reductions"
    launches, printed = run_kit(
        tmp_path, "cuda", "--units=132", "-k=long_products and float32", module
    )
    assert launches > 5
    assert "1 passed" in printed
