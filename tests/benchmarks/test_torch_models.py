"""The nine models of torch: engines agree before they are timed, and artifacts need no torch."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_models

from weft.text.printer import labels

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from weft.cli.app import app
"""


def outcome(weft: float, inductor: float) -> torch_models.Outcome:
    seconds = {"weft": weft, "inductor": inductor, "eager": 3.0}
    first = {"weft": [1.0, 2.0], "inductor": [4.0, 8.0]}
    added = {"weft": 2_000_000, "inductor": 3_000_000, "eager": 1_000_000}
    return torch_models.Outcome("m", {"forward": seconds, "step": seconds}, first, added)


def test_tables_have_a_row_for_each_model_and_geometric_means() -> None:
    lines = list(torch_models.tables([outcome(1.0, 2.0), outcome(4.0, 2.0)]))
    assert (
        "| m | 1000.00 | 2000.00 | 3000.00 | 0.50 | 1000.00 | 2000.00 | 3000.00 | 0.50 |" in lines
    )
    assert "| geometric mean |  |  |  | 1.00 |  |  |  | 1.00 |" in lines
    assert "| m | 1.0 | 4.0 | 2.0 | 8.0 | 0.25 | 2 | 3 | 1 |" in lines
    assert {line.count("|") for line in lines if line} == {10}


def test_the_page_has_the_marks() -> None:
    text = torch_models.RESULTS.read_text(encoding="utf-8")
    assert text.index(torch_models.OPENING) < text.index(torch_models.CLOSING)


@pytest.fixture
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let models be made as in a child, and packages warn."""
    monkeypatch.setenv("WEFT_NUM_THREADS", "1")
    with warnings.catch_warnings():
        yield


@pytest.mark.slow
@pytest.mark.needs("torch")
@pytest.mark.needs("compiler")
@pytest.mark.usefixtures("_one_thread")
def test_wrong_results_are_not_timed() -> None:
    model = torch_models.made("mlp")
    eager = torch_models.runs(model, "eager")
    compiled = {"weft": torch_models.runs(model, "weft"), "inductor": eager, "eager": eager}
    for work in torch_models.WORK:
        torch_models.require_equal("mlp", work, model, compiled)
    compiled["inductor"] = {"forward": lambda: 1.01 * eager["forward"]()}
    with pytest.raises(AssertionError, match="forward of mlp by inductor: wrong by"):
        torch_models.require_equal("mlp", "forward", model, compiled)


@pytest.mark.slow
@pytest.mark.needs("torch-zoo")
@pytest.mark.usefixtures("_one_thread")
def test_artifacts_of_the_models_run_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    import torch

    import weft_torch

    class Result(torch.nn.Module):
        """A model as a function of tensors with one result."""

        def __init__(self, model: torch_models.Model) -> None:
            super().__init__()
            self.model, self.module = model, model.module

        def forward(self, *args: Any) -> Any:
            count = len(self.model.args)
            named = dict(zip(self.model.kwargs, args[count:], strict=True))
            return self.model._replace(args=args[:count], kwargs=named).forward(self.module)

    commands, expected = [], {}
    for name in torch_models.MODELS:
        model = torch_models.made(name)
        args = (*model.args, *model.kwargs.values())
        program = torch.export.export(Result(model).eval(), args, strict=False)
        run = weft_torch.from_exported(program, "numpy")
        run.save(artifact := tmp_path / f"{name}.weft", states=True)
        with torch.no_grad():
            expected[name] = Result(model).eval()(*args).numpy()
        command = ["run", str(artifact), "--backend", "numpy"]
        command += ["--output", str(tmp_path / f"{name}.npy")]
        for label, array in zip(labels(run.parameters).values(), args, strict=True):
            np.save(file := tmp_path / f"{name}-{label}.npy", array.numpy())
            command += ["--input", f"{label}={file}"]
        commands.append(f"app({command}, standalone_mode=False)")
    program = "\n".join([WITHOUT_TORCH, *commands])
    subprocess.run([sys.executable, "-c", program], check=True)
    for name, value in expected.items():
        found = np.load(tmp_path / f"{name}.npy")
        np.testing.assert_allclose(found, value, 1e-3, 1e-4 * np.abs(value).max())
