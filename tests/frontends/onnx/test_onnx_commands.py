"""`weft run`, `weft show`, `weft bench` and `weft profile` on models."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx_models import declared, made, node
from typer.testing import CliRunner

from weft.cli.app import app
from weft.report import progress


@pytest.fixture
def path(tmp_path):
    model = made(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y")],
        [declared("x", ["batch", 3])],
        ["y"],
        {"w": np.full((3, 4), 2, "float32")},
    )
    found = tmp_path / "model.onnx"
    found.write_bytes(model.SerializeToString())
    return found


def command(*arguments, code=0):
    found = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert found.exit_code == code, found.output
    return found.output


def test_a_model_is_run(path, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1, 3), "float32"))
    output = tmp_path / "y.npy"
    command("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", output)
    np.testing.assert_array_equal(np.load(output), np.full((1, 4), 6))


def test_a_model_is_shown(path):
    found = json.loads(command("show", path, "--backend", "numpy", "--json"))
    assert found == {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 3]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
        "ops": {"Matmul": 1, "Relu": 1},
        "parameters": {"numbers": 12, "bytes": 48},
        "backends": {"numpy": {"kernels": 1, "memory": 0}},
    }
    text = command("show", path, "--backend", "numpy")
    for word in ("inputs", "Matmul", "parameters", "numpy"):
        assert word in text


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("run", ["tracing nodes", "compiling run"]),
        ("show", ["tracing nodes", "planning"]),
        ("bench", ["tracing nodes", "compiling run", "calling"]),
        ("profile", ["tracing nodes", "compiling run", "calling run"]),
    ],
)
def test_what_a_command_is_at_can_be_shown(path, tmp_path, monkeypatch, name, steps):
    entered = []
    enter = progress._board.enter

    def note(stage):
        entered.append(stage)
        enter(stage)

    monkeypatch.setattr(progress._board, "enter", note)
    np.save(tmp_path / "x.npy", np.ones((1, 3), "float32"))
    given = ["--input", f"x={tmp_path / 'x.npy'}"] if name == "run" else []
    command(name, path, "--backend", "numpy", *given)
    titles = [each.title for each in entered]
    assert titles[0] == f"reading {path}"
    assert [each for each in titles if each in steps][: len(steps)] == steps
    (traced,) = [each for each in entered if each.title == "tracing nodes"]
    assert traced.done == traced.total == 2


def test_a_model_is_timed(path):
    found = json.loads(command("bench", path, "--backend", "numpy", "--repeat", 3, "--json"))
    assert found["backend"] == "numpy"
    assert 0 < found["fastest"] <= found["median"] <= found["first"]
    assert "calls a second" in command("bench", path, "--backend", "numpy", "--repeat", 3)

    assert "matmul_relu" in command("bench", path, "--backend", "numpy", "--repeat", 3)


def test_a_model_is_profiled(path, tmp_path):
    trace = tmp_path / "trace.json"
    options = ("--backend", "numpy", "--repeat", 2)
    found = json.loads(command("profile", path, *options, "--trace", trace, "--json"))
    assert [row["name"] for row in found["rows"]] == ["matmul_relu"]
    assert found["rows"][0]["flops"] == 2 * 3 * 4 + 4
    assert json.loads(trace.read_text())["traceEvents"]
    assert "matmul_relu" in command("profile", path, *options)
    command("profile", path, *options, "--html", tmp_path / "profile.html")
    assert "matmul_relu" in (tmp_path / "profile.html").read_text()
    refused = command("profile", path, *options, "--trace", tmp_path, code=1)
    assert "is a folder" in refused


def test_a_model_is_shown_as_a_page(path, tmp_path):
    page = tmp_path / "report.html"
    command("show", path, "--backend", "numpy", "--html", page)
    assert "matmul_relu" in page.read_text()
    refused = command("show", path, "--backend", "numpy", "--html", tmp_path, code=1)
    assert "is a folder" in refused


@pytest.mark.parametrize("name", ["show", "bench", "profile"])
def test_what_cannot_be_read_is_one_line(name, tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x00\x01")
    output = command(name, path, code=1)
    assert "is no ONNX model" in output
    assert "Traceback" not in output
    assert "No such file" in command(name, tmp_path / "none.onnx", code=1)
