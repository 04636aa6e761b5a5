"""Functions in C, their launches, and the source text of a program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.support.locks import cached_property
from weft.support.quoting import harmless, identifier
from weft.support.source import Location, file_info
from weft_c.dialect import Dialect
from weft_c.source import helpers
from weft_c.source.entry_points import EntryPoint, make_entry_points


@dataclass(frozen=True)
class Parameter:
    """A pointer parameter: its name, the type of its elements, and whether they are written."""

    name: str
    ctype: str
    is_written: bool

    def __str__(self) -> str:
        const = "" if self.is_written else "const "
        return f"GLOBAL {const}{self.ctype} *{self.name}"


@dataclass(frozen=True)
class Function:
    """A function in C, identified by its text.

    Equal functions occur once in a program, so text that differs between uses, such as users'
    lines, is not part of them.

    Attributes
    ----------
    title
        The prefix of its name.
    parameters
        Its parameters.
    body
        The lines between its braces.
    group
        The work items of a work group.
    callees
        The functions that it calls.
    calls
        The names of weft's helpers that it calls.
    helpers
        The texts of other functions that it calls.
    shuffles
        Whether it uses warp shuffles.
    """

    title: str
    parameters: tuple[Parameter, ...]
    body: str
    group: int
    callees: tuple[Function, ...] = ()
    calls: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    shuffles: bool = False

    @cached_property
    def name(self) -> str:
        """The kernel's name: the title and a hash of the text."""
        text = f"{self.parameters}{self.body}{self.group}{''.join(self.helpers)}"
        return f"{identifier(self.title)}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @property
    def device_function_name(self) -> str:
        """Its name as a device function that kernels call."""
        return f"do_{self.name}"


@dataclass(frozen=True, eq=False)
class GPUKernel:
    """One launch of a function.

    Attributes
    ----------
    function
        The function.
    args
        The tensors that its parameters point to. An address is that of the first byte the tensor
        covers, rounded down to the processor's alignment; None stands for the error word.
    items
        The number of work items, a multiple of the function's group.
    ops
        The ops that it computes, whose users' lines are shown in the source.
    is_guarded
        Whether it returns at once if its error word, that of the preceding launch that may report
        an error, is set.
    """

    function: Function
    args: tuple[TensorDescription | None, ...]
    items: int
    ops: tuple[Op, ...]
    is_guarded: bool = False

    def guarded(
        self, name: str = "error_word", test: str = "if (*error_word) return;"
    ) -> GPUKernel:
        """Return a launch that returns at once if an error has been reported.

        The parameter of the error word has a name, by which a statement tests it.
        """
        function = replace(
            self.function,
            parameters=(*self.function.parameters, Parameter(name, "i32", False)),
            body=f"    {test}\n{self.function.body}",
        )
        return replace(self, function=function, args=(*self.args, None), is_guarded=True)


@dataclass(frozen=True, eq=False)
class HostCall:
    """A call of a Python function between launches, after all earlier launches have ended.

    Attributes
    ----------
    work
        The function, which takes an array for each of `args`.
    args
        The layouts of the arrays.
    written
        The positions in `args` of the arrays that are overwritten as a whole and not read.
    op
        The op that it computes.
    """

    work: Callable[..., Any]
    args: tuple[TensorDescription, ...]
    written: tuple[int, ...]
    op: Op


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """An asynchronous call of a library of the device.

    Attributes
    ----------
    name
        The function: ``matmul`` writes the product of the first two tensors to the third.
    args
        The layouts of the tensors.
    op
        The op that it computes.
    """

    name: str
    args: tuple[TensorDescription, ...]
    op: Op


class Section(NamedTuple):
    """A section of a program's text.

    Attributes
    ----------
    name
        The function that it defines, if that is launched.
    text
        The text.
    locations
        The user's lines that it computes.
    """

    name: str | None
    text: str
    locations: Sequence[Location] = ()

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return self.text.count("\n") + 1


