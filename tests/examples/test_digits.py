from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import weft

pytestmark = [pytest.mark.slow, pytest.mark.share(3)]

for package in ("matplotlib", "safetensors", "sklearn"):
    pytest.importorskip(package)

SCRIPT = Path(__file__).parents[2] / "examples" / "digits.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["digits"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


digits: Any = _loaded()


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(digits.app, [str(argument) for argument in arguments])


def accuracy(result: Result) -> float:
    found = re.search(r"^accuracy +(0\.\d{4})", result.output, flags=re.MULTILINE)
    assert found, result.output
    return float(found[1])


def assert_refused(result: Result, *words: str) -> None:
    assert result.exit_code == 1
    assert type(result.exception) is SystemExit
    assert result.output.startswith("digits.py: ")
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("digits") / "new" / "folder"
    return out, run("--epochs", 6, "--out", out)


def test_a_few_epochs_learn_most_digits(trained: tuple[Path, Result]) -> None:
    out, result = trained
    assert result.exit_code == 0, result.output
    assert accuracy(result) > 0.9
    assert re.search(r"^time +\d+\.\d s for 6 epochs$", result.output, flags=re.MULTILINE)
    assert str(out / "digits.png") in result.output.replace("\n", "")
    assert str(out / "digits.safetensors") in result.output.replace("\n", "")
    assert "the same accuracy again" in result.output


