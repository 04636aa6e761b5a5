"""The example prints the listing of the document, and computes what it says."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hamkaas_decoder import STORIES_15M, decode_step, weights
from hamkaas_models import MNIST
from typer.testing import CliRunner

import weft_hamkaas as hk
from weft.cli.app import app
from weft.kernels import FusedOp
from weft_hamkaas import ConstantTensor, InputTensor

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "hamkaas_mnist.py"
DECODER = Path(__file__).with_name("hamkaas_decoder.py")


PAGE = (ROOT / "docs" / "hamkaas.md").read_text()


def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *arguments: Any,
    program: Path = EXAMPLE,
):
    monkeypatch.setattr(sys, "argv", [str(program), *arguments])
    runpy.run_path(str(program), run_name="__main__")
    return capsys.readouterr().out


def test_the_example_prints_the_listing_to_the_byte(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(monkeypatch, capsys) == MNIST


def test_the_example_is_computed_and_close_to_numpy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    said = run(monkeypatch, capsys, "--evaluate")
    assert said.startswith(MNIST)
    assert "arena 512000 bytes" in said
    assert float(said.split()[-1]) < 1e-4


def test_the_page_shows_what_the_command_prints_of_the_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "digits.hk").write_text(run(monkeypatch, capsys))
    command = ["run", str(tmp_path / "digits.hk"), "--plan", "--backend", "numpy"]
    account = CliRunner().invoke(app, command).stdout.rpartition("\n\n")[2]
    assert account.startswith("ops captured")
    assert f"```\n{account}```\n" in PAGE


@pytest.mark.parametrize("program", [EXAMPLE, DECODER], ids=["digits", "decoder"])
def test_the_page_shows_which_steps_became_which_kernels(
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    model = tmp_path / "model.hk"
    model.write_text(run(monkeypatch, capsys, program=program))
    done = CliRunner().invoke(app, ["run", str(model), "--steps", "--backend", "numpy"])
    assert done.stdout.startswith("steps before fusion")
    assert f"$ python {program.relative_to(ROOT)} > " in PAGE
    assert f"```\n{done.stdout}```\n" in PAGE


@pytest.mark.parametrize(
    ("columns", "kernels"),
    [(4, ["multiply_add_relu_matmul"]), (4000, ["multiply_add_relu", "matmul_relu"])],
)
def test_what_stands_before_a_narrow_product_is_in_its_kernel(columns: int, kernels: list[str]):
    x = InputTensor("x", "float32", [2, 3])
    product = (x + x * x).relu() @ ConstantTensor(np.ones((3, columns), np.float32))
    model = hk.HamKaasPlugin("numpy").compile_model(product.relu())
    assert [step.op.kernel.title for step in model.computation.plan.steps] == kernels
    given = np.arange(6, dtype=np.float32).reshape(2, 3) - 3
    wanted = np.maximum(given + given**2, 0).sum(1, keepdims=True).repeat(columns, 1)
    np.testing.assert_allclose(model.evaluate({"x": given}), wanted)


def test_a_decode_step_becomes_as_few_kernels_as_the_page_says():
    node = decode_step(STORIES_15M, weights(STORIES_15M, zero=True))
    model = hk.HamKaasPlugin("numpy").compile_model(node)
    found = model.fusion_statistics
    assert found.ops > 300
    assert 100 <= found.steps <= 120
    assert 0.4 < found.kernels / found.steps < 0.6
    assert found.fused > 250
    assert round(found.bytes_moved / 1e6) == 65
    kernels = [s.op.kernel for s in model.computation.plan.steps if isinstance(s.op, FusedOp)]
    assert len({kernel.title for kernel in kernels}) < 10
