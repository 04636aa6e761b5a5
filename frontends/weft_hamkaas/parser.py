"""The parser of scripts, without recursion and without code execution.

The grammar; whitespace is ignored, even within words::

    script     = { statement ";" }
    statement  = "$" number "=" kind "(" argument { "," argument } ")"
               | "result" "=" "$" number
    argument   = "$" number | number | "[" number { "," number } "]" | name | type
"""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from weft.ir import scope
from weft.runtime import out_of_memory
from weft.runtime.array_files import StoredArrays
from weft.support.gc_pause import gc_paused
from weft_hamkaas.errors import KindError, NodeError, ScriptError
from weft_hamkaas.nodes import KINDS, BufferTensor, ConstantTensor, HamKaasNode
from weft_hamkaas.tensors import (
    DTYPES,
    FLOAT,
    INTEGER,
    TensorMeta,
    checked_meta,
    dtype_name,
    is_tensor,
)
from weft_hamkaas.traversal import (
    constant_names,
    evaluation_order,
    named_inputs,
    require_different_buffers,
)

_RESULT = re.compile(r"result=\$([0-9]++)")
_DEFINITION = re.compile(r"\$([0-9]++)=([A-Za-z]++)\(")
_ARGUMENTS = {
    "node": (re.compile(r"\$([0-9]++)"), "a node, as in $1"),
    "number": (re.compile("([0-9]++)"), "a number"),
    "shape": (re.compile(r"\[((?:[0-9]++(?:,[0-9]++)*+)?)\]"), "a list of numbers, as in [2, 3]"),
    "axes": (re.compile(r"\[((?:[0-9]++(?:,[0-9]++)*+)?)\]"), "a list of numbers, as in [1, 0]"),
    "name": (re.compile("([^,)]++)"), "a name"),
    "type": (re.compile("([^,)]++)"), "a type"),
}
"""The pattern of each kind of argument, and its description in errors."""

_UNNAMED = re.compile(r"[^,)]++,\[")
_RESULT_BEGINS = "result=$"
_DIGITS = 18
"""The maximum number of digits, without leading zeros; such numbers fit into 64 bits."""

_AXES = 3
"""The maximum length of a list, since tensors have at most three axes."""

_BOM = "\ufeff"

_QUOTED = 24


def parse_script(
    script: str | bytes, constants: Mapping[str, Any] | None = None, filename: str = "<script>"
) -> HamKaasNode:
    """Parse a script, and return its result node.

    `constants` has the values of ConstantTensors by name; each is looked up when its statement is
    read. Without it, the node can be printed and planned without memory, but not compiled. Raises
    ScriptError with line and column for a malformed script, for an invalid node, and for a constant
    that is missing or has a wrong type or shape; KindError for an argument that is not a text or no
    mapping; MemoryError with the line for a constant that does not fit into memory. A missing
    result is reported before other errors.
    """
    if not isinstance(script, str | bytes):
        raise KindError(f"A script is text, str or bytes, not {reprlib.repr(script)}")
    if not isinstance(constants, Mapping | None):
        found = reprlib.repr(constants)
        raise KindError(f"Constants are a mapping of names to tensors, or None, not {found}")
    text = script if isinstance(script, str) else _decoded(script, filename)
    parser = _Parser(_Text(text.removeprefix(_BOM), filename), constants)
    with gc_paused():
        return parser.run()


def _decoded(script: bytes, filename: str) -> str:
    try:
        return script.decode()
    except UnicodeDecodeError as error:
        text = _Text(script[: error.start].decode().removeprefix(_BOM), filename)
        text.refuse(f"byte {script[error.start]:#04x} is not text in UTF-8", len(text.stripped))


class _Text:
    """A script without whitespace, and the position of each of its characters."""

    def __init__(self, script: str, filename: str) -> None:
        self.filename = filename
        codes = np.frombuffer(script.encode("utf-32-le", "surrogatepass"), np.uint32)
        is_space = (codes == ord(" ")) | ((codes >= ord("\t")) & (codes <= ord("\r")))
        self._kept = np.flatnonzero(~is_space)
        self._newlines = np.flatnonzero(codes == ord("\n"))
        self._end = len(codes)
        self.stripped = codes[self._kept].tobytes().decode("utf-32-le", "surrogatepass")

    def place(self, at: int) -> tuple[int, int]:
        """Return line and column, both from 1, of a character of the stripped text."""
        offset = int(self._kept[at]) if at < len(self._kept) else self._end
        line = int(np.searchsorted(self._newlines, offset))
        return line + 1, offset - (int(self._newlines[line - 1]) if line else -1)

    def refuse(self, problem: str, at: int) -> NoReturn:
        """Raise a ScriptError at a position."""
        raise ScriptError(problem, self.filename, *self.place(at))