class Source:
    """The functions of a program, and its source text.

    Attributes
    ----------
    dialect
        The dialect of C.
    cases
        The most functions that are merged as cases of one kernel.
    has_double
        Whether the device supports float64, so that the program declares it.
    functions
        The functions that are launched, by name.
    locations
        The user's lines that each function computes, by its name and by the order of the op.
    """

    def __init__(self, dialect: Dialect, cases: int = 1, has_double: bool = True) -> None:
        self.dialect = dialect
        self.cases = cases
        self.has_double = has_double
        self.functions: dict[str, Function] = {}
        self.locations: dict[str, dict[float, Location]] = {}

    def add(self, launch: GPUKernel) -> str:
        """Add the function of a launch, and return its name."""
        self.functions.setdefault(launch.function.name, launch.function)
        return self.locate(launch)

    def locate(self, launch: GPUKernel) -> str:
        """Note the user's lines that the function of a launch computes, and return its name."""
        name = launch.function.name
        locations = self.locations.setdefault(name, {})
        for op in launch.ops:
            locations.update((each.order, each.location) for each in op.contained or (op,))
        return name

    @property
    def entry_points(self) -> list[EntryPoint]:
        """The kernels with their functions."""
        return list(make_entry_points(self.functions, self.cases))

    def of_kernel(self, entry: EntryPoint) -> Source:
        """Return the source of one kernel alone."""
        source = Source(self.dialect, self.cases, self.has_double)
        source.functions, source.locations = dict(entry.functions), self.locations
        return source

    @property
    def text(self) -> str:
        """The program in C."""
        return "\n".join(section.text for section in self.sections())

    def line_locations(self) -> list[Sequence[Location]]:
        """Return the user's lines behind each line of `text`."""
        return [section.locations for section in self.sections() for _ in range(section.lines)]

    def line_of(self, name: str) -> int:
        """Return the line number of a function's name in `text`; KeyError for an unknown one."""
        line = 1
        for section in self.sections():
            if section.name == name:
                break
            line += section.lines
        else:
            raise KeyError(name)
        is_case = any(name in entry.functions and entry.has_cases for entry in self.entry_points)
        attributes = 0 if is_case else self._head(name).count("\n")
        return line + len(self.lines_of(name)) + attributes

    def lines_of(self, name: str) -> tuple[Location, ...]:
        """Return the user's lines that a function computes, each once."""
        return tuple(dict.fromkeys(self.locations.get(name, {}).values()))

    def sections(self) -> Iterator[Section]:
        """Yield the sections of the text."""
        callees = {each.name: each for caller in self.functions.values() for each in caller.callees}
        for text in self._prelude([*self.functions.values(), *callees.values()]):
            yield Section(None, text)
        for each in callees.values():
            text = _device_function(each.device_function_name, each)
            yield Section(None, text, self.lines_of(each.name))
        for entry in self.entry_points:
            write = _device_function if entry.has_cases else self._kernel
            for name, function in entry.functions.items():
                locations = self.lines_of(name)
                lines = "".join(f"// {harmless(line)}\n" for line in map(file_info, locations))
                yield Section(name, f"{lines}{write(name, function)}", locations)
            if entry.has_cases:
                yield Section(None, entry.text(self.dialect))

    def _kernel(self, name: str, function: Function) -> str:
        return f"{self._head(name)} {{\n{function.body}\n}}\n"

    def _head(self, name: str) -> str:
        """Return the head of a kernel, whose last line contains its name."""
        function = self.functions[name]
        parameters = list(map(str, function.parameters))
        return self.dialect.kernel_head(name, parameters, function.group, function.shuffles)

    def _prelude(self, functions: Sequence[Function]) -> Iterator[str]:
        yield self.dialect.prelude
        if self.has_double:
            yield self.dialect.double
        for name in helpers.with_callees(name for each in functions for name in each.calls):
            yield helpers.HELPERS[name].text
        yield from dict.fromkeys(text for each in functions for text in each.helpers)


def _device_function(name: str, function: Function) -> str:
    parameters = ", ".join(map(str, function.parameters))
    return f"FUNCTION void {name}({parameters}) {{\n{function.body}\n}}\n"


@cache  # NumPy composes the name of a dtype each time it is asked for it
def ctype(dtype: DType) -> str:
    """Return the C type of an element in memory; ``u16`` for floats of 16 bits."""
    return _CTYPES[dtype.name]


_CTYPES = {
    "bool": "u8", "float16": "u16", "bfloat16": "u16", "float32": "f32", "float64": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
