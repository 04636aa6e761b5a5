"""The nine networks that onnx ships, with random weights and any batch, beside onnxruntime.

Each is a light model: its weights are constants of one number. `randomized` gives them random
weights, `batched` rewrites the batch in inputs and reshapes. Both engines run the same model, and
their results are compared before anything is timed. Run it by itself; ``--write`` puts the table
into RESULTS.md.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from environment import FOLDER, cores
from measure import interleaved
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

import weft_onnx

DATA = Path(onnx.backend.test.__file__).parent / "data" / "light"
NAMES = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip
BATCHES = (1, 8)
TOLERANCE = 1e-3
RESULTS = FOLDER / "RESULTS.md"
OPENING, CLOSING = "<!-- generated networks: begin -->", "<!-- generated networks: end -->"

Array = np.ndarray[Any, Any]


def network(name: str, batch: int = 1) -> onnx.ModelProto:
    """Return a network with random weights."""
    return batched(randomized(onnx.load(DATA / f"light_{name}.onnx")), batch)


def randomized(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Return the model with random initializers in the place of filled constants.

    Weights have the deviation that keeps the size of activations; scales are near 1, variances
    positive, and other vectors near 0.
    """
    random = np.random.default_rng(seed)
    graph = model.graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    roles = {
        node.input[place]: role
        for node in graph.node
        if node.op_type == "BatchNormalization"
        for place, role in ((1, "scale"), (4, "variance"))
    }
    kept, made = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape, name = tuple(known[node.input[0]]), node.output[0]
        made.append(numpy_helper.from_array(_weights(random, shape, roles.get(name, "")), name))
    shapes = {node.input[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    return _rebuilt(model, kept, shapes, made)


def _weights(random: np.random.Generator, shape: tuple[int, ...], role: str) -> Array:
    if role in ("scale", "variance"):
        return random.uniform(0.5, 1.5, shape).astype("f4")
    deviation = math.sqrt(2 / max(math.prod(shape[1:]), 1)) if len(shape) > 1 else 0.1
    return (random.standard_normal(shape) * deviation).astype("f4")


def batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """Return the model for another batch: in declarations, and where reshapes have 1 in front."""
    known = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    reshaped = {
        node.input[1]
        for node in model.graph.node
        if node.op_type == "Reshape" and node.input[0] not in known
    }
    made = []
    for name in reshaped & known.keys():
        shape = known[name].copy()
        if shape[0] == 1:
            shape[0] = batch
        made.append(numpy_helper.from_array(shape, name))
    found = _rebuilt(model, list(model.graph.node), {each.name for each in made}, made)
    for each in (*found.graph.input, *found.graph.output):
        dims = each.type.tensor_type.shape.dim
        if each.name not in known and len(dims) > 1 and dims[0].dim_value == 1:
            dims[0].dim_value = batch
    return found


def _rebuilt(
    model: onnx.ModelProto, nodes: Sequence[Any], gone: set[str], made: Sequence[Any]
) -> onnx.ModelProto:
    """Return a model with other nodes and initializers, whose inputs are those that are given."""
    names = {each.name for each in made}
    constants = [e for e in model.graph.initializer if e.name not in gone | names]
    constants += made
    held = {each.name for each in constants} | gone
    graph = helper.make_graph(
        list(nodes),
        model.graph.name,
        [each for each in model.graph.input if each.name not in held],
        list(model.graph.output),
        constants,
    )
    opset = helper.make_opsetid("", model.opset_import[0].version)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def inputs_of(model: onnx.ModelProto, seed: int = 1) -> dict[str, Array]:
    """Return random inputs."""
    random = np.random.default_rng(seed)
    return {
        each.name: random.standard_normal(
            [d.dim_value for d in each.type.tensor_type.shape.dim]
        ).astype("f4")
        for each in model.graph.input
    }


@dataclass(frozen=True)
class Outcome:
    """The seconds of a call of each engine, and of weft's first call."""

    name: str
    batch: int
    weft: float
    onnxruntime: float
    first: float

    @property
    def ratio(self) -> float:
        """The time of weft over that of onnxruntime."""
        return self.weft / self.onnxruntime


def outcomes(
    names: Sequence[str], batches: Sequence[int], backend: str, rounds: int
) -> Iterator[Outcome]:
    """Compare results, then time both in turns."""
    import onnxruntime

    for name in names:
        for batch in batches:
            model = network(name, batch)
            given = inputs_of(model)
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            (expected,) = session.run(None, given)
            program = weft_onnx.load(model).prepare(backend)
            start = time.perf_counter()
            (found,) = program.run(given).values()
            first = time.perf_counter() - start
            error = float(np.abs(found - expected).max() / np.abs(expected).max())
            if not error < TOLERANCE:
                raise AssertionError(f"{name}, batch {batch}: wrong by {error:.1e}")
            calls = {
                "weft": partial(program.run, given),
                "onnxruntime": partial(session.run, None, given),
            }
            samples = interleaved(calls, rounds)
            yield Outcome(name, batch, samples.median("weft"), samples.median("onnxruntime"), first)
            program.transformer.close()


def main() -> None:
    """Run what the command line asks for, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--batch", action="append", type=int)
    parser.add_argument("--backend", default="native")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    table = Table(
        "network", "batch", "weft, ms", "onnxruntime, ms", "time over its", "first call, s"
    )
    lines = ["| network | batch | weft, ms | onnxruntime, ms | time over its | first call, s |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    ratios = []
    for each in outcomes(given.only or NAMES, given.batch or BATCHES, given.backend, given.rounds):
        ratios.append(each.ratio)
        times = (each.weft * 1e3, each.onnxruntime * 1e3)
        row = [each.name, str(each.batch), *(f"{ms:.1f}" for ms in times)]
        row += [f"{each.ratio:.2f}", f"{each.first:.1f}"]
        table.add_row(*row)
        lines.append(f"| {' | '.join(row)} |")
        Console().print(" ".join(row))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines.append(f"| geometric mean | | | | {mean:.2f} | |")
    Console().print(table, f"geometric mean {mean:.2f}")
    if given.write:
        when = datetime.now(UTC).date()
        head = f"Measured on {when} on {cores()} cores, weft's backend {given.backend}.\n\n"
        before, rest = RESULTS.read_text(encoding="utf-8").split(OPENING)
        _, after = rest.split(CLOSING)
        text = f"{before}{OPENING}\n{head}" + "\n".join(lines) + f"\n{CLOSING}{after}"
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
