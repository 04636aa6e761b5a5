"""The command `weft run`, on files of a folder."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from weft.cli.app import app

SCRIPT = """
$1 = InputTensor(x, float32, [2, 3]);
$2 = ConstantTensor(layer.weight, float32, [3, 4]);
$3 = MatMulNode($1, $2);
$4 = ReLUNode($3);
result = $4;
"""

WHOLE = ("model.hk", "--input", "x=x.npy", "--constants", "weights.npz")
"""What computes the script, with all that it needs."""


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run the command on files of a folder; returns its status, its output and its errors."""
    known = {path.name for path in folder.iterdir()} | {"y.npy", "y.npz", "y.txt"}

    def named(argument: str) -> str:
        name, equals, path = argument.rpartition("=")
        return f"{name}{equals}{folder / path}" if path in known else argument

    done = CliRunner().invoke(app, ["run", *map(named, arguments)])
    return done.exit_code, done.stdout, done.stderr
