"""The command `weft run`: a graph from a file, computed once with arrays from files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any
from zipfile import BadZipFile

import numpy as np
import typer

from weft import importers
from weft.errors import ArgumentError, WeftError
from weft.factory import make_transformer
from weft.importers import ImportedGraph
from weft.program import Computation

Array = np.ndarray[Any, Any]

_INPUT = "An input and the .npy file that holds it, as in x=x.npy; once for each input."
_OUTPUT = "Write the only result to this .npy file, or all results by name to this .npz file."


def run_model(
    model: Annotated[Path, typer.Argument(help="The file with the graph, as in model.hk.")],
    inputs: Annotated[list[str] | None, typer.Option("--input", help=_INPUT)] = None,
    constants: Annotated[
        Path | None, typer.Option(help="The .npz file with values that the graph only names.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help=_OUTPUT)] = None,
    backend: Annotated[str | None, typer.Option(help="The backend that computes.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the plan of the memory, and compute nothing.")
    ] = False,
) -> None:
    """Compute the graph in a file, and print the results or write them to a file."""
    try:
        values = {} if constants is None and not plan else _loaded_constants(constants)
        importer = importers.importer_for(model)
        graph = importer.read(model, values)
        with make_transformer(backend) as transformer:
            computation = transformer.computation(graph.results, *graph.inputs.values(), name="run")
            if plan:
                typer.echo("\n\n".join(filter(None, [graph.memory, computation.plan.table()])))
                return
            results = _computed(graph, computation, inputs or ())
        if output is None:
            for name, array in results.items():
                typer.echo(f"{name}: {array.dtype}{list(array.shape)}\n{array}")
        else:
            _save(output, results)
    except (WeftError, OSError, MemoryError) as error:
        typer.echo(getattr(error, "problem", None) or str(error), err=True)
        raise typer.Exit(1) from None


def _computed(
    graph: ImportedGraph, computation: Computation, given: Iterable[str]
) -> dict[str, Array]:
    """Return the outputs by name, for inputs that are given as ``name=file``."""
    arrays: dict[str, Array] = {}
    for each in given:
        name, equals, path = each.partition("=")
        if not equals or name not in graph.inputs or name in arrays:
            wanted = ", ".join(graph.inputs) or "none"
            raise ArgumentError(
                f"--input {each}: write name=file.npy, once for each input of the graph: {wanted}"
            )
        arrays[name] = _loaded(Path(path))
    missing = [name for name in graph.inputs if name not in arrays]
    if missing:
        raise ArgumentError(f"the graph has inputs without values: {', '.join(missing)}")
    values = computation(*(arrays[name] for name in graph.inputs))
    return dict(zip(graph.outputs, values, strict=False))


def _loaded(path: Path) -> Array:
    """Return the array in a file."""
    with _opened(path) as found:
        if isinstance(found, np.ndarray):
            return found
    raise ArgumentError(f"{path} holds several arrays: an input comes alone, in a .npy file")


def _loaded_constants(path: Path | None) -> dict[str, Array] | None:
    """Return the arrays in a file by name, or None without a file."""
    if path is None:
        return None
    with _opened(path) as found:
        if isinstance(found, np.lib.npyio.NpzFile):
            return {name: found[name] for name in found.files}
    raise ArgumentError(f"{path} holds one array: constants come by name, in an .npz file")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield what NumPy finds in a file, where nothing is unpickled.

    Raises ArgumentError if that is no arrays, also while they are taken from it.
    """
    try:
        with path.open("rb") as file:
            yield np.load(file, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as error:
        problem = str(error).partition(". ")[0]
        raise ArgumentError(f"{path} holds no arrays that can be read: {problem}") from None


def _save(path: Path, results: Mapping[str, Array]) -> None:
    """Write results to a file, which is there in full or not at all."""
    if path.suffix == ".npz":
        _write(path, lambda file: np.savez(file, allow_pickle=False, **results))
        return
    if len(results) != 1 or path.suffix != ".npy":
        names = ", ".join(results)
        raise ArgumentError(
            f"--output {path}: a .npy file takes one result, an .npz file any number of them; "
            f"there are {names}"
        )
    (array,) = results.values()
    _write(path, lambda file: np.save(file, array))


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as file:
            write(file)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
