"""The example as a command: it trains, writes, reads back and generates, or says why not."""

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
from llama2.checkpoint import Config, read_checkpoint, write_checkpoint
from llama2.sampling import Sampling
from llama2.tokenizer import BEGIN, read_tokenizer
from llama2.training import initial_weights
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "examples" / "llama.py"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("llama", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["llama"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


llama: Any = _loaded()


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train a model of a few thousand numbers on a few short sequences."""
    monkeypatch.setattr(llama, "SMALL", Config(16, 24, 1, 2, 1, 0, 32))
    monkeypatch.setattr(llama, "SEQUENCE", 24)


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(llama.app, [str(argument) for argument in arguments])


def assert_refused(result: Result, *words: str) -> None:
    assert result.exit_code == 1
    assert type(result.exception) is SystemExit
    assert result.output.splitlines()[-1].startswith("llama.py: ") or "llama.py: " in result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.output


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint and a tokenizer."""
    assert run("--steps", 1, "--tokens", 1, "--out", tmp_path).exit_code == 0
    return tmp_path / "llama.bin", tmp_path / "tokenizer.bin"


@pytest.mark.long("opencl")
@pytest.mark.share(3)
def test_it_trains_and_writes_and_tells(backend: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    result = run("--backend", backend, "--steps", 3, "--prompt", "A loom", "--out", out)
    assert result.exit_code == 0, result.output
    assert re.search(r"^trained +3 steps in \d+\.\d s, loss \d\.\d+", result.output, re.MULTILINE)
    made = re.search(r"^decoded +(\d+) tokens, [\d,]+ tokens/s$", result.output, re.MULTILINE)
    assert made
    assert 1 <= int(made[1]) <= 32 - 8
    assert "\nA loom" in result.output
    assert sorted(path.name for path in out.iterdir()) == ["llama.bin", "tokenizer.bin"]
    config, weights = read_checkpoint(out / "llama.bin")
    assert config[:5] == (16, 24, 1, 2, 1)
    assert read_tokenizer(out / "tokenizer.bin", config.vocabulary).encode("loom")[0] == BEGIN
    assert all(np.isfinite(array).all() for array in weights.values())


def story(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output[result.output.index("tokens/s\n") :].partition("\n")[2]


def test_written_files_tell_the_same_again_and_another_seed_something_else(
    files: tuple[Path, Path], backend: str
) -> None:
    options = "--checkpoint", files[0], "--tokenizer", files[1], "--backend", backend
    first, again, other = (story(run(*options, "--seed", seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(story(run(*options, "--tokens", 2, "--prompt", ""))) <= 4


def test_a_text_ends_where_another_begins() -> None:
    class Ending:
        config = Config(8, 8, 1, 1, 1, 3, 9)

        def read(self, prompt: list[int]) -> np.ndarray:
            return np.array([0, 0, 9.0])

        def decode(self, token: int, position: int) -> np.ndarray:
            return np.array([0, 9.0, 0]) if position == 4 else np.array([0, 0, 9.0])

    assert list(llama.generate(Ending(), [BEGIN, 2], 99, Sampling(0), 0)) == [2, 2, 2]
    assert list(llama.generate(Ending(), [BEGIN, 2], 1, Sampling(0), 0)) == [2]


def test_damaged_and_foreign_files_are_refused(files: tuple[Path, Path]) -> None:
    checkpoint, tokenizer = files
    whole = checkpoint.read_bytes()
    both = "--checkpoint", checkpoint, "--tokenizer", tokenizer
    checkpoint.write_bytes(whole[:-5])
    assert_refused(run(*both), "llama.bin", "5 bytes are missing")
    checkpoint.write_bytes(whole)
    tokenizer.write_bytes(tokenizer.read_bytes()[:-1])
    assert_refused(run(*both), "tokenizer.bin", "1 byte is missing")
    assert_refused(run("--checkpoint", checkpoint, "--tokenizer", checkpoint), "llama.bin")
    assert_refused(run("--checkpoint", checkpoint, "--tokenizer", "nothing"), "nothing")


def test_wrong_options_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    both = "--checkpoint", files[0], "--tokenizer", files[1]
    assert_refused(run("--checkpoint", files[0]), "--tokenizer", "go together")
    words = "has 42 tokens", "32 positions", "one must stay free", "shorten the prompt by 11 tokens"
    assert_refused(run(*both, "--prompt", "a" * 40), *words)
    assert_refused(run(*both, "--prompt", "a" * 30), "has 32 tokens", "the prompt by 1 token\n")
    assert_refused(run(*both, "--backend", "loom"), "loom")
    assert_refused(run("--steps", 9, "--learning-rate", 1e30, "--out", tmp_path), "diverged")


def _untrained(*arguments: Any) -> None:
    raise AssertionError("trained in vain")


@pytest.mark.parametrize(
    ("made", "out", "words"),
    [
        ("out/llama.bin/", "out", ["/out/llama.bin cannot be written", "a folder of that name"]),
        ("out/tokenizer.bin/", "out", ["/out/tokenizer.bin cannot be written"]),
        ("out", "out", ["/out/llama.bin cannot be written", "/out is not a folder"]),
        ("out", "out/new", ["/out/new/llama.bin cannot be written", "not a directory"]),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_training(
    made: str, out: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "train", _untrained)
    path = tmp_path / made
    path.mkdir(parents=True) if made.endswith("/") else path.touch()
    assert_refused(run("--out", tmp_path / out), *words, "choose another folder")


@pytest.mark.needs("linux")
@pytest.mark.parametrize("out", ["/proc", "/proc/new"])
def test_a_folder_that_takes_no_files_is_refused_before_training(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "train", _untrained)
    result = run("--out", out)
    assert_refused(result, f"{out}/llama.bin cannot be written (", "choose another folder")
    assert "/.llama.bin" not in result.output


def test_a_prompt_that_will_not_fit_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama, "train", _untrained)
    assert_refused(run("--prompt", "a" * 40, "--out", tmp_path), "has 42 tokens")


def test_a_prompt_of_any_bytes_is_told_on_any_terminal(files: tuple[Path, Path]) -> None:
    command = [sys.executable, SCRIPT, "--checkpoint", files[0], "--tokenizer", files[1]]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    found = subprocess.run(
        [*command, "--tokens", "3", "--prompt", b"\xff\xfe\xc3\xa9"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    assert "\\ufffd\\ufffd\\xe9" in found.stdout
    assert "Traceback" not in found.stderr


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_lowest_temperature_takes_the_likeliest_token(files: tuple[Path, Path]) -> None:
    both = "--checkpoint", files[0], "--tokenizer", files[1]
    found = [story(run(*both, "--temperature", t)) for t in ("0", "1e-320")]
    assert found[0] == found[1]


def test_weights_that_are_not_finite_are_refused(files: tuple[Path, Path]) -> None:
    config, _ = read_checkpoint(files[0])
    weights = initial_weights(config, 0)
    weights["final_norm"][0] = np.nan
    write_checkpoint(files[0], config, weights)
    assert_refused(run("--checkpoint", files[0], "--tokenizer", files[1]), "not finite")
