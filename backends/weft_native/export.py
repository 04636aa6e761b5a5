"""Export of computations as C source with no dependency but libm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, BackendError
from weft.files import replacing
from weft.ir.graph import Graph
from weft.ir.guards import NUMBER_IN_TEXT
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.ops.pointwise.elementwise import real_dtype
from weft.plan.plan import ARENA, CONSTANT, Buffer
from weft.runtime.program import Program
from weft.support.digest import digest_of_array
from weft.support.quoting import file_name, harmless
from weft_c.dialect import Dialect
from weft_c.source.functions import HostCall, ctype
from weft_c.source.numbers import TABLE
from weft_native.exported_names import exported_name, words_of
from weft_native.program_text import ProgramText
from weft_native.variants import Variant, variants

if TYPE_CHECKING:
    from weft_native.executor import NativeKernelGroup
    from weft_native.transformer import NativeComputation

NUMBERS_PER_LINE = 12
"""The numbers in a line of an array's initial value."""

_WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}
_TYPES = {"f32": "float", "f64": "double"} | {
    f"{sign}{bits}": f"{prefix}int{bits}_t"
    for sign, prefix in (("i", ""), ("u", "u"))
    for bits in (8, 16, 32, 64)
}


def portable_dialect() -> Dialect:
    """Return the dialect of exported programs."""
    return Dialect(
        name="C11",
        prelude=files("weft_native").joinpath("portable.h").read_text(encoding="utf-8"),
        head=(
            "static NOINLINE void {name}"
            "({parameters}, UNUSED const i64 item, UNUSED const i64 items)"
        ),
        aligned="",
    )


def export_c(
    computation: NativeComputation, folder: str | os.PathLike[str], name: str | None = None
) -> tuple[Path, Path]:
    """Write a computation as C source; see `NativeComputation.export_c`."""
    original = computation.transformer
    options: Any = {
        "threads": 1, "cache": False, "passes": original.graph_passes,
        "fast_math": original.fast_math, "memory_limit": original.memory_limit,
    }  # fmt: skip
    graph = computation.graph.specialized(computation.arguments.given)
    with type(original)(**options) as scalar:
        dialect = replace(scalar.processor.dialect, has_vectors=False)
        scalar.processor = replace(scalar.processor, dialect=dialect, has_blas=False)
        if graph.symbols:
            found, choices = variants(scalar, graph, computation.name, _portable_text)
        else:
            program = scalar.computation(graph, name=computation.name).program
            found, choices = [Variant(program, None, (), _portable_text)], []
        original.require_values(computation.name, graph)
        states = {each: original.memory_of(each) for each in graph.states}
        text = ExportedFunction(graph, found, choices, states, name or computation.name)
        written = text.source(), text.header(_result_names(computation))
    paths = Path(folder) / f"{text.title}.c", Path(folder) / f"{text.title}.h"
    Path(folder).mkdir(parents=True, exist_ok=True)
    first = f"/* Exported by weft: {file_name(name or computation.name)} */\n"
    for path in paths:
        _require_own(path, first)
    for path, content in zip(paths, written, strict=True):
        with replacing(path) as file:
            file.write(f"{first}{content}".encode())
    return paths


