"""`weft run`, `weft show`, `weft bench` and `weft profile` on models."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import declared, made, node
from typer.testing import CliRunner

import weft
from weft.cli.app import app
from weft.report import progress
from weft.report.page import unpacked
from weft.report.progress import Stage


@pytest.fixture
def path(tmp_path: Path):
    model = made(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y")],
        [declared("x", ["batch", 3])],
        ["y"],
        {"w": np.full((3, 4), 2, "float32")},
    )
    found = tmp_path / "model.onnx"
    found.write_bytes(model.SerializeToString())
    return found


def command(*arguments: Any, code: int = 0):
    found = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert found.exit_code == code, found.output
    return found.output


def test_a_model_is_run(path: Path, tmp_path: Path):
    np.save(tmp_path / "x.npy", np.ones((1, 3), "float32"))
    output = tmp_path / "y.npy"
    command("run", path, "--input", f"x={tmp_path / 'x.npy'}", "--output", output)
    np.testing.assert_array_equal(np.load(output), np.full((1, 4), 6))


def test_load_takes_the_lengths_that_a_model_leaves_open(path: Path):
    run = weft.load(path, "numpy", lengths={"batch": 2})
    np.testing.assert_array_equal(run(np.ones((2, 3), "float32"))[0], np.full((2, 4), 6))
    with pytest.raises(weft.errors.ArgumentError, match=r"open: batch.*lengths={'batch': 1}"):
        weft.load(path, "numpy")
    with pytest.raises(weft.errors.ArgumentError, match="length M: the model has batch"):
        weft.load(path, "numpy", lengths={"M": 1})
    run.save(path.with_suffix(".other"))
    assert weft.load(path.with_suffix(".other")).name == "model"
    with pytest.raises(weft.errors.ArgumentError, match="lengths= is for models"):
        weft.load(path.with_suffix(".other"), lengths={"batch": 1})
    strange = path.with_suffix(".strange")
    strange.write_bytes(b"strange")
    with pytest.raises(weft.errors.PluginError, match=r"No frontend reads files that end in"):
        weft.load(strange)


def test_a_model_is_shown(path: Path):
    found = json.loads(command("show", path, "--backend", "numpy", "--json"))
    assert found == {
        "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 3]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
        "lengths": {"batch": 1},
        "ops": {"Matmul": 1, "Relu": 1},
        "parameters": {"numbers": 12, "bytes": 48},
        "backends": {"numpy": {"kernels": 1, "memory": 0}},
    }
    text = command("show", path, "--backend", "numpy")
    for word in ("inputs", "Matmul", "parameters", "numpy", "batch=1", "--length"):
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
def test_what_a_command_is_at_can_be_shown(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, steps: list[str]
):
    entered = []
    enter = progress._board.enter

    def note(stage: Stage):
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


def test_a_model_is_timed(path: Path):
    found = json.loads(command("bench", path, "--backend", "numpy", "--repeat", 3, "--json"))
    assert found["backend"] == "numpy"
    assert 0 < found["fastest"] <= found["median"] <= found["first"]
    assert "calls a second" in command("bench", path, "--backend", "numpy", "--repeat", 3)

    assert "matmul_relu" in command("bench", path, "--backend", "numpy", "--repeat", 3)


def test_a_model_is_profiled(path: Path, tmp_path: Path):
    trace = tmp_path / "trace.json"
    options = ("--backend", "numpy", "--repeat", 2)
    found = json.loads(command("profile", path, *options, "--trace", trace, "--json"))
    assert [row["name"] for row in found["rows"]] == ["matmul_relu"]
    assert found["rows"][0]["flops"] == 2 * 3 * 4 + 4
    assert json.loads(trace.read_text())["traceEvents"]
    assert "matmul_relu" in command("profile", path, *options)
    command("profile", path, *options, "--html", tmp_path / "profile.html")
    assert "matmul_relu" in str(unpacked((tmp_path / "profile.html").read_text()))
    refused = command("profile", path, *options, "--trace", tmp_path, code=1)
    assert "is a folder" in refused


def test_a_model_is_shown_as_a_page(path: Path, tmp_path: Path):
    page = tmp_path / "report.html"
    command("show", path, "--backend", "numpy", "--html", page)
    assert "matmul_relu" in str(unpacked(page.read_text()))
    refused = command("show", path, "--backend", "numpy", "--html", tmp_path, code=1)
    assert "is a folder" in refused


@pytest.mark.parametrize("name", ["show", "bench", "profile"])
def test_what_cannot_be_read_is_one_line(name: str, tmp_path: Path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x00\x01")
    output = command(name, path, code=1)
    assert "is not an ONNX model" in output
    assert "Traceback" not in output
    assert "No such file" in command(name, tmp_path / "none.onnx", code=1)


def written(tmp_path: Path, *arguments: Any, **options: Any):
    found = tmp_path / "other.onnx"
    model = made(*arguments)
    helper.set_model_props(model, options)
    found.write_bytes(model.SerializeToString())
    return found


@pytest.fixture
def pooled(tmp_path: Path):
    """A model whose second axis must have 32 to 63 elements, and the third at least one."""
    nodes = [
        node("AveragePool", "x", "a", kernel_shape=[32, 1], strides=[32, 1]),
        node("Reshape", "a to", "y"),
    ]
    to = np.array([0, 0, -1])
    return written(tmp_path, nodes, [declared("x", ["N", 1, "?", "?"])], ["y"], {"to": to})


def shown(path: Path, *options: Any):
    found = json.loads(command("show", path, "--backend", "numpy", "--json", *options))
    return [each["shape"] for each in found["inputs"]], found["lengths"]


def test_lengths_that_fit_are_found(pooled: Path, tmp_path: Path):
    assert shown(pooled) == ([[1, 1, 32, 32]], {"N": 1, "x:2": 32, "x:3": 32})
    given = ("--length", "x:3=5", "--length", "N=2")
    assert shown(pooled, *given) == ([[2, 1, 32, 5]], {"N": 2, "x:2": 32, "x:3": 5})
    nodes = [node("Conv", "x w", "y")]
    inputs, weights = [declared("x", ["N", 3, "H", "W"])], {"w": np.ones((4, 3, 3, 3), "float32")}
    hinted = written(tmp_path, nodes, inputs, ["y"], weights, imgsz="[40, 56]")
    assert shown(hinted) == ([[1, 3, 40, 56]], {"N": 1, "H": 40, "W": 56})
    # States of a batch have no name for their second axis, which is no longer than the batch.
    nodes = [node("Conv", "x w", "c"), node("ReduceMax", "c", "m"), node("Add", "h m", "y")]
    inputs = [declared("x", [None, 1, None]), declared("h", [2, None, 1])]
    weights = {"w": np.ones((1, 1, 200), "float32")}
    state = written(tmp_path, nodes, inputs, ["y"], weights)
    assert shown(state)[0] == [[1, 1, 224], [2, 224, 1]]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--length", "x:2=20"], "with N=1, x:3=1"),
        (["--length", "x:2=20", "--length", "N=1", "--length", "x:3=1"], "20.*other.onnx"),
        (["--length", "M=3"], "length M: the model has N, x:2, x:3"),
        (["--length", "N"], "write name=length"),
        (["--length", "N=-1"], "write name=length"),
        (["--length", "N=1", "--length", "N=2"], "once for each length"),
        (["--input", "z=3"], "--input z: the model has x"),
        (["--input", "X=3"], "--input X: the model has x. Did you mean 'x'?"),
        (["--input", "x"], "write name=file.npy or name=number"),
    ],
)
def test_lengths_that_do_not_fit_are_named(pooled: Path, options: list[str], problem: str):
    output = command("show", pooled, "--backend", "numpy", *options, code=1)
    assert re.search(problem, output, re.DOTALL), output
    assert "typer" not in output


def test_lengths_are_those_of_arrays(pooled: Any, tmp_path: Path):
    x = np.arange(2 * 40 * 3, dtype="float32").reshape(2, 1, 40, 3)
    np.save(tmp_path / "x.npy", x)
    output = tmp_path / "y.npy"
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    command("run", pooled, *given, "--output", output)
    np.testing.assert_allclose(np.load(output), x[:, :, :32].mean(2), rtol=1e-6)
    assert shown(pooled, *given)[0] == [[2, 1, 40, 3]]
    assert "calls a second" in command("bench", pooled, *given, "--repeat", 2)
    refused = command("run", pooled, *given, "--length", "x:2=33", code=1)
    assert "40" in refused
    assert "33" in refused


def test_a_length_of_an_array_holds_for_other_inputs_too(tmp_path: Path):
    inputs = [declared("x", ["N", 2]), declared("y", [2, "N"])]
    nodes = [node("Transpose", "y", "t"), node("Add", "x t", "z")]
    path = written(tmp_path, nodes, inputs, ["z"])
    np.save(tmp_path / "x.npy", np.ones((3, 2), "float32"))
    given = ("--input", f"x={tmp_path / 'x.npy'}")
    assert shown(path, *given) == ([[3, 2], [2, 3]], {"N": 3})
    output = tmp_path / "z.npy"
    command("run", path, *given, "--input", "y=2", "--output", output)
    np.testing.assert_array_equal(np.load(output), np.full((3, 2), 3))


@pytest.fixture
def branching(tmp_path: Path):
    """A model that chooses a branch by its second input."""
    branches = [
        made([node("Mul", f"x {factor}", "z")], [], ["z"], {factor: np.float32(value)}).graph
        for factor, value in (("two", 2), ("three", 3))
    ]
    nodes = [
        node("Equal", "rate wanted", "is_high"),
        node("If", "is_high", "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [declared("x", ["N", 2]), declared("rate", [], "i")]
    return written(tmp_path, nodes, inputs, ["y"], {"wanted": np.array(16000)})


@pytest.mark.parametrize(("rate", "factor"), [(16000, 2), (8000, 3)])
def test_an_input_that_chooses_a_branch_is_part_of_the_graph(
    branching: Path, tmp_path: Path, rate: int, factor: int
):
    output = tmp_path / "y.npy"
    command("run", branching, "--input", f"rate={rate}", "--input", "x=1.5", "--output", output)
    np.testing.assert_array_equal(np.load(output), np.full((1, 2), 1.5 * factor))
    given = ("--input", f"rate={rate}")
    assert shown(branching, *given)[0] == [[1, 2]]
    for name in ("bench", "profile"):
        assert "multiply" in command(name, branching, *given, "--repeat", 2)


def test_what_an_unknown_input_decides_is_an_error_that_names_it(branching: Path, tmp_path: Path):
    output = command("show", branching, code=1)
    assert "Give the value of rate, as in --input rate=1" in output
    assert "takes int64" in command(
        "run", branching, "--input", "rate=1.5", "--input", "x=1", code=1
    )
