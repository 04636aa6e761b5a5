"""The commands `weft show`, `weft bench` and `weft profile`: a graph in a file, and its speed."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from weft.cli.examination import statuses
from weft.cli.run import LENGTH, given_arrays, plan_of, read_graph, reported
from weft.cli.tables import plain, show, show_json, show_table
from weft.ir.op import Op
from weft.ir.storage import ParameterOp, ReadOp
from weft.ir.tensor import TensorOp
from weft.plan.plan import Plan
from weft.report.progress import Stage
from weft.report.thread_model import as_table, predictions
from weft.runtime.computation import Computation
from weft.runtime.factory import make_transformer
from weft.runtime.importers import ImportedGraph

_MODEL = typer.Argument(help="The file with the graph, as in model.onnx.")
_BACKEND = typer.Option(help="A backend to plan for; once for each. All usable ones by default.")
_TRACE = "Write the launches of one call to this file, for Perfetto or Chrome."
_REPORT = "Write a page that shows what the compiler does on the first of the backends."
_PAGE = "Write a page with a timeline and the table."
_INPUT = "An input and its .npy file, as in x=x.npy, or a number; others are random."


def show_model(
    model: Annotated[Path, _MODEL],
    backend: Annotated[list[str] | None, _BACKEND] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    lengths: Annotated[list[str] | None, typer.Option("--length", help=LENGTH)] = None,
    html: Annotated[Path | None, typer.Option(help=_REPORT)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show a graph's inputs and outputs, ops, parameters, and memory and kernels on backends."""
    with reported():
        graph = read_graph(model, inputs, lengths)
        plans: dict[str, Plan] = {}
        captured = None
        names = backend or _usable()
        with Stage("planning", len(names)) as stage:
            for name in names:
                stage.part = name
                with make_transformer(name) as transformer:
                    computation = graph.computation(transformer, "run")
                    captured = captured or computation.graph
                    plans[name] = plan_of(computation)
                stage.advance()
        assert captured is not None, "NumPy is always usable"
        found = _description(graph, captured.ops, plans)
        if html is not None:
            with make_transformer(next(iter(plans))) as transformer:
                graph.computation(transformer, "run").report(html)
    if as_json:
        show_json(found)
        return
    for title in ("inputs", "outputs"):
        show_table((title, "dtype", "shape"), (each.values() for each in found[title]))
    if graph.lengths:
        chosen = ", ".join(f"{name}={length}" for name, length in graph.lengths.items())
        show(plain(f"Lengths that the file leaves open: {chosen}. --length gives others."))
    show_table(("op", "count"), found["ops"].items())
    show_table(("parameters", "bytes"), [found["parameters"].values()])
    heads = ("backend", "kernels", "memory of a call, bytes")
    show_table(heads, ((name, *each.values()) for name, each in found["backends"].items()))


def _usable() -> list[str]:
    with Stage("looking for usable backends"):
        return [each.status.name for each in statuses() if each.status.usable]


def _description(
    graph: ImportedGraph, ops: tuple[Op, ...], plans: dict[str, Plan]
) -> dict[str, Any]:
    kinds = Counter(
        type(op).__name__.removesuffix("Op")
        for op in ops
        if not (op.is_constant or isinstance(op, ParameterOp | ReadOp))
    )
    held = [op for op in ops if op.is_constant or isinstance(op, ReadOp)]
    return {
        "inputs": [_declared(name, op) for name, op in graph.inputs.items()],
        "outputs": [_declared(name, op) for name, op in graph.outputs.items()],
        "lengths": dict(graph.lengths),
        "ops": dict(kinds.most_common()),
        "parameters": {
            "numbers": sum(op.axes.size for op in held),
            "bytes": sum(op.nbytes for op in held),
        },
        "backends": {
            name: {"kernels": len(plan.steps), "memory": plan.arena_size}
            for name, plan in plans.items()
        },
    }


