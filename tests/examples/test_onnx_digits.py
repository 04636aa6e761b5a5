"""The example that fine-tunes an ONNX model."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft_onnx

SCRIPT = Path(__file__).parents[2] / "examples" / "onnx_digits.py"


@pytest.mark.slow
def test_a_model_of_five_digits_learns_ten(tmp_path: Path):
    pytest.importorskip("sklearn")
    path = tmp_path / "tuned.onnx"
    found = subprocess.run(
        [sys.executable, str(SCRIPT), "--epochs", "5", "--output", str(path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = (float(share) for share in re.findall(r"([\d.]+)% of all", found.stdout))
    assert before < 60
    assert after > 85
    assert list(weft_onnx.load(path).inputs) == ["x"]
