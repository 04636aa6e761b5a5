"""Importers: read graphs from files, registered in the group ``weft.frontends``.

`weft run` and `weft.load` find the importer of a file by its suffix::

    class GemImporter:
        suffixes = (".gem",)

        def read(self, path, constants):
            x = weft.placeholder((2,), name="x")
            return ImportedGraph(inputs={"x": x}, outputs={"y": weft.tanh(x)})
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from weft import plugins
from weft.errors import ArgumentError, IndexOutOfRange, PluginError
from weft.ir.op import Op
from weft.plugins.blame import blaming, origin_of
from weft.plugins.registry import FRONTENDS
from weft.report.progress import Stage
from weft.runtime.computation import Computation
from weft.runtime.transformer import Transformer


@dataclass(frozen=True)
class ImportedGraph:
    """A graph from a file.

    Attributes
    ----------
    inputs
        The placeholders that a call gives values for, by name, in order.
    outputs
        The tensors that a call returns, by name.
    updates
        An op that writes the graph's states in every call; None without states.
    memory
        A text on memory from the file's format, which `weft run --plan` prints.
    lengths
        The lengths that were chosen for those that the file leaves open, by name. Others stay
        open, as symbols.
    fixed
        The names of inputs whose given values are part of the graph, so that a call takes none.
    """

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Op]
    updates: Op | None = None
    memory: str = ""
    lengths: Mapping[str, int] = field(default_factory=dict)
    fixed: Collection[str] = ()

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """Return a call's arguments from values by name; raises ArgumentError if one is missing."""
        missing = [name for name in self.inputs if name not in given]
        if missing:
            places = [f"  {self.inputs[name]}, {self.inputs[name].file_info}" for name in missing]
            problem = f"the graph has inputs without values: {', '.join(missing)}"
            raise ArgumentError("\n".join([problem, *places]))
        return [given[name] for name in self.inputs]

    def explained(self, error: IndexOutOfRange, arguments: Sequence[Any]) -> IndexOutOfRange:
        """Return the error of a call in the terms of the file's format."""
        return error

    def computation(self, transformer: Transformer, name: str) -> Computation:
        """Return the computation, whose results are the outputs, then None for the updates."""
        updates = [] if self.updates is None else [self.updates]
        results = [*self.outputs.values(), *updates]
        return transformer.computation(results, *self.inputs.values(), name=name)


@runtime_checkable
class Importer(Protocol):
    """Reads files of some format.

    Attributes
    ----------
    suffixes
        The suffixes of such files, in lower case, with the dot.
    """

    suffixes: tuple[str, ...]

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph in a file.

        `constants` are values that the file only names, by name, each of which is read from its
        own file when it is asked for; None means that values do not matter, since nothing will be
        computed. Those of an .npz file are `weft.runtime.array_files.StoredArrays`, whose `header`
        tells type and shape before the elements take memory. Raises ParseError for a malformed
        file, and runs nothing that is in it.
        """


@dataclass(frozen=True)
class Specialization:
    """What is known of a call before a graph is read.

    Attributes
    ----------
    lengths
        Lengths by name, for those that the file leaves open. One without a name is called by the
        input and the axis, as in ``x:2``.
    inputs
        Values of inputs by name: an array, or a number, which fills the input. An array is read
        when it is looked up.
    """

    lengths: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class SpecializingImporter(Importer, Protocol):
    """Reads files that leave lengths open, or whose graph depends on the values of inputs."""

    def specialize(
        self, path: Path, constants: Mapping[str, Any] | None, known: Specialization
    ) -> ImportedGraph:
        """Return the graph in a file for lengths and inputs that are known; `read` knows none.

        Lengths that nobody knows are chosen. Raises ArgumentError for a length or an input that
        the file does not have, and for lengths that do not fit.
        """


def filled(name: str, value: Any, op: Op) -> np.ndarray[Any, Any]:
    """Return the value of an input: an array as it is, or a number in each element.

    Raises ArgumentError for a number that the input's dtype does not have.
    """
    if isinstance(value, np.ndarray):
        return value
    with np.errstate(all="ignore"):
        array = np.full(op.axes.shape, value).astype(op.dtype)
    if op.dtype.kind in "iub" and np.any(array != value):
        raise ArgumentError(f"the input {name} takes {op.dtype}, which has no {value}")
    return array


def importer_for(path: Path) -> Importer:
    """Return the importer of the first frontend that reads files of a suffix.

    Raises PluginError, which lists what is installed, if there is none.
    """
    suffix = path.suffix.lower()
    known: list[str] = []
    for name in plugins.names(FRONTENDS):
        try:
            importer = plugins.load(FRONTENDS, name)
        except PluginError as error:
            known.append(f"  {name}: {error}")
            continue
        if isinstance(importer, Importer):
            if suffix in importer.suffixes:
                return importer
            known.append(f"  {name}: {', '.join(importer.suffixes)}")
    listed = "\n".join(known) or "  none"
    raise PluginError(f"No frontend reads files that end in {suffix!r}. Installed:\n{listed}")


def import_graph(
    path: Path, constants: Mapping[str, Any] | None, known: Specialization | None = None
) -> ImportedGraph:
    """Return the graph in a file, by the importer of its suffix.

    `constants` are as for `Importer.read`, which reads the file if nothing is known. Raises
    PluginError without an importer, ArgumentError for a length that the file does not leave open,
    and what the importer raises.
    """
    importer = importer_for(path)
    doing = f"while it read {path}"
    with Stage(f"reading {path}"), blaming(origin_of(importer), doing, extends=False):
        if known is not None and isinstance(importer, SpecializingImporter):
            return importer.specialize(path, constants, known)
        if known is not None and known.lengths:
            raise ArgumentError(f"{', '.join(known.lengths)}: {path} leaves no length open")
        return importer.read(path, constants)
