from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import weft_popxl as popxl

pytestmark = pytest.mark.slow

pytest.importorskip("sklearn")

SCRIPT = Path(__file__).parents[2] / "examples" / "popxl_mnist.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("popxl_mnist", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["popxl_mnist"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


mnist: Any = _loaded()


def test_it_reads_94_of_100_digits(backend: str) -> None:
    result = CliRunner().invoke(mnist.app, ["--backend", backend, "--epochs", "15"])
    assert result.exit_code == 0, result.output
    found = re.search(r"^accuracy +(0\.\d{4})", result.output, flags=re.MULTILINE)
    assert found, result.output
    assert float(found[1]) > 0.94


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--backend", "quantum"], "quantum"), (["--learning-rate", "1e30"], "--learning-rate")],
)
def test_what_is_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(mnist.app, arguments)
    assert result.exit_code == 1
    assert result.output.startswith("popxl_mnist.py: ")
    assert words in result.output


def test_one_step_is_that_of_the_formula() -> None:
    weights = mnist.initial_weights(3)
    digits, _ = mnist.load()
    x, labels = digits.images[:8], digits.labels[:8]
    program = mnist.training(weights, 8, 0.5)
    with popxl.Session(program.ir) as session:
        found = session.run(dict(zip(program.inputs, (x, labels), strict=True)))
    data = session.get_tensors_data(program.variables.values())
    z = x @ weights["W0"] + weights["b0"]
    tanh = np.tanh(0.7978845608 * z + 0.03567740814 * z**3)
    hidden = 0.5 * z * (1 + tanh)
    logits = hidden @ weights["W1"] + weights["b1"]
    chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    loss = -np.log(chances[np.arange(8), labels]).mean()
    np.testing.assert_allclose(found[program.output], loss, rtol=1e-5)
    slope = (chances - np.eye(10)[labels]) / 8
    inner = 0.7978845608 + 3 * 0.03567740814 * z**2
    below = slope @ weights["W1"].T * (0.5 * (1 + tanh) + 0.5 * z * (1 - tanh**2) * inner)
    gradients = {"W1": hidden.T @ slope, "b1": slope.sum(0), "W0": x.T @ below, "b0": below.sum(0)}
    for name, gradient in gradients.items():
        moved = weights[name] - 0.5 * gradient
        np.testing.assert_allclose(data[program.variables[name]], moved, rtol=1e-4, atol=1e-6)
