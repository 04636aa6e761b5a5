"""Consoles and pipes whose encoding lacks letters of a path show it all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

OF_FILES = ("profile", "bench")


def printed(encoding: str, folder: Path, *arguments: str) -> str:
    environment = {
        **os.environ,
        "PYTHONIOENCODING": encoding,
        "WEFT_CACHE_DIR": str(folder / "kept µ 漢"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "weft", *arguments],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode(encoding)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    operands = [make.make_tensor_value_info(name, 1, [2, 3]) for name in ("größe µ 漢", "y")]
    node = make.make_node("Tanh", ["größe µ 漢"], ["y"], name="knoten 漢")
    path = tmp_path_factory.mktemp("models") / "mödel 漢.onnx"
    onnx.save(make.make_model(make.make_graph([node], "g", operands[:1], operands[1:])), path)
    return path


@pytest.mark.parametrize(
    "command", [*OF_FILES, "cache", pytest.param("doctor", marks=pytest.mark.long)]
)
def test_a_command_shows_paths_and_names(command: str, model: Path, tmp_path: Path) -> None:
    given = [str(model)] if command in OF_FILES else []
    found = printed("cp1252", tmp_path, command, *given)
    assert len(found.splitlines()) > 2
    assert r"\u6f22" in found


def test_no_letter_is_too_much_for_a_console(tmp_path: Path) -> None:
    assert r"kept \xb5 \u6f22" in printed("ascii", tmp_path, "cache")


def test_json_is_whole_in_every_encoding(tmp_path: Path) -> None:
    found = json.loads(printed("ascii", tmp_path, "cache", "--json"))
    assert Path(found["folder"]) == tmp_path / "kept µ 漢"
