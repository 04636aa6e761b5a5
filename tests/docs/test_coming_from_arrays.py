"""The page for those who come from NumPy, JAX or PyTorch: programs in both forms do the same."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-numpy-jax-pytorch.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"```(python|py)\n(.*?)```", re.DOTALL)


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def run_both(title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the blocks of a section in their order, and return what theirs and those of weft set."""
    scopes: dict[str, dict[str, Any]] = {"py": {}, "python": {}}
    for language, code in BLOCK.findall(section(title)):
        exec(compile(code, f"{title}.py", "exec"), scopes[language])
    return scopes["py"], scopes["python"]


def test_four_programs_take_fifteen_lines() -> None:
    blocks = pages.BLOCK.findall(section("Four programs"))
    lines = [line for code, _ in blocks for line in code.splitlines() if line.strip()]
    assert len(blocks) == 4
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100


def test_gradients_of_a_scan_are_those_of_jax() -> None:
    pytest.importorskip("jax")
    theirs, ours = run_both("From JAX")
    np.testing.assert_allclose(ours["costs"], theirs["costs"], rtol=1e-4)


@pytest.mark.needs("torch")
def test_weights_go_to_pytorch_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("safetensors")
    importlib.import_module("torch").set_num_threads(1)  # they spin where tests run side by side
    monkeypatch.chdir(tmp_path)
    theirs, ours = run_both("From PyTorch")
    assert ((theirs["scores"] > 0) == ours["y"]).mean() > 0.95
    scores = theirs["model"](theirs["inputs"]).detach().numpy()
    np.testing.assert_allclose(scores, ours["scores"], rtol=1e-3, atol=1e-3)
    again = ours["weft"].jit(ours["model"])(ours["params"], ours["x"])
    np.testing.assert_array_equal(again, ours["scores"])
