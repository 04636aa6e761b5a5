"""Models that were changed at random: each runs, or is refused with an error of weft's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.needs("posix")]

PROGRAM = Path(__file__).parent / "onnx_mutants.py"
EACH = 1000
CHUNKS = 20


def failures(corpus: str, first: int, last: int) -> list[str]:
    """Return what is wrong with mutants that are tried in a process of their own."""
    done = subprocess.run(
        [sys.executable, PROGRAM, corpus, str(first), str(last)], capture_output=True, text=True,
        timeout=900, env={**os.environ, "WEFT_CACHE": "0"},
    )  # fmt: skip
    *found, ending = done.stdout.splitlines() or [""]
    assert ending == f"tried {last - first}", done.stderr[-2000:] or done.stdout[-2000:]
    return found


@pytest.mark.slow
def test_some_mutants_run_or_are_refused() -> None:
    assert failures("few", 0, 300) == []


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_mutants_run_or_are_refused(chunk: int) -> None:
    assert failures("all", EACH * (chunk + 1), EACH * (chunk + 2)) == []
