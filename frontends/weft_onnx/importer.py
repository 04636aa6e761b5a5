"""The importer of model files, for `weft run` and other users of importers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, WeftError
from weft.ir import scope
from weft.ir.op import Op
from weft.report.progress import Stage
from weft.runtime.importers import ImportedGraph, Specialization, filled
from weft.support.quoting import harmless
from weft.support.spelling import did_you_mean
from weft_onnx.declarations import dimensions, open_lengths
from weft_onnx.errors import ModelError, UndeterminedGraph
from weft_onnx.model import Model, load
from weft_onnx.nodes import numpy_dtype

TRIED = (1, 16, 32, 48, 64, 128, 224, 256, 320, 512, 576, 640, 1024)
"""The lengths that are tried for those that a model leaves open."""

LARGEST_FIXED = 64
"""The most elements of an input whose value may become a part of the graph."""

_SIZES = re.compile(r"size|imgsz|shape|height|width|length", re.IGNORECASE)
"""The keys of a model's metadata whose numbers are lengths of inputs."""


class ModelImporter:
    """Reads models that are one graph, once the lengths of inputs are known."""

    suffixes = (".onnx",)

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph of a model for lengths that fit.

        Raises ModelError for a malformed file, and NodeError where the graph depends on what a call
        computes; `weft_onnx.load` runs such models too.
        """
        return self.specialize(path, constants, Specialization())

    def specialize(
        self, path: Path, constants: Mapping[str, Any] | None, known: Specialization
    ) -> ImportedGraph:
        """Return the graph of a model for lengths and inputs that are known.

        Lengths that remain open are those of the metadata, or the first of `TRIED` that fit. Inputs
        of integers whose values fix shapes or branches become a part of the graph.
        """
        return _Specializer(load(path), known).graph()


class _Specializer:
    def __init__(self, model: Model, known: Specialization) -> None:
        self.model = model
        self.known = known
        self.open = list(open_lengths(model.inputs))
        places = [f"{harmless(title)}:{axis}" for title, axis, _ in self.open]
        _require_known("length", known.lengths, [*(name for *_, name in self.open), *places])
        _require_known("--input", known.inputs, model.inputs)
        self.given = {
            name: model.argument(name, value)
            for name in model.inputs
            if name in known.inputs and isinstance(value := known.inputs[name], np.ndarray)
        }
        self.measured = {
            name: self.given[title].shape[axis]
            for title, axis, name in self.open
            if title in self.given
        }

    def graph(self) -> ImportedGraph:
        """Return the graph for the first lengths that fit."""
        free = list(dict.fromkeys(each[2] for each in self.open if self._bound(*each) is None))
        if not free:
            return self._graph({})
        first: WeftError | None = None
        with Stage("trying lengths") as stage:
            for lengths in self._candidates(free):
                stage.part = _listed(lengths)
                try:
                    return self._graph(lengths)
                except UndeterminedGraph:
                    raise
                except WeftError as error:
                    first = first or error
        assert first is not None, "there is a candidate"
        first.add_note(
            f"no length that was tried fits for {', '.join(free)}; above is what is wrong with "
            f"{_listed(next(self._candidates(free)))}. Say one, as in --length {free[-1]}=48"
        )
        raise first

    def _candidates(self, free: list[str]) -> Iterator[dict[str, int]]:
        """Yield lengths for the names that are free; where others are, those of a batch are 1."""
        batches = {name for _, axis, name in self.open if axis == 0}
        varied = [name for name in free if name not in batches] or free
        hints = _hints(self.model)
        if hints:
            yield dict.fromkeys(free, 1) | dict(zip(varied, hints[-len(varied) :], strict=False))
        for size in TRIED:
            yield dict.fromkeys(free, 1) | dict.fromkeys(varied, size)
            if len(varied) > 1 and size > 1:
                for name in varied:
                    yield dict.fromkeys(free, 1) | {name: size}

    def _bound(self, title: str, axis: int, name: str) -> int | None:
        """Return an open length that an option or an array says, of this input or another."""
        said = self.known.lengths.get(f"{harmless(title)}:{axis}", self.known.lengths.get(name))
        if title not in self.given:
            return self.measured.get(name) if said is None else said
        length: int = self.given[title].shape[axis]
        if said not in (None, length):
            raise ArgumentError(f"--length {name}={said}: {harmless(title)} has {length} there")
        return length

    def _graph(self, lengths: Mapping[str, int]) -> ImportedGraph:
        """Return the graph for lengths by name; raises WeftError if they do not fit."""
        chosen = {
            (title, axis): lengths[name]
            if (bound := self._bound(title, axis, name)) is None
            else bound
            for title, axis, name in self.open
        }
        inputs = {title: self._placeholder(title, chosen) for title in self.model.inputs}
        values: dict[str, Any] = dict(inputs)
        while True:
            try:
                outputs = self.model.build(values)
            except UndeterminedGraph as error:
                undetermined = set(error.inputs)
                needed = [name for name, op in inputs.items() if op in undetermined]
                for name in needed:
                    values[name] = self._fixed(name, inputs.pop(name), error)
                if not needed:
                    raise
            else:
                named = {name: chosen[title, axis] for title, axis, name in self.open}
                fixed = [name for name in self.model.inputs if name not in inputs]
                return ImportedGraph(inputs=inputs, outputs=outputs, lengths=named, fixed=fixed)

    def _placeholder(self, title: str, chosen: Mapping[tuple[str, int], int]) -> Op:
        kind = self.model.inputs[title]
        if kind.WhichOneof("value") != "tensor_type":
            raise ModelError(f"input {harmless(title)} is not a tensor")
        declared = dimensions(kind)
        if declared is None:
            declared = self.given[title].shape if title in self.given else ()
        lengths = tuple(
            length if isinstance(length, int) else chosen[title, axis]
            for axis, length in enumerate(declared)
        )
        dtype = numpy_dtype(kind.tensor_type.elem_type)
        with scope.located((self.model.file, 0)):
            made: Op = weft.placeholder(lengths, dtype=dtype, name=harmless(title))
        return made

    def _fixed(self, name: str, op: Op, error: UndeterminedGraph) -> np.ndarray[Any, Any]:
        """Return the given value of an input that the graph depends on."""
        if op.axes.size > LARGEST_FIXED or name not in self.known.inputs:
            way = (
                f"Give the value of {harmless(name)}, as in --input {harmless(name)}=1"
                if op.axes.size <= LARGEST_FIXED
                else "weft_onnx.load(path).run(inputs) computes such a model in several steps"
            )
            raise UndeterminedGraph(f"{error.problem}. {way}", error.inputs)
        return filled(harmless(name), self.given.get(name, self.known.inputs[name]), op)


def _hints(model: Model) -> list[int]:
    """Return the numbers of the model's metadata that are lengths of inputs."""
    texts = [each.value for each in model.proto.metadata_props if _SIZES.search(each.key)]
    numbers = [int(each) for text in texts for each in re.findall(r"\b\d{1,5}\b", text[:1000])]
    return [number for number in numbers if number > 0]


def _listed(lengths: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={length}" for name, length in lengths.items())


def _require_known(option: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ArgumentError for a name that the model does not have."""
    listed = list(dict.fromkeys(known))
    for name in given:
        if name not in listed:
            meant = did_you_mean(name, listed)
            problem = f"{option} {name}: the model has {', '.join(listed) or 'none'}."
            raise ArgumentError(f"{problem}{meant}")