def _require_own(path: Path, first: str) -> None:
    """Raise ArgumentError for a file that does not begin with the line of the same name.

    Names that differ may become the same name in C.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        is_own = file.read(len(first)) == first.encode()
    if not is_own:
        raise ArgumentError(
            f"{path} is there, and no export of this name: export to another folder, give another "
            "name, as in export_c(folder, 'other'), or remove the file"
        )


def _portable_text(program: Program) -> PortableText:
    """Return the text of a program; raises BackendError for an op that Python computes."""
    return PortableText(program.code)


class StaticMemory:
    """The memory of an exported function, which its variants share: they run one at a time.

    `states` are the values that states begin with.
    """

    def __init__(self, states: dict[Any, np.ndarray[Any, Any]]) -> None:
        self._states = states
        self._arena = 0
        self._arrays: dict[Any, str] = {}
        self.definitions: list[str] = []

    def arena(self, nbytes: int) -> str:
        """Return the name of the arena, which is at least so large."""
        self._arena = max(self._arena, nbytes, 1)
        return "arena"

    def define(self, kind: str, name: str, count: int) -> str:
        """Define an array of words, and return its name."""
        self.definitions.append(f"static {kind} {name}[{max(count, 1)}];")
        return name

    def array(self, buffer: Buffer) -> str:
        """Return the name of the array of a constant, or of a state."""
        value, key = self._states.get(buffer.owner), buffer.owner
        if buffer.kind == CONSTANT:
            value = np.ascontiguousarray(buffer.owner.const)
            key = value.dtype, digest_of_array(value)
        if key not in self._arrays:
            name = self._arrays[key] = f"array_{len(self._arrays)}"
            assert value is not None, "states have values"
            self.definitions.append(_array(name, buffer, np.ascontiguousarray(value)))
        return self._arrays[key]

    def text(self) -> str:
        """Return the definitions."""
        arena = f"static _Alignas(64) unsigned char arena[{self._arena}];"
        return "\n".join([*([arena] if self._arena else []), *self.definitions])


class PortableText(ProgramText):
    """The text of a program but for its kernels.

    Attributes
    ----------
    functions
        The functions of its launches and segments.
    table
        The name of its table of numbers.
    """

    def __init__(self, group: NativeKernelGroup) -> None:
        super().__init__(group)
        works = [each.host for each in self.segments if isinstance(each.host, HostCall)]
        if works:
            raise BackendError(works[0].op.explain("Python computes it, so C cannot be exported"))
        group.source.dialect = portable_dialect()
        # Where an array has no elements a segment may have no launch, and is then not called.
        segments = [
            self._segment(number, each).replace("(char", "(UNUSED char", 1)
            for number, each in enumerate(self.segments)
        ]
        declared = [f"UNUSED static int segment_{n}(char *const *b);" for n in range(len(segments))]
        self.functions = "\n".join([*self._calls, *declared, *segments])
        self.table = ""

    def rename(self, number: int, memory: StaticMemory) -> None:
        """Give the functions the names of a variant, and the buffers their arrays."""
        self._number, self.table = number, f"numbers_{number}"
        self.functions = self._own(self.functions)
        self._names = [self._array_of(buffer, memory) for buffer in self.buffers]

    def _own(self, text: str) -> str:
        text = _FUNCTION.sub(rf"\1_{self._number}_\2", text)
        return NUMBER_IN_TEXT.sub(rf"{self.table}[\1]", text)

    def _array_of(self, buffer: Buffer | None, memory: StaticMemory) -> str:
        if buffer is None:
            return memory.define("i32", f"reports_{self._number}", len(self.group.reports))
        if buffer is TABLE.base:
            return self.table
        if buffer.kind == ARENA:
            return memory.arena(self.group.program.arena_size)
        return memory.array(buffer)

    def body(self, document: Any) -> str:
        """Return the statements that run the program; `document` has the numbers of a variant."""
        captured = self.group.program.captured
        names = [*(f"in{n}" for n in range(len(captured.inputs)))]
        names += [f"out{n}" for n in range(len(captured.outputs))]
        table = ", ".join(f"(char *){name}" for name in [*names, *self._names]) or "0"
        lines = [*_numbers(document, self.table), f"UNUSED char *const b[] = {{{table}}};"]
        if None in self.buffers:
            reports = f"reports_{self._number}"
            lines.append(f"memset({reports}, 0, sizeof {reports});")
        lines += [self._own(each) for each in self._sequence(self.group.segments, "")]
        return "\n".join(f"    {line}" for line in [*lines, "return 0;"])


_FUNCTION = re.compile(r"\b(segment|launch|part)_(\d+)\b")


def _numbers(document: Any, table: str) -> Iterator[str]:
    """Yield the statements that compute the numbers of a variant from the lengths."""
    count = document.get("symbols", 0)
    for _, args, results in document["calls"]:
        assert results == 1, "only the largest of some numbers is computed again"
        *rest, largest = map(_expression, args["tuple"])
        for each in rest:
            largest = f"largest({each}, {largest})"
        yield f"UNUSED const i64 length{count} = {largest};"
        count += 1
    for number, polynomial in enumerate(document["numbers"]):
        yield f"{table}[{number}] = {_expression(polynomial)};"


def _expression(polynomial: Any) -> str:
    """Return a polynomial of lengths, as `Template` has it, as an expression in C."""
    if not isinstance(polynomial, list):
        return f"(i64)({polynomial})"
    terms = [" * ".join([f"(i64)({factor})", *map(_factor, a)]) for factor, a in polynomial]
    return f"({' + '.join(terms) or '0'})"


def _factor(atom: Any) -> str:
    if isinstance(atom, list):
        return f"quotient({', '.join(map(_expression, atom))})"
    return f"length{atom}"


ARITHMETIC = """\
UNUSED static i64 quotient(i64 x, i64 y) {
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
UNUSED static i64 largest(i64 x, i64 y) { return x > y ? x : y; }
"""
"""Functions of lengths: the quotient rounded down, and the larger one."""


class ExportedFunction:
    """A C function with static memory that runs one of some variants.

    Attributes
    ----------
    title
        The name of the function.
    """

    def __init__(
        self,
        graph: Graph,
        found: Sequence[Variant],
        choices: Sequence[int],
        states: dict[Any, np.ndarray[Any, Any]],
        name: str,
    ) -> None:
        self._graph, self._variants, self._choices = graph, found, choices
        self._definitions = self._defined(StaticMemory(states))
        self.title = ""
        self.title = exported_name(name, words_of(f"{self._definitions}\n{self._function()}"))

    @property
    def signature(self) -> str:
        """The function's declaration."""
        lengths = [f"int64_t length{n}" for n in range(len(self._graph.symbols))]
        inputs = [f"const {_ctype(op)} *in{n}" for n, op in enumerate(self._graph.inputs)]
        outputs = [f"{_ctype(op)} *out{n}" for n, op in enumerate(self._graph.outputs)]
        return f"int {self.title}({', '.join([*lengths, *inputs, *outputs]) or 'void'})"

    def header(self, results: Sequence[str]) -> str:
        """Return the header, which says what the arguments are; `results` are their names."""
        graph = self._graph
        arrays = [
            *((f"in{n}", op, _name(op.source)) for n, op in enumerate(graph.inputs)),
            *((f"out{n}", op, results[n]) for n, op in enumerate(graph.outputs)),
        ]
        lines = [
            f"   length{n}: {harmless(each.name)}, from 0 to {each.maximum}"
            for n, each in enumerate(graph.symbols)
        ]
        lines += [
            f"   {argument}: {_elements(op)} {harmless(str(op.axes.lengths))}, {harmless(name)}"
            for argument, op, name in arrays
        ]
        refused = "; 2 for lengths out of range or refused by an op" if graph.symbols else ""
        guard = f"WEFT_{self.title.upper()}_H"
        return "\n".join([
            "/* Arrays are contiguous, in row-major order:", *lines,
            "   Returns 0; 1 if a kernel refused an operand, such as an index out of range"
            f"{refused}. The",
            "   function has static memory: one call at a time. */",
            f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>",
            "#ifdef __cplusplus", 'extern "C"', "#endif", f"{self.signature};", "#endif", "",
        ])  # fmt: skip

    def source(self) -> str:
        """Return the C source."""
        return f'#include "{self.title}.h"\n{self._definitions}\n{self._function()}'

    def _defined(self, memory: StaticMemory) -> str:
        """Return all that comes before the function."""
        texts: list[PortableText] = [each.text for each in self._variants]
        source = texts[0].group.source
        for each in texts[1:]:
            for name, function in each.group.source.functions.items():
                source.functions.setdefault(name, function)
                source.locations.setdefault(name, each.group.source.locations.get(name, {}))
        kernels = source.text.replace("#pragma unroll\n", "\n")
        kernels = "\n".join(line for line in kernels.splitlines() if "#pragma clang" not in line)
        for number, (text, variant) in enumerate(zip(texts, self._variants, strict=True)):
            text.rename(number, memory)
            if variant.document["numbers"]:
                memory.define("i64", text.table, len(variant.document["numbers"]))
        return "\n".join([
            kernels, "",
            "static const struct weft_runtime serial = {run_serially, poll_nothing};",
            "UNUSED static const struct weft_runtime *const runtime = &serial;\n",
            *([ARITHMETIC] if self._choices else []),
            memory.text(), *(each.functions for each in texts),
        ])  # fmt: skip

    def _function(self) -> str:
        bodies = [each.text.body(each.document) for each in self._variants]
        if not self._choices:
            return f"{self.signature} {{\n{bodies[0]}\n}}\n"
        index, checks = "0", []
        for number, symbol in enumerate(self._graph.symbols):
            assert symbol.maximum is not None, "lengths without a maximum have been refused"
            index = f"({index}) * {symbol.maximum + 1} + length{number}"
            checks.append(f"length{number} < 0 || length{number} > {symbol.maximum}")
        cases = "".join(f"    case {n}: {{\n{body}\n    }}\n" for n, body in enumerate(bodies))
        return (
            f"{self.signature} {{\n    static const unsigned char choices[] = {{\n"
            f"{_listed(self._choices)}\n    }};\n    if ({' || '.join(checks)}) return 2;\n"
            f"    switch (choices[{index}]) {{\n{cases}    default: return 2;\n    }}\n}}\n"
        )


def _name(op: Op) -> str:
    """Return the name that the user gave an op, else what it is."""
    return op.label or type(op).__name__


def _result_names(computation: NativeComputation) -> list[str]:
    """Return the keys of results, or their names."""
    results = computation.results
    packed = computation.pack(list(results))
    keys = {id(op): str(key) for key, op in packed.items()} if isinstance(packed, dict) else {}
    return [keys.get(id(op)) or _name(op) for op in results if op.is_tensor]


def _elements(op: TensorOp) -> str:
    """Return the dtype; complex numbers are in memory as their parts, one after the other."""
    return f"{op.dtype} (pairs of {_ctype(op)})" if op.dtype.kind == "c" else str(op.dtype)


def _ctype(op: TensorOp) -> str:
    return _TYPES[ctype(real_dtype(op.dtype))]


def _array(name: str, buffer: Buffer, value: np.ndarray[Any, Any]) -> str:
    """Return the definition of an array with initial contents, exact to the bit."""
    itemsize = real_dtype(value.dtype).itemsize
    kind = _WORDS[itemsize]
    words = value.reshape(-1).view(np.dtype(f"u{itemsize}")).tolist()
    const = "const " if buffer.kind == CONSTANT else ""
    head = f"static _Alignas(64) {const}{kind} {name}[{max(len(words), 1)}]"
    return f"{head} = {{\n{_listed([f'{word:#x}' for word in words]) or '    0'}\n}};"


def _listed(numbers: Sequence[Any]) -> str:
    """Return numbers in lines, each with a comma."""
    return "\n".join(
        "    " + " ".join(f"{number}," for number in numbers[first : first + NUMBERS_PER_LINE])
        for first in range(0, len(numbers), NUMBERS_PER_LINE)
    )
