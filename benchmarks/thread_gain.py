"""What more threads gain on models in ONNX files: weft beside onnxruntime.

``python benchmarks/thread_gain.py model.onnx x=1,3,640,640`` has the shapes of inputs whose lengths
the file leaves open. Each tool and number of threads has a process of its own; they take turns, and
one that waits uses no processor. Results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from environment import cores, require_untuned
from measure import NOISE, Samples, number

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, tuple[int, ...]]
SECONDS = 0.2
"""How long one sample takes at least."""
TOLERANCE = 1e-3


def inputs_of(model: onnx.ModelProto, shapes: Shapes) -> dict[str, Array]:
    """Return random inputs; raises SystemExit for one whose shape is not known."""
    random, found = np.random.default_rng(1), {}
    held = {each.name for each in model.graph.initializer}
    for each in model.graph.input:
        if each.name in held:
            continue
        tensor = each.type.tensor_type
        shape = shapes.get(each.name) or tuple(d.dim_value for d in tensor.shape.dim)
        if 0 in shape:
            sys.exit(f"some lengths of {each.name} are open: give {each.name}=1,3,640,640")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        values = random.random(shape)
        found[each.name] = (values if dtype.kind == "f" else values * 200).astype(dtype)
    return found


def weft_call(path: Path, given: Mapping[str, Array], threads: int) -> Callable[[], list[Array]]:
    """Return a call of weft's backend native."""
    import weft_onnx

    program = weft_onnx.load(path).prepare("native", threads=threads)
    return lambda: list(program.run(given).values())


def onnxruntime_call(
    path: Path, given: Mapping[str, Array], threads: int
) -> Callable[[], list[Array]]:
    """Return a call of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(given))  # type: ignore[no-any-return]


TOOLS = {"weft": weft_call, "onnxruntime": onnxruntime_call}


def serve(pipe: Connection, tool: str, path: Path, shapes: Shapes, threads: int) -> None:
    """Send results once, then the seconds of a call for each message."""
    given = inputs_of(onnx.load(path), shapes)
    call = TOOLS[tool](path, given, threads)
    pipe.send(call())
    while pipe.recv():
        call()
        count, start = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - start < SECONDS:
            call()
            count += 1
        pipe.send((time.perf_counter() - start) / count)


def measured(path: Path, shapes: Shapes, rounds: int) -> Samples:
    """Return the samples of each tool and number of threads."""
    spawn, pipes, results = get_context("spawn"), {}, {}
    for tool in TOOLS:
        for threads in (1, cores()):
            mine, theirs = spawn.Pipe()
            arguments = (theirs, tool, path, shapes, threads)
            spawn.Process(target=serve, args=arguments, daemon=True).start()
            pipes[f"{tool} {threads}"] = mine
            results[tool] = mine.recv()
    for one, other in zip(*results.values(), strict=True):
        # onnxruntime's sigmoid is wrong by 1e-7, which is all of some results of 1e-5.
        error = float(np.abs(one.astype("f8") - other).max() / max(np.abs(other).max(), 1e-2))
        if not error < TOLERANCE:
            raise AssertionError(f"{path.name}: wrong by {error:.1e} of the largest value")
    seconds: dict[str, list[float]] = {name: [] for name in pipes}
    for _ in range(rounds):
        for name, pipe in pipes.items():
            pipe.send(True)
            seconds[name].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    return Samples(seconds)


def rows(paths: Mapping[Path, Shapes], rounds: int) -> Iterator[list[str]]:
    """Yield a row for each model, and one of geometric means."""
    many = cores()
    gains: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    for path, shapes in paths.items():
        samples = measured(path, shapes, rounds)
        cells = [path.stem]
        for tool in TOOLS:
            one, all_ = (samples.median(f"{tool} {threads}") for threads in (1, many))
            gains[tool].append(samples.ratio(f"{tool} 1", f"{tool} {many}"))
            cells += [number(one * 1e3), number(all_ * 1e3), f"{gains[tool][-1]:.2f}"]
        cells.append(f"{samples.ratio(f'weft {many}', f'onnxruntime {many}'):.2f}")
        noisy = max(samples.spread(name) for name in samples.seconds) > NOISE
        yield [*cells, "not quiet" if noisy else ""]
    means = [f"{statistics.geometric_mean(each):.2f}" for each in gains.values()]
    yield ["geometric mean", "", "", means[0], "", "", means[1], "", ""]


def given_models(words: Sequence[str]) -> dict[Path, dict[str, tuple[int, ...]]]:
    """Return the files of a command line, each with the shapes after it."""
    found: dict[Path, dict[str, tuple[int, ...]]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, equal, shape = word.partition("=")
        if equal:
            shapes[name] = tuple(map(int, shape.split(",")))
        else:
            shapes = found[Path(word)] = {}
    return found


def main() -> None:
    """Measure the models of the command line, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+", help="files, each with shapes of its inputs after it")
    parser.add_argument("--rounds", type=int, default=7, help="how often tools take turns")
    given = parser.parse_args()
    require_untuned()
    os.environ.pop("WEFT_NUM_THREADS", None)
    many = cores()
    heads = ["model", *(f"{tool}, {n} thread{'s' if n > 1 else ''}, ms" if n else f"gain of {tool}"
             for tool in TOOLS for n in (1, many, 0)), "weft over onnxruntime", ""]  # fmt: skip
    print(f"Measured on {datetime.now(UTC):%Y-%m-%d}, {many} cores.\n")
    for cells in (heads, ["---"] * len(heads)):
        print(f"| {' | '.join(cells)} |")
    for cells in rows(given_models(given.models), given.rounds):
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
