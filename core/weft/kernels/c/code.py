"""Code: lines of C, indented as blocks open and close, with names that nothing else has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_WORD = re.compile(r"[^0-9A-Za-z]+")


class Code:
    """Lines of a function's body."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
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

    def define(self, kind: str, hint: str, value: str) -> str:
        """Add the definition of a new variable and return its name."""
        name = self.name(hint)
        self.line(f"{kind} {name} = {value};")
        return name

    def __str__(self) -> str:
        return "\n".join([*self._first, *self.lines])


def identifier(text: str) -> str:
    """Return a text as part of a C identifier.

    >>> identifier("my kernel; */ evil")
    'my_kernel_evil'
    """
    return _WORD.sub("_", text).strip("_").lower()[:48] or "kernel"


def printable(text: str) -> str:
    r"""Return a text that cannot leave a comment of one line.

    >>> printable("a.py:1\n*/ b\\")
    'a.py:1?*/ b?'
    """
    return "".join(each if each.isprintable() and each != "\\" else "?" for each in text)
