"""Loads a computation that `Computation.save` wrote, or a frontend reads.

The graph of an artifact is parsed and compiled like any other. What the file says is checked as
what a user says is: it may come from anybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import plugins
from weft.errors import ArgumentError, ArtifactError, BackendError, PluginError, WeftError
from weft.ir.graph import Graph
from weft.ir.lengths import Length
from weft.ir.op import op_classes
from weft.ops.control.effects import doall
from weft.ops.shape.movement import BroadcastOp
from weft.runtime.artifact_files import (
    COMPUTED,
    CONSTANTS,
    GRAPH,
    INITIAL,
    STATES,
    document_of,
    has_document,
    read_parts,
)
from weft.runtime.artifact_saving import facts
from weft.runtime.computation import Computation
from weft.runtime.factory import Chosen, is_chosen, make_transformer
from weft.runtime.importers import ImportedGraph, Specialization, import_graph
from weft.runtime.safetensors_content import arrays_in
from weft.runtime.transformer import Transformer
from weft.support.backports import override
from weft.text.parser import Parsing
from weft.text.printer import labels
from weft.transforms.computation_op import ComputationOp


def load(
    path: str | os.PathLike[str],
    backend: Chosen | Transformer | None = None,
    trust: bool = False,
    lengths: Mapping[str, int] | None = None,
) -> Computation:
    """Return the computation in a file: an artifact, or a model that a frontend reads.

    An artifact is what `Computation.save` wrote; a model is an exported program of PyTorch or an
    ONNX model, for example. The graph in the file is compiled, through the compile cache.

    Parameters
    ----------
    path
        The file. Frontends are found by suffix, such as ``.pt2`` and ``.onnx``; a file without a
        suffix or with the suffix ``.weft`` is an artifact.
    backend
        What `make_transformer` takes, or a transformer to add the computation to. Without it an
        artifact is for the backend that saved it, unless `weft.backend` or ``WEFT_BACKEND``
        chooses another; its repr says which. A new transformer has the options `fast_math` and
        `memory_limit` of the one that saved the computation.
    trust
        Whether the code that the file brings runs instead. Give it for files of your own only: a
        file's author can put any code there. Models bring none.
    lengths
        Lengths by name, for those that a model leaves open. Without them they stay open if the
        frontend can compile for all.

    Returns
    -------
    Computation
        The computation, with the parameters and results of the one that was saved. That of a model
        takes its inputs and returns the list of its outputs, then None if it updates states; its
        parameters are states where the frontend makes them so.

    Raises
    ------
    ArgumentError
        For an argument of another kind, and for a model with lengths that must be given.
    ArtifactError
        For a file that is not an artifact, is damaged, or has been saved by a version of weft that
        this one cannot read, and where the backend that saved it cannot be used and no other is
        chosen; with `trust` also for code of another backend, version or processor.
    ParseError
        For a malformed model.
    PluginError
        If no installed frontend reads files of the suffix.

    Examples
    --------
    >>> import tempfile
    >>> x = weft.placeholder((2,), "float64")
    >>> computation = weft.make_transformer("numpy").computation(weft.sum(x), x)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     computation.save(f"{folder}/total")
    ...     total = weft.load(f"{folder}/total")
    >>> total([1.0, 2.0])
    array(3.)
    """
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"load takes the path of a file, not {path!r:.80}")
    if not isinstance(trust, bool):
        raise ArgumentError(f"trust= takes True or False, not {trust!r:.80}")
    file = Path(path)
    read = _Reading(file) if is_artifact(file) else _imported(file, lengths or {})
    if isinstance(read, _Reading) and lengths:
        raise ArgumentError(f"lengths= is for models, and {file} is an artifact")
    if isinstance(backend, Transformer):
        transformer = backend
    elif isinstance(read, _Reading):
        transformer = read.transformer(backend)
    else:
        transformer = make_transformer(backend)
    try:
        if isinstance(read, _Reading):
            return read.computation(transformer, trust)
        return read.computation(transformer, file.stem)
    except BaseException:
        if transformer is not backend:
            transformer.close()
        raise


def is_artifact(path: Path) -> bool:
    """Return whether a file is read as an artifact, and not by a frontend."""
    return path.suffix in ("", ".weft") or not path.is_file() or has_document(path)


def _imported(path: Path, lengths: Mapping[str, int]) -> ImportedGraph:
    """Return the graph of a model; raises ArgumentError if the importer had to choose a length."""
    graph = import_graph(path, {}, Specialization(lengths) if lengths else None)
    chosen = {name: length for name, length in graph.lengths.items() if name not in lengths}
    if chosen:
        given = {**lengths, **chosen}
        problem = f"{path} leaves lengths open: {', '.join(chosen)}"
        raise ArgumentError(f"{problem}. Give them, as in weft.load(path, lengths={given})")
    return graph


def read_graph(path: Path) -> Graph:
    """Return the graph in an artifact, before any pass; raises ArtifactError as `load` does."""
    return _Reading(path).graph


def import_artifact(path: Path) -> ImportedGraph:
    """Return the graph in an artifact with its states; raises ArtifactError as `load` does.

    Inputs have the names of their placeholders, and outputs the keys of the dictionary that they
    were returned in, or else a number, as in ``result0``.
    """
    reading = _Reading(path)
    parameters = labels([op.source for op in reading.graph.inputs])
    if isinstance(reading.results, dict):
        outputs = {f"{key}": op for key, op in reading.results.items() if op.is_tensor}
    else:
        outputs = {f"result{number}": op for number, op in enumerate(reading.graph.outputs)}
    reading.results = tuple(reading.graph.outputs)
    inputs = {name: op for op, name in parameters.items()}
    return _ImportedArtifact(inputs, outputs, reading=reading)


@dataclass(frozen=True, kw_only=True)
class _ImportedArtifact(ImportedGraph):
    reading: _Reading

    @override
    def computation(self, transformer: Transformer, name: str) -> Computation:
        return self.reading.computation(transformer, trust=False)


class _Reading:
    """What is in an artifact, checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts = read_parts(path)
        self.document = document_of(path, self.parts)
        with self.reading("the document"):
            self.require_ops(_typed(dict, self.document.get("ops", {})))
        with self.reading("the graph"):
            constants, _ = arrays_in(self.parts[CONSTANTS])
            self.parsing = Parsing(constants=constants)
            self.graph = self.parsed(GRAPH)
            self.initial = [self.parsed(each) for each in (INITIAL, COMPUTED) if each in self.parts]
            self.states = arrays_in(self.parts[STATES])[0] if STATES in self.parts else {}
            self.require_states()
        with self.reading("the document"):
            self.name: str = _typed(str, self.document["name"])
            self.backend: str = _typed(str, self.document["backend"])
            self.options = _options(self.document.get("options", {}))
            self.results = self.structure(**self.document["results"])
            given = _typed(dict, self.document["given"])
            symbols = self.parsing.symbols
            self.given = {symbols[name]: _typed(int, n) for name, n in given.items()}

    def transformer(self, backend: Chosen | None) -> Transformer:
        """Return a new transformer of a backend, by default of the one that saved the file."""
        if backend is not None or is_chosen():
            return make_transformer(backend, **self.options)
        try:
            return make_transformer(self.backend, **self.options)
        except (PluginError, BackendError) as error:
            problem = f"{self.path} was saved for the backend {self.backend!r:.40}, which cannot be"
            raise ArtifactError(
                f"{problem} used here: choose another, as in load({str(self.path)!r}, "
                f"backend='numpy').\n  {error.problem}"
            ) from error

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Raise ArtifactError for whatever is wrong with the content of the file."""
        try:
            yield
        except (ArtifactError, ImportError, MemoryError):
            raise
        except (WeftError, *_MALFORMED) as error:
            problem = getattr(error, "problem", None) or f"{type(error).__name__}: {error}"
            message = f"{self.path}, saved by weft {self.document.get('weft')!r:.40}: {what}"
            raise ArtifactError(f"{message} is malformed: {problem:.1000}") from None

    def parsed(self, part: str) -> Graph:
        return self.parsing.parse(self.parts[part].decode())

    def require_ops(self, packages: dict[str, str]) -> None:
        """Raise ArtifactError for classes of ops that no plugin has here."""
        if not packages.keys() <= op_classes.keys():
            plugins.load_ops()
        missing = [
            f"{_typed(str, name):.80} of {_typed(str, package):.80}"
            for name, package in packages.items()
            if name not in op_classes
        ]
        if missing:
            raise ArtifactError(
                f"{self.path} has ops of packages that are not installed here, or do not register "
                f"them (weft_register_ops): {', '.join(missing)}"
            )

    def require_states(self) -> None:
        """Raise ArtifactError if values are not those of the graph's states."""
        if STATES not in self.parts:
            return
        named = {self.parsing.states[name] for name in self.states}
        missing = [f"{op}" for op in self.graph.states if op not in named]
        if missing:
            raise ValueError(f"there are no values of {', '.join(missing)}")

    def structure(self, form: str, keys: Any, tensors: Any) -> Any:
        """Return ops in the structure of the computation's results."""
        if sum(_typed(bool, is_tensor) for is_tensor in tensors) != len(self.graph.outputs):
            raise ValueError("the graph has another number of results")
        outputs = iter(self.graph.outputs)
        ops = [next(outputs) if is_tensor else doall(()) for is_tensor in tensors]
        if form == "dict":
            return dict(zip(keys, ops, strict=True))
        if form == "one":
            (op,) = ops
            return op
        if form == "none" and not ops:
            return None
        if form != "tuple":
            raise ValueError(f"results have the unknown form {form!r:.40}")
        return tuple(ops)

    def computation(self, transformer: Transformer, trust: bool) -> Computation:
        """Return the computation on a transformer, with its states."""
        if trust:
            self.offer_code(transformer)
        parameters = tuple(op.source for op in self.graph.inputs)
        op = ComputationOp(results=self.results, parameters=parameters, graph=self.graph)
        for initial in self.initial:
            with self.reading("the initial values"):
                self.initialize(transformer, initial)
        with self.reading("the graph"):
            computation = transformer.computation(
                op, name=self.name, axes=self.given_in(self.graph)
            )
        for name, value in self.states.items():
            with self.reading(f"the value of {name!r:.80}"):
                transformer.set_value(self.parsing.states[name], value)
        return computation

    def initialize(self, transformer: Transformer, initial: Graph) -> None:
        """Give states their initial values: constants when they are used, what is computed now."""
        computed = []
        for state, value in initial.updates:
            scalar = value.args[0] if isinstance(value, BroadcastOp) else value
            if scalar.is_constant:
                state.initialize_with(scalar)
            else:
                computed.append((state, value))
        if computed:
            graph = initial.replace(updates=computed)
            computation = transformer.computation(graph, axes=self.given_in(graph))
            computation()
            transformer.discard([computation])

    def given_in(self, graph: Graph) -> dict[Length, int]:
        """Return the lengths that were given to unknown ones of a graph."""
        return {
            length: size
            for length, size in self.given.items()
            if length.as_symbol() in graph.symbols
        }

    def offer_code(self, transformer: Transformer) -> None:
        """Give the transformer the code that the file brings, if it is for this machine."""
        here = facts(transformer)
        for what, mine in here.items():
            theirs = self.document.get(what)
            if what == "processor":
                lacking = sorted(set(map(str, _typed(list, theirs))) - set(mine))
                problem = f"a processor with {', '.join(lacking[:8])}" if lacking else ""
            else:
                problem = f"{what} {theirs!r:.80}, and this is {mine!r}" if theirs != mine else ""
            if problem:
                raise ArtifactError(
                    f"{self.path} brings code for {problem}: load it without trust=True, which "
                    "compiles the graph for this machine"
                )
        with self.reading("the table of programs"):
            for folder, key in _typed(dict, self.document["programs"]).items():
                transformer.compile_cache.offer(_typed(str, key), self.parts[f"{folder}/code"])


_MALFORMED = (
    TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError,
)  # fmt: skip
"""What comes of content that is JSON, or text, and makes no sense."""


def _options(given: Any) -> dict[str, Any]:
    """Return the options of a transformer that are not the default ones."""
    options: dict[str, Any] = {}
    if _typed(dict, given).get("fast_math"):
        options["fast_math"] = _typed(bool, given["fast_math"])
    limit = given.get("memory_limit")
    if limit is not None:
        if _typed(int, limit) < 0:
            raise ValueError(f"a limit on memory is not a negative number: {limit}")
        options["memory_limit"] = limit
    return options


def _typed(kind: type, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, not {value!r:.80}")
    return value
