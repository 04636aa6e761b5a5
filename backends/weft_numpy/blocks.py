"""The generated code of a program: blocks of source, compiled once each, and calls of them.

A block is the source of a function ``bind`` that takes fixed memory and values and returns ``run``.
Its names are local, so parts of a program that differ only in their memory, such as the layers of
an encoder, share one block that is bound and called several times.
"""

from __future__ import annotations

import linecache
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from os.path import basename
from types import TracebackType
from typing import Any

from weft.ir.description import TensorDescription
from weft.plan.plan import ARENA, INPUT, RESULT, STATE
from weft.support import source
from weft.support.digest import digest_of
from weft.support.interrupts import holding, raise_pending
from weft.support.locks import renewed
from weft.support.quoting import harmless

MARK = "<weft numpy"  # the prefix of the file names of generated code

Run = Callable[..., None]


@dataclass(frozen=True)
class SourceBlock:
    """The function ``bind``, as text."""

    lines: tuple[str, ...]
    arrays: tuple[str, ...] = ()  # names that its second line, if it has any, gives to arrays


@dataclass
class BlockCall:
    """One call of a block."""

    block: int  # its index
    tensors: list[TensorDescription]  # the arrays that it is bound to
    values: list[Any]  # the values that it is bound to
    callers: list[str]  # the names of the inputs and results that it takes
    origins: list[float]  # for each line the index of the user's op; -1 for none


@dataclass
class CallerLine:
    """A line of the function that calls the blocks."""

    text: str = "{}"  # Python, with braces in the place of the call, if there is one
    call: BlockCall | None = None
    depth: int = 0  # the indentation, in levels


BREAK = "break"  # the end of a line that leaves the enclosing loop
DEEP = 16  # the depth from which on lines of the calling function become separate functions


@dataclass
class ProgramCode:
    """The code of one program."""

    signature: list[str]  # the names of all inputs and results
    blocks: list[SourceBlock] = field(default_factory=list)
    lines: list[CallerLine] = field(default_factory=list)  # calls, loops and conditionals
    locations: dict[float, source.Location] = field(default_factory=dict)  # by `BlockCall.origins`

    @property
    def calls(self) -> list[BlockCall]:
        """The calls of blocks, in the order of the lines."""
        return [line.call for line in self.lines if line.call is not None]

    @property
    def is_single(self) -> bool:
        """Whether the program is a single call."""
        return len(self.lines) == 1

    def listing(self) -> str:
        """Return the listing of the program: each block once, then the calls with their arrays."""
        return "".join(f"{line}\n" for line, _ in self._listed())

    def listed_locations(self) -> list[list[source.Location]]:
        """Return the user's lines behind each line of the listing: one or none."""
        return [[] if location is None else [location] for _, location in self._listed()]

    def _listed(self) -> Iterator[tuple[str, source.Location | None]]:
        """Yield the lines of the listing, each with the user's line behind it."""
        counts = Counter(call.block for call in self.calls)
        for number, call in enumerate(self.first_calls()):
            if not self.is_single:
                times = "once" if counts[number] == 1 else f"{counts[number]} times"
                yield f"# block{number}, called {times}", None
            yield from self.annotated(call)
            yield "", None
            if not self.is_single:
                yield "", None
        if not self.is_single:
            yield "# the program", None
            yield f"def run({', '.join(self.signature)}):", None
            yield from ((self._listed_line(line), None) for line in self.lines)

    def _listed_line(self, line: CallerLine) -> str:
        text, call = f"    {'    ' * line.depth}{line.text}", line.call
        if call is None:
            return text
        text = text.format(f"block{call.block}({', '.join(call.callers)})")
        names = self.blocks[call.block].arrays
        memory = [
            f"{name} {_address(each)}" for name, each in zip(names, call.tensors, strict=True)
        ]
        return f"{text}  # {', '.join(memory)}"

    def first_calls(self) -> list[BlockCall]:
        """Return the first call of each block."""
        first: dict[int, BlockCall] = {}
        for call in self.calls:
            first.setdefault(call.block, call)
        return [first[number] for number in range(len(self.blocks))]

    def annotated(self, call: BlockCall) -> Iterator[tuple[str, source.Location | None]]:
        """Yield the lines of a block with the user's lines, which are also comments above them.

        Another comment says which arrays are states that the user named.
        """
        block, last = self.blocks[call.block], None
        named = ", ".join(
            f"{name} is {harmless(tensor.base.owner.label)}"
            for name, tensor in zip(block.arrays, call.tensors, strict=True)
            if tensor.base.kind == STATE and tensor.base.owner.label
        )
        for number, (line, origin) in enumerate(zip(block.lines, call.origins, strict=True)):
            here = self.locations.get(origin)
            if here is not None and here != last:
                last = here
                yield f"{line[: len(line) - len(line.lstrip())]}{comment(here)}", here
            yield line, here
            if number == 1 and named:
                yield f"    # {named}", None


def comment(location: source.Location) -> str:
    """Return a user's line as a comment."""
    text = f"{basename(location[0])}:{location[1]}  {source.source_line(location)}"
    return f"# {harmless(text.rstrip())}"


