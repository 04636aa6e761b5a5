"""A part of the kit with each compiler that the backend supports beside the system's default."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from needs import skip_without

pytestmark = pytest.mark.long

KIT = str(Path(__file__).parents[3] / "core" / "weft" / "testing")
PARTS = {"clang": "3/10", "zig": "7/10"}
"""Which part a compiler gets."""


def command_of(compiler: str) -> str:
    """Return the value of WEFT_CC for a compiler; skips where it is not there."""
    skip_without(compiler)
    return f"{sys.executable} -m ziglang cc" if compiler == "zig" else compiler


@pytest.mark.parametrize("compiler", PARTS)
def test_a_part_of_the_kit_passes(compiler: str, tmp_path: Path) -> None:
    environment = {**os.environ, "WEFT_CC": command_of(compiler), "WEFT_CACHE_DIR": str(tmp_path)}
    options = ["--weft-backend=native", f"--part={PARTS[compiler]}", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, KIT],
        capture_output=True, text=True, env=environment, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"
