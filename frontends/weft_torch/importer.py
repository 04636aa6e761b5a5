"""Files of exported programs, read without running what is in them."""

from __future__ import annotations

import io
import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import weft
from weft.errors import ArgumentError
from weft.runtime.importers import ImportedGraph, Specialization
from weft.support.spelling import did_you_mean
from weft_torch.errors import ProgramError
from weft_torch.exported import ProgramGraph, graph_of
from weft_torch.graphs import hints_of

_TARGET = re.compile(
    r"(torch\.ops\.(aten|prims|higher_order)\.\w+(\.\w+)?|_operator\.\w+|math\.\w+"
    r"|torch\.(sym|_sym)_\w+)",
    re.ASCII,
)
"""What the nodes of a program may call: ops, and functions of numbers."""

_PART = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/(version|serialization_id)|extra/[^/]+"
    r"|models/model\.json|data/sample_inputs/model\.pt"
    r"|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json))",
    re.ASCII,
)
"""The parts of a program. torch unpickles others, among them those of its earlier formats."""

_VALUE = re.compile(r"(weight|tensor)_\d+", re.ASCII)
"""The parts with the bytes of a parameter, buffer or constant."""

_IMPORTING = {"__enum__", "default_factory_module"}
"""Keys of the structures of arguments for which torch imports a module that the file names."""

_EXPRESSION = re.compile(r"(?!.*__)('\w+'|[\w\s+*/%(),<>=&|~-])*", re.ASCII)
_CALLED = re.compile(r"(\w+)\s*\(", re.ASCII)
_FUNCTIONS = {
    "Symbol", "Integer", "Rational", "Add", "Mul", "Pow", "Mod", "PythonMod", "FloorDiv",
    "CleanDiv", "CeilDiv", "IntTrueDiv", "Max", "Min", "Eq", "Ne", "Lt", "Le", "Gt", "Ge",
    "Equality", "Unequality", "StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan",
    "And", "Or", "Not",
}  # fmt: skip
"""What expressions of lengths may call, which torch has SymPy evaluate as Python."""


def _is_arithmetic(expression: str) -> bool:
    return bool(_EXPRESSION.fullmatch(expression)) and _FUNCTIONS.issuperset(
        _CALLED.findall(expression)
    )


def read_program(path: Path) -> Any:
    """Return the exported program in a file; nothing in it is unpickled or run.

    Raises ProgramError for a file that is no such archive, or that has parts of another kind,
    pickled values, compressed parts, calls of anything but ops, expressions that are more than
    arithmetic, or names of modules to import.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            cleaned = _cleaned(path, archive)
    except zipfile.BadZipFile as error:
        raise ProgramError(f"{path} is not an exported program: {error}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, of its own
            return torch.export.load(cleaned)
    except Exception as error:
        problem = f"torch {torch.__version__} cannot load {path}: {error}"
        raise ProgramError(f"{problem}. Export the model again with this version") from error


def _cleaned(path: Path, archive: zipfile.ZipFile) -> io.BytesIO:
    """Return the archive with empty sample inputs, which torch would unpickle, come what may."""
    cleaned = io.BytesIO()
    with zipfile.ZipFile(cleaned, "w") as copy:
        for part in archive.infolist():
            name = part.filename
            if part.compress_type != zipfile.ZIP_STORED or not _PART.fullmatch(name):
                raise ProgramError(
                    f"{path}: {name} is nothing that torch.export writes for tensors: objects, and "
                    "parts of earlier formats, could run any code. Export the model again"
                )
            is_sample = "/data/sample_inputs/" in name
            content = b"" if is_sample else archive.read(part)
            if name.endswith(".json"):
                content = _checked(path, name, content)
            copy.writestr(part, content)
    cleaned.seek(0)
    return cleaned


def _checked(path: Path, name: str, content: bytes) -> bytes:
    """Return a document without code that torch would run."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ProgramError(f"{path}: {name} is not JSON: {error}") from error
    for key, value in _entries(document):
        if key == "use_pickle" and value is not False:
            raise ProgramError(f"{path}: {name} names a pickled value, which could run any code")
        if key == "path_name" and not _VALUE.fullmatch(str(value)):
            raise ProgramError(f"{path}: {name} names {str(value)[:80]!r}, which is not a tensor")
        if key in _IMPORTING:
            raise ProgramError(f"{path}: {name} names a module to import: {str(value)[:80]!r}")
        if key in ("target", "as_operator") and not _TARGET.fullmatch(str(value)):
            raise ProgramError(f"{path}: {name} calls {str(value)[:80]!r}, which is not an op")
        if key == "expr_str" and not _is_arithmetic(str(value)):
            raise ProgramError(f"{path}: {name} has the expression {str(value)[:80]!r}")
    if isinstance(document, dict) and "guards_code" in document:
        document["guards_code"] = []
    return json.dumps(document).encode()


def _entries(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of all objects in a document, and in documents in its text."""
    stack = [document]
    while stack:
        found = stack.pop()
        if isinstance(found, dict):
            yield from found.items()
            stack += found.values()
        elif isinstance(found, list):
            stack += found
        elif isinstance(found, str) and found.lstrip().startswith(("{", "[", '"')):
            with suppress(ValueError):
                stack.append(json.loads(found))


class ProgramImporter:
    """Reads exported programs."""

    suffixes = (".pt2",)

    def read(self, path: Path, constants: Mapping[str, Any] | None) -> ImportedGraph:
        """Return the graph of a program, for all lengths that it leaves open.

        Raises ProgramError and UnsupportedOp.
        """
        return _imported(graph_of(read_program(path)), {})

    def specialize(
        self, path: Path, constants: Mapping[str, Any] | None, known: Specialization
    ) -> ImportedGraph:
        """Return the graph of a program for lengths that are known, by torch's names for them.

        Others are those of the export's example.
        """
        program = read_program(path)
        lengths = hints_of(program.graph_module)
        for name in known.lengths:
            if name not in lengths:
                listed = ", ".join(lengths) or "none"
                problem = f"length {name}: the program has {listed}.{did_you_mean(name, lengths)}"
                raise ArgumentError(problem)
        lengths |= known.lengths
        return _imported(graph_of(program, lengths), lengths)


def _imported(graph: ProgramGraph, lengths: Mapping[str, int]) -> ImportedGraph:
    return ImportedGraph(
        inputs=graph.inputs,
        outputs=graph.outputs,
        updates=weft.doall(graph.updates) if graph.updates else None,
        lengths=lengths,
    )
