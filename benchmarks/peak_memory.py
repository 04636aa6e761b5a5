"""Peak memory of ONNX models beside onnxruntime, each engine in a fresh process.

Without files, those are the nine networks that onnx ships, with random weights. Both engines get
the same inputs, of two calls, and their results are compared. weft runs twice: with an empty disk
cache, when it compiles, and with what that left. ``--write`` puts the table into RESULTS.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from environment import FOLDER, cores, run_fresh

CALLS = 2
TOLERANCE = 1e-3
GOAL = 1.3
"""The most that weft's peak may be of onnxruntime's."""

RESULTS = FOLDER / "RESULTS.md"
OPENING, CLOSING = "<!-- generated memory: begin -->", "<!-- generated memory: end -->"
COLUMNS = (
    "model", "weft compiling, MB", "weft from its cache, MB", "onnxruntime, MB", "over its",
    "error",
)  # fmt: skip

BYTECODE = "bytecode"
IMPORTS = "import weft_onnx, onnxruntime, weft; weft.make_transformer('native').close()"
"""What writes bytecode, which takes memory as well."""

Arrays = dict[str, Any]


def by_weft(file: str, given: Arrays) -> Sequence[Any]:
    """Return the results of a model on the native backend."""
    import weft_onnx

    program = weft_onnx.load(file).prepare("native")
    for _ in range(CALLS):
        found = program.run(given)
    return list(found.values())


def by_onnxruntime(file: str, given: Arrays) -> Sequence[Any]:
    """Return the results of a model in onnxruntime, as it is installed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    for _ in range(CALLS):
        found: Sequence[Any] = session.run(None, given)
    return found


ENGINES = {"weft": by_weft, "onnxruntime": by_onnxruntime}


def peak_of_this_process() -> int:
    """Return the most bytes that were resident; those of a parent do not count, as in getrusage."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (each for each in lines if each.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def child(engine: str, file: str, inputs: str, outputs: str) -> None:
    """Run a model, save its results and print the peak."""
    with np.load(inputs) as stored:
        given = dict(stored)
    found = ENGINES[engine](file, given)
    print(peak_of_this_process())
    np.savez(outputs, *found)


@dataclass(frozen=True)
class Outcome:
    """Peaks in bytes, and how far the results are apart, over the largest value."""

    name: str
    first: int
    later: int
    onnxruntime: int
    error: float

    @property
    def ratio(self) -> float:
        """The larger peak of weft over that of onnxruntime."""
        return max(self.first, self.later) / self.onnxruntime

    @property
    def cells(self) -> list[str]:
        """The row of the table."""
        peaks = (self.first, self.later, self.onnxruntime)
        return [self.name, *(f"{b / 1e6:.0f}" for b in peaks), f"{self.ratio:.2f}",
                f"{self.error:.1e}"]  # fmt: skip


def measured(name: str, file: Path, given: Arrays, folder: Path) -> Outcome:
    """Return the outcome of a model for its inputs."""
    inputs = folder / "inputs.npz"
    np.savez(inputs, **given)
    peaks, results = [], []
    for number, engine in enumerate(["weft", "weft", "onnxruntime"]):
        outputs = folder / f"outputs {number}.npz"
        arguments = [__file__, "--child", engine, str(file), str(inputs), str(outputs)]
        variables = {"WEFT_CACHE": "1", "WEFT_CACHE_DIR": str(folder / "cache")}
        peaks.append(int(run_fresh(arguments, str(folder / BYTECODE), **variables)))
        with np.load(outputs) as stored:
            results.append(list(stored.values()))
    *ours, expected = results
    pairs = (pair for own in ours for pair in zip(own, expected, strict=True))
    error = max(_error(*pair) for pair in pairs)
    if not error < TOLERANCE:
        raise AssertionError(f"{name}: wrong by {error:.1e}")
    return Outcome(name, *peaks, error)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _error(found: Any, expected: Any) -> float:
    if not expected.size:
        return 0.0
    wide = expected.astype(np.float64)
    return float(np.abs(found - wide).max() / max(np.abs(wide).max(), 1e-30))


def networks(names: Sequence[str], folder: Path) -> Iterator[tuple[str, Path, Arrays]]:
    """Write the networks; yields names, files and inputs."""
    import onnx
    import onnx_networks

    for name in names or onnx_networks.NAMES:
        model = onnx_networks.network(name)
        file = folder / f"{name}.onnx"
        onnx.save(model, file)
        yield name, file, onnx_networks.inputs_of(model)
        file.unlink()


def files(paths: Sequence[Path], lengths: Sequence[str]) -> Iterator[tuple[str, Path, Arrays]]:
    """Yield names, files and random inputs of models; `lengths` are options of ``weft run``."""
    from weft.cli.run import read_graph

    random = np.random.default_rng(0)
    for path in paths:
        graph = read_graph(path, lengths=lengths)
        given = {}
        for name, op in graph.inputs.items():
            numbers = random.standard_normal(op.axes.shape)
            given[name] = (numbers if op.dtype.kind == "f" else numbers * 0).astype(op.dtype)
        yield path.stem, path.resolve(), given


def main() -> None:
    """Run what the command line asks for, and print or write the table."""
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="files to run, not the networks")
    parser.add_argument("--length", action="append", default=[], help="as in weft run")
    parser.add_argument("--only", action="append", default=[], help="one of the networks")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    lines = [_row(COLUMNS), "|---" * len(COLUMNS) + "|"]
    print(lines[0])
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run_fresh(["-c", IMPORTS], str(folder / BYTECODE))
        chosen = files(given.models, given.length) if given.models else networks(given.only, folder)
        for name, file, arrays in chosen:
            outcome = measured(name, file, arrays, folder)
            lines.append(_row(outcome.cells))
            print(lines[-1], "" if outcome.ratio <= GOAL else f"above {GOAL}", flush=True)
    if given.write:
        head = f"Measured on {datetime.now(UTC).date()} on {cores()} cores.\n\n"
        before, rest = RESULTS.read_text(encoding="utf-8").split(OPENING)
        _, after = rest.split(CLOSING)
        text = f"{before}{OPENING}\n{head}" + "\n".join(lines) + f"\n{CLOSING}{after}"
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
