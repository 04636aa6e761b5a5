"""The command `weft run`: reads a graph from a file and runs it on arrays from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.errors import ArgumentError, IndexOutOfRange, WeftError
from weft.ir.dtypes import Array
from weft.plan.fusion_statistics import fusion_statistics
from weft.plan.plan import Plan
from weft.plan.step_comparison import compare_steps
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft.runtime.array_files import (
    read_array,
    require_room,
    require_writable,
    stored_arrays,
    write_arrays,
)
from weft.runtime.artifact_loading import import_artifact, is_artifact
from weft.runtime.computation import Computation
from weft.runtime.factory import make_transformer
from weft.runtime.importers import (
    ImportedGraph,
    Specialization,
    filled,
    import_graph,
)
from weft.runtime.out_of_memory import note_largest_tensors
from weft.support.spelling import did_you_mean

_INPUT = "An input and its .npy file, as in x=x.npy, or a number that fills it; once for each."
LENGTH = "A length that the file leaves open, as in N=48, or x:2=48 by input and axis."
_STEPS = "Print which steps there are without fusion and with it, and compute nothing."
_OUTPUT = "Write the only result to this .npy file, or all results by name to this .npz file."

_UNFUSED = [name for name in DEFAULT_PIPELINE if name != "fusion"]


def run_model(
    model: Annotated[Path, typer.Argument(help="The file with the graph, as in model.hk.")],
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    lengths: Annotated[list[str] | None, typer.Option("--length", help=LENGTH)] = None,
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
        graph = read_graph(model, inputs, lengths, constants, plan or steps)
        if output is not None:
            require_room(output, list(graph.outputs))
        with make_transformer(backend) as transformer:
            computation = graph.computation(transformer, "run")
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
                    before = plan_of(graph.computation(plain, "run"))
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


def read_graph(
    model: Path,
    inputs: Iterable[str] | None = None,
    lengths: Iterable[str] | None = None,
    constants: Path | None = None,
    without: bool = False,
) -> ImportedGraph:
    """Return the graph in a file; `without` values of constants if nothing will be computed.

    `inputs` and `lengths` are the options ``--input`` and ``--length``.
    """
    given, known = GivenInputs(inputs or ()), _lengths(lengths or ())
    if is_artifact(model) and (model.is_file() or model.suffix == ".weft"):
        if known or constants is not None:
            raise ArgumentError(f"--length and --constants are for models: {model} is an artifact")
        return import_artifact(model)
    with _values(constants, without) as values:
        return import_graph(model, values, Specialization(known, given))


def _lengths(options: Iterable[str]) -> dict[str, int]:
    """Return lengths by name that are given as ``name=length``."""
    found: dict[str, int] = {}
    for each in options:
        name, _, length = each.rpartition("=")
        if not name or not length.isdecimal() or name in found:
            raise ArgumentError(f"--length {each}: write name=length, once for each length")
        found[name] = int(length)
    return found


class GivenInputs(Mapping[str, Any]):
    """The inputs that are given as ``name=file`` or ``name=number``; files are read when asked."""

    def __init__(self, options: Iterable[str]) -> None:
        self._texts: dict[str, str] = {}
        for each in options:
            name, _, text = each.partition("=")
            if not text or name in self._texts:
                raise ArgumentError(
                    f"--input {each}: write name=file.npy or name=number, once for each input"
                )
            self._texts[name] = text

    def __getitem__(self, name: str) -> Any:
        for number in (int, float):
            with suppress(ValueError):
                return number(self._texts[name])
        return read_array(Path(self._texts[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def _values(constants: Path | None, plan: bool) -> AbstractContextManager[Mapping[str, Any] | None]:
    """Return the mapping that holds the graph's constants; None to plan without them."""
    if constants is not None:
        return stored_arrays(constants)
    return nullcontext(None if plan else {})


def plan_of(computation: Computation) -> Plan:
    """Return the plan of a computation, for which nothing is allocated."""
    if not computation.is_static:
        raise ArgumentError("lengths of this graph are known at a call only: it has no one plan")
    transformer, program = computation.transformer, computation.programs[()]
    transformer.run_registered_graph_passes([program])
    return transformer.graph_compiler.plan(program.graph, transformer.target)


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
    """Return inputs by name that are given as ``name=file`` or ``name=number``."""
    known = GivenInputs(given)
    for name in known:
        if name not in graph.inputs and name not in graph.fixed:
            wanted = ", ".join((*graph.inputs, *graph.fixed)) or "none"
            meant = did_you_mean(name, (*graph.inputs, *graph.fixed))
            raise ArgumentError(f"--input {name}=…: the inputs of the graph are: {wanted}.{meant}")
    return {
        name: filled(name, known[name], op) for name, op in graph.inputs.items() if name in known
    }
