"""Code: lines of C, indented as blocks open and close, with names that nothing else has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

UNROLL = "#pragma unroll"
"""Comes before a loop to unroll."""

ROLLED = "#pragma clang loop vectorize(disable) interleave(disable) unroll(disable)"
"""Comes before a loop that is too short to be worth unrolling."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an element lies: a pointer, and how many elements after it."""

    pointer: str
    index: str

    def __str__(self) -> str:
        return f"{self.pointer} + {self.index}"

    @property
    def element(self) -> str:
        """The element that lies there."""
        return f"{self.pointer}[{self.index}]"

    def plus(self, more: str) -> Address:
        """Return the place so many elements further on."""
        return Address(self.pointer, f"{self.index} + {more}")


class Code:
    """Lines of a function's body, and what they need of the program around them.

    Attributes
    ----------
    calls
        The helpers that it calls, as keys.
    shuffles
        Whether work items pass each other values.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self.calls: dict[str, None] = {}
        self.shuffles = False
        self._first: list[str] = []
        self._depth = 1
        self._counts: dict[str, int] = dict.fromkeys(taken, 1)

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._depth + text)

    def declare(self, text: str) -> None:
        """Add a line at the beginning, outside of all blocks, unless it is there."""
        if (line := f"    {text}") not in self._first:
            self._first.append(line)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Put the lines that are added meanwhile between braces after a head."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def name(self, hint: str) -> str:
        """Return a new name."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"

    def define(self, kind: str, hint: str, value: str | Address) -> str:
        """Add the definition of a new variable and return its name."""
        name = self.name(hint)
        self.line(f"{kind} {name} = {value};")
        return name

    def call(self, helper: str, *args: str | Address) -> str:
        """Return the call of a helper, which the program then contains."""
        self.calls[helper] = None
        return f"{helper}({', '.join(map(str, args))})"

    def shuffled(self, value: str, mask: int) -> str:
        """Return the value of the work item whose number differs in the bits of a mask."""
        self.shuffles = True
        return f"SHUFFLE_XOR({value}, {mask})"

    def __str__(self) -> str:
        return "\n".join([*self._first, *self.lines])
