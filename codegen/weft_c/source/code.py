"""Code: a function body in C under construction, with indentation and unique names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

UNROLL = "#pragma unroll"
"""The pragma before a loop to unroll."""

ROLLED = "#pragma clang loop vectorize(disable) interleave(disable) unroll(disable)"
"""The pragma before a loop that is too short for unrolling or vectorization to pay off."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an element: a pointer, and an offset in elements."""

    pointer: str
    index: str

    def __str__(self) -> str:
        return f"{self.pointer} + {self.index}"

    @property
    def element(self) -> str:
        """The expression of the element."""
        return f"{self.pointer}[{self.index}]"

    def plus(self, more: str) -> Address:
        """Return the address `more` elements further on."""
        return Address(self.pointer, f"{self.index} + {more}")


class Code:
    """The lines of a function's body, and the helpers that they need.

    Attributes
    ----------
    calls
        The names of weft's helpers that it calls, as keys.
    helpers
        The texts of other functions that it calls, as keys.
    shuffles
        Whether it uses warp shuffles.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.lines: list[str] = []
        self.calls: dict[str, None] = {}
        self.helpers: dict[str, None] = {}
        self.shuffles = False
        self._first: list[str] = []
        self._depth = 1
        self._counts: dict[str, int] = dict.fromkeys(taken, 1)
        self._in_scope: list[dict[Hashable, Any]] = [{}]

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * self._depth + text)

    def declare(self, text: str) -> None:
        """Add a line at the beginning of the body, once."""
        if (line := f"    {text}") not in self._first:
            self._first.append(line)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Enclose the lines added in the ``with`` block in braces after `head`."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        self._in_scope.append({})
        yield
        self._in_scope.pop()
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loop(
        self, kind: str, name: str, first: object, last: object, step: object = 1
    ) -> Iterator[None]:
        """Enclose the lines added in the ``with`` block in a loop from `first` to below `last`."""
        advance = f"{name}++" if step == 1 else f"{name} += {step}"
        with self.block(f"for ({kind} {name} = {first}; {name} < {last}; {advance})"):
            yield

    def name(self, hint: str) -> str:
        """Return a new name that begins with `hint`."""
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"

    def define(self, kind: str, hint: str, value: str | Address) -> str:
        """Define a new variable of type `kind` and return its name."""
        name = self.name(hint)
        self.line(f"{kind} {name} = {value};")
        return name

    def shared(self, key: Hashable, write: Callable[[], T]) -> T:
        """Return the names of constants that `write` defines, once in a block and those inside."""
        for known in self._in_scope:
            if key in known:
                constants: T = known[key]
                return constants
        self._in_scope[-1][key] = written = write()
        return written

    def call(self, helper: str, *args: str | Address) -> str:
        """Return a call of a helper, which the program will contain."""
        self.calls[helper] = None
        return f"{helper}({', '.join(map(str, args))})"

    def add_helpers(self, text: str) -> None:
        """Have functions in C precede the kernel; equal texts occur once in a program."""
        self.helpers[text] = None

    def shuffled(self, value: str, mask: int) -> str:
        """Return the value of the lane whose index differs in the bits of `mask`."""
        self.shuffles = True
        return f"SHUFFLE_XOR({value}, {mask})"

    def __str__(self) -> str:
        return "\n".join([*self._first, *self.lines])
