"""Functions, their launches, and the source of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.support.quoting import harmless, identifier
from weft_c.dialect import Dialect
from weft_c.source import helpers
from weft_c.source.entry_points import EntryPoint, make_entry_points


@dataclass(frozen=True)
class Parameter:
    """A pointer that a function takes: its name, what the elements are, whether it writes them."""

    name: str
    ctype: str
    is_written: bool

    def __str__(self) -> str:
        const = "" if self.is_written else "const "
        return f"GLOBAL {const}{self.ctype} *{self.name}"


@dataclass(frozen=True)
class Function:
    """A kernel in C, without the name that it has in a program.

    Equal functions are one in a program, so text that differs from use to use, such as users'
    lines, is not part of them.

    Attributes
    ----------
    title
        What its name begins with.
    parameters
        What it takes.
    body
        The lines between its braces.
    group
        The work items in a group.
    inner
        Functions that it calls, which become part of it.
    calls
        The helpers that its body calls.
    shuffles
        Whether its work items pass each other values.
    """

    title: str
    parameters: tuple[Parameter, ...]
    body: str
    group: int
    callees: tuple[Function, ...] = ()
    calls: tuple[str, ...] = ()
    shuffles: bool = False

    @property
    def name(self) -> str:
        """A name that no other function of a program has."""
        text = f"{self.parameters}{self.body}{self.group}"
        return f"{identifier(self.title)}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def device_function_name(self) -> str:
        """The name that it has as a function that kernels call."""
        return f"do_{self.name}"


@dataclass(frozen=True, eq=False)
class GPUKernel:
    """A function at work: what one launch does.

    Attributes
    ----------
    function
        What runs.
    args
        What its parameters point to. An address is that of the first byte of what the description
        covers, rounded down to the processor's alignment; None stands for the error word.
    items
        The number of work items, a multiple of the function's group.
    ops
        What it computes, with the users' lines.
    is_guarded
        Whether it does nothing where an error has been reported in the word, which is then that of
        the launch before it that may report one.
    """

    function: Function
    args: tuple[TensorDescription | None, ...]
    items: int
    ops: tuple[Op, ...]
    is_guarded: bool = False

    def guarded(self) -> GPUKernel:
        """Return the launch that does nothing once an error has been reported."""
        function, word = self.function, Parameter("error_word", "i32", False)
        function = replace(
            function,
            parameters=(*function.parameters, word),
            body=f"    if (*{word.name}) return;\n{function.body}",
        )
        return replace(self, function=function, args=(*self.args, None), is_guarded=True)


@dataclass(frozen=True, eq=False)
class HostCall:
    """Work of the host between launches, once all before it have ended.

    Attributes
    ----------
    work
        What is called, with an array for each of `args`.
    args
        Where the arrays lie.
    written
        The places among `args` of those that are written, each as a whole; they are not read.
    op
        What it computes.
    """

    work: Callable[..., Any]
    args: tuple[TensorDescription, ...]
    written: tuple[int, ...]
    op: Op


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """Work of a library of the device, which like a launch nobody waits for.

    Attributes
    ----------
    name
        What the library does: ``matmul`` writes the product of the first two tensors to the third.
    args
        Where the tensors lie.
    op
        What it computes.
    """

    name: str
    args: tuple[TensorDescription, ...]
    op: Op


class Source:
    """The functions of a program, and its text.

    Attributes
    ----------
    dialect
        The dialect of C.
    cases
        The most functions that are cases of one kernel.
    has_double
        Whether the device computes in float64, so that the program declares it.
    functions
        The functions that are launched, by name.
    lines
        The users' lines that each of them computes.
    """

    def __init__(self, dialect: Dialect, cases: int = 1, has_double: bool = True) -> None:
        self.dialect = dialect
        self.cases = cases
        self.has_double = has_double
        self.functions: dict[str, Function] = {}
        self.lines: dict[str, dict[str, None]] = {}

    def add(self, launch: GPUKernel) -> str:
        """Take a launch's function in, and return its name."""
        name = launch.function.name
        self.functions.setdefault(name, launch.function)
        lines = self.lines.setdefault(name, {})
        for op in launch.ops:
            for each in op.contained or (op,):
                lines[str(each.file_info)] = None
        return name

    @property
    def entry_points(self) -> list[EntryPoint]:
        """The kernels, with the functions in them."""
        return list(make_entry_points(self.functions, self.cases))

    @property
    def text(self) -> str:
        """The program in C."""
        return "\n".join(text for _, text in self._parts())

    def line_of(self, name: str) -> int:
        """Return the number of the line of the text on which the name of a function stands."""
        line = 1
        for each, text in self._parts():
            if each == name:
                break
            line += text.count("\n") + 1
        else:
            raise KeyError(name)
        is_case = any(name in entry.functions and entry.has_cases for entry in self.entry_points)
        attributes = 0 if is_case else self._head(name).count("\n")
        return line + len(self.lines[name]) + attributes

    def _parts(self) -> Iterator[tuple[str | None, str]]:
        """Yield the stretches of the text, those of functions that are launched with their name."""
        callees = {each.name: each for made in self.functions.values() for each in made.callees}
        for text in self._prelude([*self.functions.values(), *callees.values()]):
            yield None, text
        for each in callees.values():
            yield None, _device_function(each.device_function_name, each)
        for entry in self.entry_points:
            write = _device_function if entry.has_cases else self._kernel
            for name, function in entry.functions.items():
                lines = "".join(f"// {harmless(line)}\n" for line in self.lines[name])
                yield name, f"{lines}{write(name, function)}"
            if entry.has_cases:
                yield None, entry.text(self.dialect)

    def _kernel(self, name: str, function: Function) -> str:
        return f"{self._head(name)} {{\n{function.body}\n}}\n"

    def _head(self, name: str) -> str:
        """Return the head of a kernel, whose last line has its name."""
        function = self.functions[name]
        parameters = list(map(str, function.parameters))
        return self.dialect.kernel_head(name, parameters, function.group, function.shuffles)

    def _prelude(self, functions: Iterable[Function]) -> Iterator[str]:
        yield self.dialect.prelude
        if self.has_double:
            yield self.dialect.double
        for name in helpers.with_callees(name for each in functions for name in each.calls):
            yield helpers.HELPERS[name].text


def _device_function(name: str, function: Function) -> str:
    parameters = ", ".join(map(str, function.parameters))
    return f"FUNCTION void {name}({parameters}) {{\n{function.body}\n}}\n"


def byte_range(layout: TensorDescription) -> tuple[int, int]:
    """Return the first byte that a tensor covers in its buffer, and how many from there on."""
    if not layout.size:
        return layout.offset, 0
    spans = [(n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True)]
    first = layout.offset + sum(min(span, 0) for span in spans)
    last = layout.offset + sum(max(span, 0) for span in spans)
    return first, last + layout.dtype.itemsize - first


def ctype(dtype: DType) -> str:
    """Return the type of an element in memory; floats of 16 bits are looked at as bits."""
    return _CTYPES[dtype.name]


_CTYPES = {
    "bool": "u8", "float16": "u16", "bfloat16": "u16", "float32": "f32", "float64": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