@pytest.mark.long("opencl")
def test_a_short_run_learns_on_each_backend(backend: str, tmp_path: Path) -> None:
    result = run("--epochs", 2, "--backend", backend, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert accuracy(result) > 0.85
    assert "the same accuracy again" in result.output


def test_picture_and_weights_are_all_that_is_left(trained: tuple[Path, Result]) -> None:
    out, _ = trained
    assert sorted(path.name for path in out.iterdir()) == ["digits.png", "digits.safetensors"]
    assert (out / "digits.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_restored_weights_give_the_same_accuracy(trained: tuple[Path, Result]) -> None:
    out, result = trained
    again = run("--weights", out / "digits.safetensors")
    assert again.exit_code == 0, again.output
    assert accuracy(again) == accuracy(result)
    assert "picture" not in again.output


def test_the_same_seed_trains_the_same_weights(
    trained: tuple[Path, Result], tmp_path: Path
) -> None:
    out, _ = trained
    run("--epochs", 6, "--out", tmp_path)
    first, _ = digits.read_weights(out / "digits.safetensors")
    again, _ = digits.read_weights(tmp_path / "digits.safetensors")
    for name in digits.PARAMETERS:
        np.testing.assert_allclose(first[name], again[name], rtol=0, atol=1e-4)


def test_relu_is_restored_as_relu(tmp_path: Path) -> None:
    result = run("--epochs", 6, "--activation", "relu", "--batch", 100, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert accuracy(result) > 0.9
    assert digits.read_weights(tmp_path / "digits.safetensors")[1] == "relu"
    assert accuracy(run("--weights", tmp_path / "digits.safetensors")) == accuracy(result)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("seed", range(3))
def test_the_defaults_read_96_of_100_digits(activation: str, seed: int, tmp_path: Path) -> None:
    result = run("--activation", activation, "--seed", seed, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert accuracy(result) >= 0.96


def test_evaluation_does_not_train() -> None:
    model = digits.perceptron(digits.initial_weights(0), digits.Activation.TANH)
    update = digits.descent(model.loss, 0.1, 0.9)
    transformer = weft.make_transformer("numpy")
    evaluate = transformer.computation(model.results, *model.inputs)
    step = transformer.computation([model.loss, update], *model.inputs)
    training, _ = digits.load()
    before = evaluate(*training)["loss"]
    assert evaluate(*training)["loss"] == before
    step(*training)
    assert evaluate(*training)["loss"] < before


def test_a_step_is_that_of_the_formula() -> None:
    weights = digits.initial_weights(0)
    model = digits.perceptron(weights, digits.Activation.TANH)
    update = digits.descent(model.loss, 0.1, 0.5)
    gradient = weft.deriv(model.loss, model.variables["bias3"])
    transformer = weft.make_transformer("numpy")
    step = transformer.computation([gradient, update], *model.inputs)
    bias = transformer.computation(model.variables["bias3"])
    training, _ = digits.load()
    first, _ = step(*training)
    np.testing.assert_allclose(bias(), -0.1 * first, rtol=1e-5)
    second, _ = step(*training)
    np.testing.assert_allclose(bias(), -0.1 * (1.5 * first + second), rtol=1e-5)


def test_the_held_out_fifth_is_fixed_and_balanced() -> None:
    training, held_out = digits.load()
    assert (len(training.labels), len(held_out.labels)) == (1437, 360)
    assert {0, 1} == {training.images.min(), training.images.max()}
    assert (abs(np.bincount(held_out.labels) - 36) <= 1).all()
    np.testing.assert_array_equal(held_out.images, digits.load()[1].images)


def test_an_epoch_meets_every_digit_once_in_an_order_of_its_own() -> None:
    numbers = digits.Digits(np.arange(10.0).reshape(10, 1), np.arange(10))
    random = np.random.default_rng(0)
    epochs = [list(digits.batches(numbers, 4, random)) for _ in range(2)]
    for epoch in epochs:
        assert [len(part.labels) for part in epoch] == [4, 4, 2]
        assert sorted(label for part in epoch for label in part.labels) == list(range(10))
    assert [part.labels.tolist() for part in epochs[0]] != [p.labels.tolist() for p in epochs[1]]


def test_an_unknown_backend_lists_those_there_are(tmp_path: Path) -> None:
    assert_refused(run("--backend", "nimpy", "--out", tmp_path), "'nimpy'", "numpy")


def test_a_diverging_loss_is_named(tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        result = run("--activation", "relu", "--learning-rate", "1e30", "--out", tmp_path)
    assert result.exit_code == 1
    assert "try a lower --learning-rate" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"no weights at all", b"\xff" * 100])
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    assert_refused(run("--weights", path), str(path), "not a safetensors file")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "truncated"
    whole = digits.save(digits.initial_weights(0), {"activation": "tanh"})
    path.write_bytes(whole[:-1])
    assert_refused(run("--weights", path), str(path), "damaged")


@given(st.data())
@settings(max_examples=50)
def test_a_mutated_file_is_read_whole_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    found = bytearray(digits.save(digits.initial_weights(0), {"activation": "tanh"}))
    length = int.from_bytes(found[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, length + 8) | st.integers(0, len(found)))
        end = data.draw(st.integers(at, at + 8))
        word = st.sampled_from(
            [b"0", b"9" * 20, b"-1", b"F64", b"null", b"{", b"[[", b'"', b"\xff"]
        )
        found[at:end] = data.draw(st.binary(max_size=8) | word)
    path.write_bytes(found)
    try:
        weights, activation = digits.read_weights(path)
    except digits.WeightsError as error:
        problem = str(error)
    else:
        assert activation in list(digits.Activation)
        for name, axes in digits.PARAMETERS.items():
            assert weights[name].shape == tuple(axis.length for axis in axes)
            assert weights[name].dtype == np.float32
        return
    assert str(path) in problem


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert_refused(run("--weights", tmp_path / "nothing"), "nothing")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    result = run("--weights", tmp_path)
    assert result.exit_code == 2
    assert "is a directory" in re.sub(r"[\s│]+", " ", result.output)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "occupied"
    path.write_bytes(b"")
    assert_refused(run("--out", path), "occupied")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"weight1": np.zeros((2, 3), np.float32)}, ("'weight1' is F32 [2, 3]", "F32 [64, 128]")),
        ({"bias1": np.zeros(128, np.float64)}, ("'bias1' is F64 [128]", "F32 [128]")),
        ({"bias3": None}, ("'bias3' is absent", "F32 [10]")),
        ({"bias4": np.zeros(1, np.float32)}, ("'bias4' is F32 [1]", "absent")),
    ],
)
def test_other_weights_are_refused(
    change: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "other"
    weights = {**digits.initial_weights(0), **change}
    kept = {name: array for name, array in weights.items() if array is not None}
    path.write_bytes(digits.save(kept, {"activation": "tanh"}))
    assert_refused(run("--weights", path), str(path), *words)


@pytest.mark.parametrize("metadata", [None, {"activation": "sine"}])
def test_weights_of_an_unknown_activation_are_refused(metadata: Any, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(digits.save(digits.initial_weights(0), metadata))
    assert_refused(run("--weights", path), str(path), "tanh or relu")


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "weights"
    digits.write(path, b"old")

    def refuse(self: Path, content: bytes) -> None:
        self.touch()
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="no space left"):
        digits.write(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["weights"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("wrong", [0, 1, 12, 20])
def test_the_picture_takes_any_number_of_misread_digits(wrong: int) -> None:
    _, held_out = digits.load()
    predicted = held_out.labels.copy()
    predicted[:wrong] = (predicted[:wrong] + 1) % 10
    drawn = digits.draw([digits.Epoch(1.0, 0.5, 0.9)], held_out, predicted)
    assert drawn.startswith(b"\x89PNG")


@pytest.mark.parametrize("package", ["matplotlib", "safetensors", "sklearn"])
def test_a_missing_package_is_one_sentence(package: str, tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text(
        f"raise ModuleNotFoundError('No module named {package}', name={package!r})\n"
    )
    done = subprocess.run(
        [sys.executable, SCRIPT],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"This example needs {package}: pip install 'weftc[demo]'\n"