class _Parser:
    def __init__(self, text: _Text, constants: Mapping[str, Any] | None) -> None:
        self.text = text
        self.constants = constants
        self.nodes: dict[int, HamKaasNode] = {}
        self.stand_ins = {FLOAT: itertools.count(2), INTEGER: itertools.count(1)}
        self.at = 0

    def run(self) -> HamKaasNode:
        """Parse all statements; returns the node of the last result statement."""
        if _RESULT_BEGINS not in self.text.stripped:
            self._refuse_without_result()
        result = None
        while self.at < len(self.text.stripped):
            found = _RESULT.match(self.text.stripped, self.at)
            if found is None:
                self._define()
            else:
                self.at = found.end()
                result = found
            self._expect(";")
        if result is None:
            self._refuse_without_result()
        root = self._known(result[1], result.start(1) - 1)
        try:
            order = evaluation_order(root)
            named_inputs(order)
            constant_names(order)
            require_different_buffers(order)
        except NodeError as error:
            self.text.refuse(error.problem, result.start())
        return root

    def _refuse_without_result(self) -> NoReturn:
        end = len(self.text.stripped)
        self.text.refuse("Output node is not defined: write result = $1;", end)

    def _define(self) -> None:
        """Parse a statement that defines a node."""
        begin = self.at
        found = _DEFINITION.match(self.text.stripped, begin)
        if found is None:
            self._refuse_here("expected a statement, as in $2 = ReLUNode($1); or result = $2;")
        kind = KINDS.get(found[2])
        if kind is None:
            known = ", ".join(KINDS)
            problem = f"Unknown node type {found[2][:_QUOTED]}: there are {known}"
            self.text.refuse(problem, found.start(2))
        number = self._number(found[1], begin + 1)
        if number in self.nodes:
            self.text.refuse(f"Node is defined twice (node = {number})", begin)
        self.at = found.end()
        arguments = self._arguments(kind)
        line, _ = self.text.place(begin)
        try:
            with scope.located((self.text.filename, line)):
                node = self.nodes[number] = self._node(kind, arguments)
                node.number = number
        except NodeError as error:
            self.text.refuse(f"{found[2]}: {error.problem}", begin)

    def _arguments(self, kind: type[HamKaasNode]) -> list[Any]:
        signature = kind.signature
        if kind is BufferTensor and not _UNNAMED.match(self.text.stripped, self.at):
            signature = ("name", *signature)
        values = []
        for place, wanted in enumerate(signature):
            if place:
                self._expect(",")
            values.append(self._argument(wanted))
        self._expect(")")
        return values

    def _argument(self, wanted: str) -> Any:
        pattern, description = _ARGUMENTS[wanted]
        at = self.at
        found = pattern.match(self.text.stripped, at)
        if found is None:
            self._refuse_here(f"expected {description}")
        self.at = found.end()
        if wanted == "node":
            return self._known(found[1], at)
        if wanted == "number":
            return self._number(found[1], at)
        if wanted in ("shape", "axes"):
            return self._numbers(found[1], at)
        return found[1]

    def _numbers(self, text: str, at: int) -> list[int]:
        count = text.count(",") + 1 if text else 0
        if count > _AXES:
            self.text.refuse(f"Unsupported tensor dimension: {count} (one to three are)", at)
        return [self._number(digits, at) for digits in text.split(",")] if count else []

    def _known(self, digits: str, at: int) -> HamKaasNode:
        number = self._number(digits, at)
        if number not in self.nodes:
            self.text.refuse(f"Expression references unknown node (node = {number})", at)
        return self.nodes[number]

    def _number(self, digits: str, at: int) -> int:
        digits = digits.lstrip("0") or "0"
        if len(digits) > _DIGITS:
            self.text.refuse(f"a number of {len(digits)} digits is too large", at)
        return int(digits)

    def _expect(self, mark: str) -> None:
        if not self.text.stripped.startswith(mark, self.at):
            self._refuse_here(f"expected {mark!r}")
        self.at += 1

    def _refuse_here(self, expected: str) -> NoReturn:
        found = self.text.stripped[self.at : self.at + _QUOTED]
        there = f"not {found!r}" if found else "but the script ends"
        self.text.refuse(f"{expected}, {there}", self.at)

    def _node(self, kind: type[HamKaasNode], arguments: list[Any]) -> HamKaasNode:
        if kind is ConstantTensor:
            return self._constant(*arguments)
        if kind is BufferTensor and len(arguments) == 3:
            name, dtype, shape = arguments
            return BufferTensor(dtype, shape, name)
        return kind(*arguments)

    def _stand_in(self, dtype: str) -> Any:
        """Return a number in place of an unknown constant.

        It must not enable simplifications, which would change the plan: numbers are distinct,
        floats are not 0 or 1, and integers are small, since they are bounds.
        """
        return DTYPES[dtype].type(next(self.stand_ins[dtype]))

    def _constant(self, name: str, dtype: str, shape: list[int]) -> ConstantTensor:
        """Return a constant with its value, after a check of type and shape."""
        meta = checked_meta(dtype, shape)
        if self.constants is None:
            value: Any = np.broadcast_to(self._stand_in(meta.dtype), shape)
        else:
            if isinstance(self.constants, StoredArrays) and name in self.constants:
                _require_as_declared(name, self.constants.header(name), meta)
            with out_of_memory.noting_request(meta.nbytes, f"constant {reprlib.repr(name)}"):
                value = self.constants.get(name)
            if not is_tensor(value):
                given = ", ".join(sorted(map(str, self.constants))[:20]) or "none"
                raise NodeError(
                    f"the value of constant {reprlib.repr(name)} is missing; given are: {given}"
                )
        _require_as_declared(name, value, meta)
        constant = ConstantTensor(value)
        constant.set_name(name)
        constant.is_known = self.constants is not None
        return constant


def _require_as_declared(name: str, found: Any, meta: TensorMeta) -> None:
    """Raise NodeError if a constant, or its header in a file, differs from the declaration."""
    dtype, shape = dtype_name(found.dtype), list(found.shape)
    if dtype != meta.dtype or shape != list(meta.shape):
        raise NodeError(
            f"constant {reprlib.repr(name)} is {dtype} {shape}, but {meta.dtype} "
            f"{list(meta.shape)} in the script"
        )