def _declared(name: str, op: Any) -> dict[str, Any]:
    return {"name": name, "dtype": str(op.dtype), "shape": list(op.axes.lengths)}


def bench_model(
    model: Annotated[Path, _MODEL],
    backend: Annotated[str | None, typer.Option(help="The backend that computes.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    lengths: Annotated[list[str] | None, typer.Option("--length", help=LENGTH)] = None,
    repeat: Annotated[int, typer.Option(min=1, help="The number of calls that are timed.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Time calls of a graph: the first one, latency and throughput, memory, and the kernels."""
    with reported():
        graph = read_graph(model, inputs, lengths)
        arguments = _arguments(graph, inputs)
        with make_transformer(backend) as transformer:
            computation = graph.computation(transformer, "run")
            found = _timed(computation, arguments, repeat)
            found = {"backend": transformer.transformer_name, **found}
            kernels, threads = None, []
            if not as_json:
                profile = computation.profile(*arguments, repeat=min(repeat, PROFILED))
                kernels, threads = profile.as_table(), predictions(profile)
    if kernels is None:
        show_json(found)
        return
    heads = ("backend", "first call", "median", "fastest", "calls a second", "memory, bytes")
    times = [f"{found[key] * 1e3:.3f} ms" for key in ("first", "median", "fastest")]
    rate = f"{1 / found['median']:.1f}"
    show_table(heads, [(found["backend"], *times, rate, found["memory"])])
    show(kernels)
    if threads:
        show(as_table(threads))


PROFILED = 10
"""The most calls with time stamps that `weft bench` makes for its table of kernels."""


def profile_model(
    model: Annotated[Path, _MODEL],
    backend: Annotated[str | None, typer.Option(help="The backend that computes.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    lengths: Annotated[list[str] | None, typer.Option("--length", help=LENGTH)] = None,
    repeat: Annotated[int, typer.Option(min=1, help="The number of calls that are timed.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="The number of kernels in the table.")] = 30,
    trace: Annotated[Path | None, typer.Option(help=_TRACE)] = None,
    html: Annotated[Path | None, typer.Option(help=_PAGE)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show where the time of a call goes: kernels, their lines, and rates beside the machine's."""
    with reported():
        graph = read_graph(model, inputs, lengths)
        arguments = _arguments(graph, inputs)
        with make_transformer(backend) as transformer:
            computation = graph.computation(transformer, "run")
            found = computation.profile(*arguments, repeat=repeat)
        if trace is not None:
            found.to_chrome_trace(trace)
        if html is not None:
            found.to_html(html)
    if as_json:
        show_json(found.to_dict())
    else:
        show(found.as_table(rows))


def _arguments(graph: ImportedGraph, inputs: list[str] | None) -> list[Any]:
    """Return the arguments of a call: arrays from files, and random ones for other inputs."""
    given = given_arrays(graph, inputs or ())
    random = np.random.default_rng(0)
    for name, op in graph.inputs.items():
        given.setdefault(name, _random(random, op))
    return graph.arguments(given)


def _random(random: np.random.Generator, op: TensorOp) -> Any:
    """Return random numbers for an input: floats near 0, or zeros for integers."""
    shape = op.axes.shape
    if op.dtype.kind == "f":
        return random.standard_normal(shape).astype(op.dtype)
    return np.zeros(shape, op.dtype)


def _timed(computation: Computation, arguments: list[Any], repeat: int) -> dict[str, Any]:
    start = time.perf_counter()
    computation(*arguments)
    first = time.perf_counter() - start
    seconds = []
    with Stage("calling", repeat) as stage:
        for _ in range(repeat):
            start = time.perf_counter()
            computation(*arguments)
            seconds.append(time.perf_counter() - start)
            stage.advance()
    program = computation.program
    return {
        "first": first,
        "median": statistics.median(seconds),
        "fastest": min(seconds),
        "memory": program.arena_size,
    }