def _address(tensor: TensorDescription) -> str:
    base = tensor.base
    if base.kind == ARENA:
        return f"arena[{tensor.offset}]"
    if base.kind in (INPUT, RESULT):
        return f"{base.kind}{base.owner}"
    return harmless(f"{base.owner}") if base.kind == STATE else "constant"


class CompiledBlock:
    """The compiled text of a block, with a file name by which tracebacks find its lines."""

    def __init__(self, text: str) -> None:
        self.filename = f"{MARK} {digest_of(text.encode())[:12]}>"
        self.code = compile(text, self.filename, "exec")
        lines = text.splitlines(keepends=True)
        linecache.cache[self.filename] = (len(text), None, lines, self.filename)
        weakref.finalize(self, linecache.cache.pop, self.filename, None)


_compiled: weakref.WeakValueDictionary[str, CompiledBlock] = weakref.WeakValueDictionary()
_compiling = renewed(threading.RLock())


def compiled(text: str) -> CompiledBlock:
    """Compile a text, or return the compiled text of another live program."""
    with _compiling:
        block = _compiled.get(text)
        if block is None:
            block = _compiled[text] = CompiledBlock(text)
        return block


class Linked:
    """Compiled code, ready to be bound to memory."""

    def __init__(self, code: ProgramCode, scope: Mapping[str, Any], name: str) -> None:
        self.code = code
        self.filename = f"{MARK} calls of {harmless(name)}>"
        self.blocks = [compiled("\n".join(block.lines)) for block in code.blocks]
        self.binds = [_defined(block.code, dict(scope), "bind") for block in self.blocks]
        self.lines: list[CallerLine] = []
        self.text = ""
        self.join = None if code.is_single else self._joined()

    def _joined(self) -> Callable[[list[Run]], Run]:
        """Compile the function that runs all lines; `lines` and `text` are its text."""
        names = [f"block{call.block}_{number}" for number, call in enumerate(self.code.calls)]
        runs = iter(names)
        body = []
        for line in self.code.lines:
            text = line.text
            if line.call is not None:
                text = text.format(f"{next(runs)}({', '.join(line.call.callers)})")
            body.append(replace(line, text=text))
        signature = ", ".join(self.code.signature)
        top = CallerLine("def join(blocks):"), CallerLine(f"[{', '.join(names)}] = blocks", depth=1)
        self.lines = list(top)
        for name, lines in _functions(body, signature):
            self.lines.append(CallerLine(f"def {name}({signature}):", depth=1))
            self.lines += [replace(line, depth=line.depth + 2) for line in lines]
        self.lines.append(CallerLine("return run", depth=1))
        self.text = "\n".join([f"{'    ' * line.depth}{line.text}" for line in self.lines])
        join: Callable[[list[Run]], Run]
        code = compile(self.text, self.filename, "exec")
        # Loops check for interrupts.
        join = _defined(code, {"holding": holding, "raise_pending": raise_pending}, "join")
        return join

    def bound(self, array: Callable[[TensorDescription], Any]) -> Run:
        """Return the function that runs the program in the memory that `array` returns views of."""
        runs = [
            self.binds[call.block](list(map(array, call.tensors)), call.values)
            for call in self.code.calls
        ]
        return runs[0] if self.join is None else self.join(runs)

    def add_notes(self, error: BaseException) -> None:
        """Add the generated statement that failed, and the user's line behind it, to an error."""
        call: BlockCall | None = self.code.calls[0]
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            filename, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            block = next((each for each in self.blocks if each.filename == filename), None)
            if block is not None and call is not None:
                statement = linecache.getline(filename, line).strip()
                here = self.code.locations.get(call.origins[line - 1])
                where = "" if here is None else comment(here)
                error.add_note(f"in generated code: {statement}\n  {where}")
            elif filename == self.filename:
                call = self.lines[line - 1].call or call
            trace = trace.tb_next


def _functions(body: list[CallerLine], signature: str) -> list[tuple[str, list[CallerLine]]]:
    """Return functions by name that run some lines; the last one runs all of them.

    Python limits nesting to 20 blocks, so deeper lines become functions. A line that leaves a loop
    stays in that loop.
    """
    functions: list[tuple[str, list[CallerLine]]] = []
    deepest = max((line.depth for line in body), default=0)
    for depth in reversed(range(DEEP, deepest + 1, DEEP)):
        shallow: list[CallerLine] = []
        for is_deep, several in groupby(body, partial(_is_deeper, depth)):
            lines = list(several)
            if is_deep:
                name = f"part{len(functions)}"
                functions.append(
                    (name, [replace(line, depth=line.depth - depth) for line in lines])
                )
                lines = [CallerLine(f"{name}({signature})", depth=depth)]
            shallow += lines
        body = shallow
    return [*functions, ("run", body)]


def _is_deeper(depth: int, line: CallerLine) -> bool:
    """Whether a line can move to a separate function with all lines of a depth."""
    return line.depth > depth or (line.depth == depth and not line.text.endswith(BREAK))


def _defined(code: Any, scope: dict[str, Any], name: str) -> Any:
    exec(code, scope)
    return scope.pop(name)
