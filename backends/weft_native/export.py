"""Export of computations as C source with no dependency but libm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import ArgumentError, BackendError
from weft.files import replacing
from weft.plan.plan import ARENA, CONSTANT, Buffer
from weft.runtime.given_lengths import HOW_TO_GIVE
from weft.support.quoting import file_name, harmless
from weft_c.dialect import Dialect
from weft_c.source.functions import HostCall, ctype
from weft_native.exported_names import exported_name, words_of
from weft_native.program_text import ProgramText

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
    if not computation.is_static:
        raise ArgumentError(f"{computation.name} has unknown lengths: {HOW_TO_GIVE}")
    original = computation.transformer
    options: Any = {
        "threads": 1, "cache": False, "passes": original.graph_passes,
        "fast_math": original.fast_math, "memory_limit": original.memory_limit,
    }  # fmt: skip
    graph = computation.graph.specialized(computation.arguments.given)
    with type(original)(**options) as scalar:
        dialect = replace(scalar.processor.dialect, has_vectors=False)
        scalar.processor = replace(scalar.processor, dialect=dialect, has_blas=False)
        program = scalar.computation(graph, name=computation.name).program
        group = program.code
        works = [each.host for each in group.text.segments if isinstance(each.host, HostCall)]
        if works:
            raise BackendError(works[0].op.explain("Python computes it, so C cannot be exported"))
        group.source.dialect = portable_dialect()
        states = {state: original.get_value(state) for state in program.captured.states}
        text = PortableText(group, name or computation.name, states)
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


class PortableText(ProgramText):
    """Writes a program as a C function with static memory.

    Attributes
    ----------
    title
        The name of the function.
    """

    def __init__(
        self, group: NativeKernelGroup, name: str, states: dict[Any, np.ndarray[Any, Any]]
    ) -> None:
        super().__init__(group)
        self._definitions = self._defined(states)
        self.title = ""
        self.title = exported_name(name, words_of(f"{self._definitions}\n{self._function()}"))

    @property
    def signature(self) -> str:
        """The function's declaration."""
        graph = self.group.program.captured
        inputs = [f"const {_ctype(op)} *in{n}" for n, op in enumerate(graph.inputs)]
        outputs = [f"{_ctype(op)} *out{n}" for n, op in enumerate(graph.outputs)]
        return f"int {self.title}({', '.join([*inputs, *outputs]) or 'void'})"

    def header(self, results: Sequence[str]) -> str:
        """Return the header, which says what the arguments are; `results` are their names."""
        graph = self.group.program.captured
        arrays = [
            *((f"in{n}", op, _name(op.source)) for n, op in enumerate(graph.inputs)),
            *((f"out{n}", op, results[n]) for n, op in enumerate(graph.outputs)),
        ]
        lines = [
            f"   {argument}: {op.dtype} {op.axes.shape}, {harmless(name)}"
            for argument, op, name in arrays
        ]
        guard = f"WEFT_{self.title.upper()}_H"
        return "\n".join([
            "/* Arrays are contiguous, in row-major order:", *lines,
            "   Returns 0; 1 if a kernel refused an operand, such as an index out of range. The",
            "   function has static memory: one call at a time. */",
            f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>",
            "#ifdef __cplusplus", 'extern "C"', "#endif", f"{self.signature};", "#endif", "",
        ])  # fmt: skip

    def source(self) -> str:
        """Return the C source."""
        return f'#include "{self.title}.h"\n{self._definitions}\n{self._function()}'

    def _defined(self, states: dict[Any, np.ndarray[Any, Any]]) -> str:
        """Return all that comes before the function; states begin with the given values."""
        kernels = self.group.source.text.replace("#pragma unroll\n", "\n")
        kernels = "\n".join(line for line in kernels.splitlines() if "#pragma clang" not in line)
        functions = [self._segment(number, each) for number, each in enumerate(self.segments)]
        declared = [f"static int segment_{n}(char *const *b);" for n in range(len(self.segments))]
        return "\n".join([
            kernels, "",
            "static const struct weft_runtime serial = {run_serially, poll_nothing};",
            "UNUSED static const struct weft_runtime *const runtime = &serial;\n",
            *self._calls, *declared, *functions, *self._memory(states),
        ])  # fmt: skip

    def _memory(self, states: dict[Any, np.ndarray[Any, Any]]) -> Iterator[str]:
        """Yield the definitions of the buffers."""
        for buffer, number in self.buffers.items():
            if buffer is None:
                yield f"static i32 buffer_{number}[{len(self.group.reports)}];"
            elif buffer.kind == ARENA:
                nbytes = max(self.group.program.arena_size, 1)
                yield f"static _Alignas(64) unsigned char buffer_{number}[{nbytes}];"
            else:
                yield _array(number, buffer, _value(buffer, states))

    def _function(self) -> str:
        graph = self.group.program.captured
        names = [*(f"in{n}" for n in range(len(graph.inputs)))]
        names += [f"out{n}" for n in range(len(graph.outputs))]
        names += [f"buffer_{number}" for number in self.buffers.values()]
        table = ", ".join(f"(char *){name}" for name in names) or "0"
        body = "\n".join(self._sequence(self.group.segments, "    "))
        words = self.buffers.get(None)
        clear = "" if words is None else f"    memset(buffer_{words}, 0, sizeof buffer_{words});\n"
        return (
            f"{self.signature} {{\n    UNUSED char *const b[] = {{{table}}};\n{clear}{body}\n"
            "    return 0;\n}\n"
        )


def _name(op: Any) -> str:
    """Return the name that the user gave an op, else what it is."""
    return op.label or type(op).__name__


def _result_names(computation: NativeComputation) -> list[str]:
    """Return the keys of results, or their names."""
    results = computation.results
    packed = computation.pack(list(results))
    keys = {id(op): str(key) for key, op in packed.items()} if isinstance(packed, dict) else {}
    return [keys.get(id(op)) or _name(op) for op in results if op.is_tensor]


def _ctype(op: Any) -> str:
    return _TYPES[ctype(op.dtype)]


def _value(buffer: Buffer, states: dict[Any, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    found = buffer.owner.const if buffer.kind == CONSTANT else states[buffer.owner]
    return np.ascontiguousarray(found)


def _array(number: int, buffer: Buffer, value: np.ndarray[Any, Any]) -> str:
    """Return the definition of a buffer with initial contents, exact to the bit."""
    kind = _WORDS[value.dtype.itemsize]
    words = value.reshape(-1).view(np.dtype(f"u{value.dtype.itemsize}")).tolist()
    lines = [
        "    " + " ".join(f"{word:#x}," for word in words[first : first + NUMBERS_PER_LINE])
        for first in range(0, len(words), NUMBERS_PER_LINE)
    ]
    const = "const " if buffer.kind == CONSTANT else ""
    head = f"static _Alignas(64) {const}{kind} buffer_{number}[{max(len(words), 1)}]"
    return "\n".join([f"{head} = {{", *(lines or ["    0"]), "};"])
