"""The example prints the listing of the document, and computes what it says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from hamkaas_models import MNIST

EXAMPLE = Path(__file__).parents[3] / "examples" / "hamkaas_mnist.py"


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    return capsys.readouterr().out


def test_the_example_prints_the_listing_to_the_byte(monkeypatch, capsys):
    assert run(monkeypatch, capsys) == MNIST


def test_the_example_is_computed_and_close_to_numpy(monkeypatch, capsys):
    said = run(monkeypatch, capsys, "--evaluate")
    assert said.startswith(MNIST)
    assert "arena 512000 bytes" in said
    assert float(said.split()[-1]) < 1e-4
