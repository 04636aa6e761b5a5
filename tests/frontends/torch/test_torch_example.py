"""The example that trains a network of torch and runs it without torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import skip_without_backend

SCRIPT = Path(__file__).parents[3] / "examples" / "torch_digits.py"


@pytest.mark.long
def test_a_network_learns_digits_and_runs_without_torch() -> None:
    pytest.importorskip("sklearn")
    skip_without_backend("opencl")
    found = subprocess.run(
        [sys.executable, str(SCRIPT), "--backend", "opencl", "--epochs", "2"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    (share,) = re.findall(r"without torch: ([\d.]+)% of 450 other digits", found.stdout)
    assert float(share) > 85
