"""The command `weft run`: reads a graph from a file and runs it on arrays from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.errors import ArgumentError, IndexOutOfRange, WeftError
from weft.plan.fusion_statistics import fusion_statistics
from weft.plan.plan import Plan, make_plan
from weft.plan.step_comparison import compare_steps
from weft.plugins.blame import blaming, origin_of
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.report.progress import Stage
from weft.runtime import importers
from weft.runtime.array_files import (
    Array,
    read_array,
    require_room,
    require_writable,
    stored_arrays,
    write_arrays,
)
from weft.runtime.computation import Computation
from weft.runtime.factory import make_transformer
from weft.runtime.importers import ImportedGraph
from weft.runtime.out_of_memory import note_largest_tensors
from weft.runtime.transformer import Transformer

_INPUT = "An input and the .npy file that holds it, as in x=x.npy; once for each input."
_STEPS = "Print which steps there are without fusion and with it, and compute nothing."
_OUTPUT = "Write the only result to this .npy file, or all results by name to this .npz file."

_UNFUSED = [name for name in DEFAULT_PIPELINE if name != "fusion"]


def run_model(
    model: Annotated[Path, typer.Argument(help="The file with the graph, as in model.hk.")],
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    constants: Annotated[
        Path | None, typer.Option(help="The .npz file with values that the graph only names.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help=_OUTPUT)] = None,
    backend: Annotated[str | None, typer.Option(help="The backend that computes.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print memory, steps and kernels, and compute nothing.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help=_STEPS)] = False,
) -> None:
    """Compute the graph in a file, and print the results or write them to a file."""
    with reported():
        if output is not None:
            require_writable(output)
        graph = read_graph(model, constants, plan or steps)
        if output is not None:
            require_room(output, list(graph.outputs))
        with make_transformer(backend) as transformer:
            computation = computation_of(graph, transformer)
            if plan:
                found = plan_of(computation)
                parts = (
                    graph.memory,
                    found.table(),
                    str(fusion_statistics(computation.graph, found)),
                )
                typer.echo("\n\n".join(filter(None, parts)))
            if steps:
                with make_transformer(backend, passes=_UNFUSED) as plain:
                    before = plan_of(computation_of(graph, plain))
                typer.echo(compare_steps(before, plan_of(computation)))
            if plan or steps:
                return
            results = _computed(graph, computation, inputs or ())
        if output is not None:
            write_arrays(output, results)
            return
        for name, array in results.items():
            typer.echo(f"{name}: {array.dtype}{list(array.shape)}\n{array}")


@contextmanager
def reported() -> Iterator[None]:
    """Print an error of the user's instead of a traceback, and end the command with status 1."""
    try:
        yield
    except (WeftError, OSError, MemoryError) as error:
        message = getattr(error, "problem", None) or str(error)
        typer.echo("\n".join([message, *getattr(error, "__notes__", ())]), err=True)
        raise typer.Exit(1) from None


def read_graph(model: Path, constants: Path | None = None, without: bool = False) -> ImportedGraph:
    """Return the graph in a file; `without` values of constants if nothing will be computed."""
    with _values(constants, without) as values:
        importer = importers.importer_for(model)
        doing = f"while it read {model}"
        with Stage(f"reading {model}"), blaming(origin_of(importer), doing, extends=False):
            return importer.read(model, values)


def computation_of(graph: ImportedGraph, transformer: Transformer) -> Computation:
    """Return the computation of a graph from a file."""
    return transformer.computation(graph.results, *graph.inputs.values(), name="run")


def _values(constants: Path | None, plan: bool) -> AbstractContextManager[Mapping[str, Any] | None]:
    """Return what the graph finds its constants in; None if it is planned without any."""
    if constants is not None:
        return stored_arrays(constants)
    return nullcontext(None if plan else {})


def plan_of(computation: Computation) -> Plan:
    """Return the plan of a computation, for which nothing is allocated."""
    if not computation.is_static:
        raise ArgumentError("lengths of this graph are known at a call only: it has no one plan")
    transformer, program = computation.transformer, computation.programs[()]
    transformer.run_registered_graph_passes([program])
    return make_plan(program.graph, transformer.target, transformer.memory_limit)


def _computed(
    graph: ImportedGraph, computation: Computation, given: Iterable[str]
) -> dict[str, Array]:
    """Return the outputs by name, for inputs that are given as ``name=file``."""
    arguments = graph.arguments(given_arrays(graph, given))
    try:
        values = computation(*arguments)
    except MemoryError as error:
        note_largest_tensors(error, computation.graph)
        raise
    except IndexOutOfRange as error:
        raise graph.explained(error, arguments) from None
    return dict(zip(graph.outputs, values, strict=False))


def given_arrays(graph: ImportedGraph, given: Iterable[str]) -> dict[str, Array]:
    """Return inputs by name that are given as ``name=file``."""
    arrays: dict[str, Array] = {}
    for each in given:
        name, _, path = each.partition("=")
        if not path or name not in graph.inputs or name in arrays:
            wanted = ", ".join(graph.inputs) or "none"
            raise ArgumentError(
                f"--input {each}: write name=file.npy, once for each input of the graph: {wanted}"
            )
        arrays[name] = read_array(Path(path))
    return arrays
