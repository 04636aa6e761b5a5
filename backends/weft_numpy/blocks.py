"""The code of a program: blocks of source, each compiled once, and the calls of them in order.

A block is the source of a function ``bind`` that takes fixed memory and values and returns ``run``.
Its names are its own, so stretches of a program that differ in their memory only, such as the
layers of an encoder, are one block that is bound and called several times.
"""

from __future__ import annotations

import linecache
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import basename
from types import TracebackType
from typing import Any

from weft import source
from weft.description import TensorDescription
from weft.digest import digest_of
from weft.plan import ARENA, INPUT, RESULT, STATE

MARK = "<weft numpy"
"""How the file names of generated code begin."""

UNPACKING = "] = tensors"
"""How the line of a block ends that gives names to its arrays."""

Run = Callable[..., None]


@dataclass
class Call:
    """One call of a block.

    Attributes
    ----------
    block
        The number of the block.
    tensors, values
        What the block is bound to.
    callers
        The names of the inputs and results that it takes.
    origins
        For each line of the block the op of the user that it is for, as a number; -1 for none.
    """

    block: int
    tensors: list[TensorDescription]
    values: list[Any]
    callers: list[str]
    origins: list[float]


@dataclass
class Line:
    """A line of the function that calls the blocks.

    Attributes
    ----------
    text
        Python, with braces where the call stands, if there is one.
    call
        The call.
    depth
        How far the line is indented.
    """

    text: str = "{}"
    call: Call | None = None
    depth: int = 0

    @property
    def python(self) -> str:
        """The line without its indentation."""
        return self.text if self.call is None else self.text.format(_invocation(self.call))


@dataclass
class Code:
    """The code of one program.

    Attributes
    ----------
    signature
        The names of all inputs and results.
    blocks
        The lines of each block, without comments.
    lines
        What runs, in order: calls of blocks, and the loops and choices around them.
    names
        What the blocks find in their module: functions and dtypes.
    locations
        The user's line behind each number in `Call.origins`.
    """

    signature: list[str]
    blocks: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    locations: dict[float, source.Location] = field(default_factory=dict)

    @property
    def calls(self) -> list[Call]:
        """The calls of blocks, in the order in which they are written."""
        return [line.call for line in self.lines if line.call is not None]

    @property
    def is_single(self) -> bool:
        """Whether one block is all there is."""
        return len(self.lines) == 1

    def listing(self) -> str:
        """Return everything as one text: each block once, then the calls with their arrays."""
        first = self.first_calls()
        texts = [self.block_text(call)[0] for call in first]
        if self.is_single:
            return texts[0]
        counts = [sum(call.block == number for call in self.calls) for number in range(len(first))]
        titled = [
            f"# block{number}, called {_times(count)}\n{text}"
            for number, (count, text) in enumerate(zip(counts, texts, strict=True))
        ]
        calls = [self._shown(line) for line in self.lines]
        whole = "\n".join([f"def run({', '.join(self.signature)}):", *calls])
        return "\n\n".join([*titled, f"# the program\n{whole}\n"])

    def _shown(self, line: Line) -> str:
        text = f"    {'    ' * line.depth}{line.python}"
        return text if line.call is None else f"{text}  # {self.memory(line.call)}"

    def first_calls(self) -> list[Call]:
        """Return the first call of each block."""
        found: dict[int, Call] = {}
        for call in self.calls:
            found.setdefault(call.block, call)
        return [found[number] for number in range(len(self.blocks))]

    def block_text(self, call: Call) -> tuple[str, list[int]]:
        """Return a block with the user's lines as comments, and each line's place in `origins`."""
        lines: list[str] = []
        places: list[int] = []
        location = None
        for place, (line, origin) in enumerate(
            zip(self.blocks[call.block], call.origins, strict=True)
        ):
            here = self.locations.get(origin)
            if here is not None and here != location:
                location = here
                indent = line[: len(line) - len(line.lstrip())]
                lines.append(f"{indent}{comment(here)}")
                places.append(place)
            lines.append(line)
            places.append(place)
            if line.endswith(UNPACKING) and (named := self._named_states(call)):
                lines.append(f"    # {named}")
                places.append(place)
        return "\n".join(lines) + "\n", places

    def _named_states(self, call: Call) -> str:
        """Return which states the names in a block stand for, of those that the user named."""
        names = _unpacked_names(self.blocks[call.block])
        return ", ".join(
            f"{name} is {_on_one_line(tensor.base.owner.label)}"
            for name, tensor in zip(names, call.tensors, strict=False)
            if tensor.base.kind == STATE and tensor.base.owner.label
        )

    def memory(self, call: Call) -> str:
        """Return the names in a block, each with what it stands for in a call."""
        names = _unpacked_names(self.blocks[call.block])
        return ", ".join(
            f"{name} {_address(tensor)}" for name, tensor in zip(names, call.tensors, strict=False)
        )

    def where(self, call: Call, place: int) -> str:
        """Return the comment with the user's line for a line of a block; empty if it has none."""
        here = self.locations.get(call.origins[place])
        return "" if here is None else comment(here)


