"""Mutants: kernels with a barrier less, or a comparison that is another one.

A mutant shows what tests of the kernel see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emulator import Emulator, EmulatorError
from emulator.compiling import bodies, only

from weft.errors import WeftError

BARRIER = re.compile(r"\b(?:MEMORY_)?BARRIER\(\);")
COMPARISON = re.compile(r" (<|<=|>|>=|==|!=) ")
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
"""A bound that is one off."""

_CHOICES = (
    re.compile(r"\(\(([\w[\]]+) [<>] ([\w[\]]+)\) \| \(\1 != \1\)\) \? \1 : \2"),
    re.compile(r"\b(\w+) < (\w+) \? \2 : \1"),
    re.compile(r"\b(\w+) < (\w+) \? \(\1 < 0 \? 0 : \1\) : \2"),
)
"""The larger or smaller of two numbers: where they are equal, it does not matter which."""

_ONCE = re.compile(
    r"for \(i64 \w+ = (?:\(i64\))?GROUP_ID; \w+ < (\d+); \w+ \+= (?:\(i64\))?(\d+)\)"
)


@dataclass(frozen=True)
class Mutant:
    """A program with a change in one kernel.

    Attributes
    ----------
    kernel
        Its name.
    kind
        ``barrier`` for one that is left out, ``negated`` and ``shifted`` for comparisons.
    line
        The line that was changed, as it was.
    text
        The program without its other kernels.
    place
        Where the change is.
    """

    kernel: str
    kind: str
    line: str
    text: str
    place: int

    @property
    def is_equivalent(self) -> bool:
        """Whether it is shown to compute the same.

        So it is where a number is chosen from equal ones, and where a barrier is the last thing of
        a loop that runs once, after which no memory is used that a group shares.
        """
        if self.kind == "shifted":
            return any(each.search(self.line) for each in _CHOICES)
        if self.kind != "barrier":
            return False
        start, end = bodies(self.text)[self.kernel]
        loops = _ONCE.findall(self.text, start, self.place)
        shared = re.findall(r"LOCAL \w+ (\w+)\[", self.text[start:end])
        rest = set(re.findall(r"\w+", self.text[self.place : end]))
        runs_once = len(loops) == 1 and int(loops[0][0]) <= int(loops[0][1])
        return runs_once and rest.isdisjoint(shared)


def mutants(text: str) -> Iterator[Mutant]:
    """Yield all mutants of a program."""
    for name in bodies(text):
        alone = only(text, name)
        start, end = bodies(alone)[name]
        for found in BARRIER.finditer(alone, start, end):
            yield _changed(alone, name, "barrier", found.span(), ";")
        for found in COMPARISON.finditer(alone, start, end):
            yield _changed(alone, name, "negated", found.span(1), NEGATED[found[1]])
            if found[1] in SHIFTED:
                yield _changed(alone, name, "shifted", found.span(1), SHIFTED[found[1]])


def _changed(text: str, name: str, kind: str, span: tuple[int, int], new: str) -> Mutant:
    start, end = span
    line = text[text.rfind("\n", 0, start) + 1 : text.index("\n", end)].strip()
    return Mutant(name, kind, line, f"{text[:start]}{new}{text[end:]}", start)


def fate(emulator: Emulator, original: str, mutant: Mutant, run: Callable[[], bool]) -> str:
    """Return what becomes of a mutant: ``refused`` by g++, ``found``, ``wrong`` or ``survives``.

    `run` computes with the program again, and returns whether the results are right.
    """
    try:
        emulator.compiler.replace(original, mutant.text)
    except AssertionError:
        return "refused"
    try:
        return "survives" if run() else "wrong"
    except (EmulatorError, WeftError):
        return "found"
    finally:
        emulator.compiler.restore(original)