def comment(location: source.Location) -> str:
    """Return a user's line as a comment."""
    text = f"{basename(location[0])}:{location[1]}  {source.source_line(location)}"
    return f"# {_on_one_line(text.rstrip())}"


def _on_one_line(text: str) -> str:
    """Return text that cannot end a comment: what a user wrote must not become code."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " for each in text)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _invocation(call: Call) -> str:
    return f"block{call.block}({', '.join(call.callers)})"


def _unpacked_names(lines: Sequence[str]) -> list[str]:
    """Return the names that the line `[a, b] = tensors` of a block gives to its arrays."""
    found = next((line for line in lines if line.endswith(UNPACKING)), "[]")
    return found[found.index("[") + 1 : found.index("]")].split(", ")


def _address(tensor: TensorDescription) -> str:
    base = tensor.base
    if base.kind == ARENA:
        return f"arena[{tensor.offset}]"
    if base.kind in (INPUT, RESULT):
        return f"{base.kind}{base.owner}"
    return _on_one_line(str(base.owner)) if base.kind == STATE else "constant"


class CompiledBlock:
    """The compiled text of a block, with a file name under which tracebacks find its lines."""

    def __init__(self, text: str, places: list[int]) -> None:
        self.filename = f"{MARK} {digest_of(text.encode())[:12]}>"
        self.code = compile(text, self.filename, "exec")
        self.places = places
        lines = text.splitlines(keepends=True)
        linecache.cache[self.filename] = (len(text), None, lines, self.filename)
        weakref.finalize(self, linecache.cache.pop, self.filename, None)


_compiled: weakref.WeakValueDictionary[str, CompiledBlock] = weakref.WeakValueDictionary()
_compiling = threading.RLock()


def compiled(text: str, places: list[int]) -> CompiledBlock:
    """Return a text compiled; one that another living program has is not compiled again."""
    with _compiling:
        found = _compiled.get(text)
        if found is None:
            found = _compiled[text] = CompiledBlock(text, places)
        return found


class Linked:
    """Compiled code, ready to be bound to memory."""

    def __init__(self, code: Code, scope: Mapping[str, Any], name: str) -> None:
        self.code = code
        texts = [code.block_text(call) for call in code.first_calls()]
        self.blocks = [compiled(*text) for text in texts]
        scope = {**scope, **code.names}
        self.binds = [_defined(block.code, scope, "bind") for block in self.blocks]
        self.join = None if code.is_single else self._joined(name)

    def _joined(self, name: str) -> Callable[[list[Run]], Run]:
        """Compile the function that runs all lines; line n is on line n + 4."""
        names = [f"block{call.block}_{number}" for number, call in enumerate(self.code.calls)]
        runs = iter(names)
        body = []
        for line in self.code.lines:
            text = line.text
            if line.call is not None:
                text = text.format(f"{next(runs)}({', '.join(line.call.callers)})")
            body.append(f"        {'    ' * line.depth}{text}")
        lines = [
            "def join(blocks):",
            f"    [{', '.join(names)}] = blocks",
            f"    def run({', '.join(self.code.signature)}):",
            *body,
            "    return run",
        ]
        filename = f"{MARK} calls of {name}>"
        found: Callable[[list[Run]], Run]
        found = _defined(compile("\n".join(lines), filename, "exec"), {}, "join")
        return found

    def bound(self, array: Callable[[TensorDescription], Any]) -> Run:
        """Return the function that runs everything in the memory that `array` shows."""
        runs = [
            self.binds[call.block](list(map(array, call.tensors)), call.values)
            for call in self.code.calls
        ]
        return runs[0] if self.join is None else self.join(runs)

    def add_notes(self, error: BaseException) -> None:
        """Add the generated statement that failed, and the user's line behind it, to an error."""
        call: Call | None = self.code.calls[0]
        trace: TracebackType | None = error.__traceback__
        while trace is not None:
            filename, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
            block = next((each for each in self.blocks if each.filename == filename), None)
            if block is not None and call is not None:
                statement = linecache.getline(filename, line).strip()
                where = self.code.where(call, block.places[line - 1])
                error.add_note(f"in generated code: {statement}\n  {where}")
            elif filename.startswith(f"{MARK} calls of"):
                call = self.code.lines[line - _FIRST_LINE].call
            trace = trace.tb_next


_FIRST_LINE = 4
"""The line of the first of `Code.lines` in the function that runs them."""


def _defined(code: Any, scope: dict[str, Any], name: str) -> Any:
    exec(code, scope)
    return scope.pop(name)
