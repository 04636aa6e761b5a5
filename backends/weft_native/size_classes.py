"""Size classes: programs for other lengths, whose texts differ in numbers alone, share their code.

A program is generated for known lengths. Where its computation has unknown ones, its text is
generated for a few other lengths too. Numbers that differ follow from the lengths: the text that
is compiled reads them from a table, and serves all lengths that lead to it. A text that differs in
more, such as a loop over the remainder of a row, is of another class.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

ENOUGH = 2
"""The texts for other lengths that show which numbers follow from the lengths."""

TABLE = "numbers"
"""The name of the table in C."""

_TOKEN = re.compile(
    r"0[xX][\da-fA-F]+[uUlL]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*"
    r"|[A-Za-z_]\w*|\s+|."
)
_KINDS = {
    "i32": re.compile(r"\d+"),
    "i64": re.compile(r"\d+L"),
    "f32": re.compile(r"(?:\d+\.\d*|\d+(?=e))(?:e[+-]?\d+)?f"),
    "f64": re.compile(r"(?:\d+\.\d*|\d+(?=e))(?:e[+-]?\d+)?"),
}
"""The types of the numbers that a table can hold, and how C writes them."""

_LARGEST_I32 = 2**31 - 1
_CONSTANT = re.compile(r"\s*(?:#|case\b|typedef\b|static\b|UNROLL\b)|.*__attribute__")
"""Lines whose numbers must be known when they are compiled."""
_UNROLLED = re.compile(r"\s*UNROLL\s*$")
_ARRAY = re.compile(r"\s*(?:const )?(\w+) \w+((?:\[[^\]]*\])+)( = \{)?")
_SCALARS = frozenset(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64)) | {"f32", "f64"}
_HEAD = re.compile(r"\w[^;]*\(.*\) \{$")
"""The line that begins a function; its last line is a brace."""


class Hole(NamedTuple):
    """A token of a text that is a number of the table: its line, its index there, its slot."""

    line: int
    token: int
    slot: int


@dataclass(frozen=True)
class SizeClass:
    """The programs whose texts differ from one text in some numbers alone.

    Attributes
    ----------
    lines
        The lines of that text.
    holes
        The numbers that differ, in order.
    kinds
        The C type of each number of the table.
    examples
        Texts of the class, at least that one.
    """

    lines: Sequence[str]
    holes: Sequence[Hole]
    kinds: Sequence[str]
    examples: Sequence[Sequence[str]] = ()

    def joined(self, other: SizeClass) -> SizeClass | None:
        """Return the smallest class that holds both; None if their texts differ in more."""
        examples = [*(self.examples or [self.lines]), *(other.examples or [other.lines])]
        return _class_of(
            examples, {(hole.line, hole.token) for hole in (*self.holes, *other.holes)}
        )

    def holds(self, other: SizeClass) -> bool:
        """Whether each text of another class is one of this class."""
        joined = self.joined(other)
        return joined is not None and len(joined.holes) == len(self.holes)

    def numbers(self, text: str) -> np.ndarray[Any, Any] | None:
        """Return the table for a text of the class; None for a text that is of another one."""
        lines = text.split("\n")
        if len(lines) != len(self.lines):
            return None
        literals: list[str | None] = [None] * len(self.kinds)
        holes = self._holes_by_line()
        for number, (line, known) in enumerate(zip(lines, self.lines, strict=True)):
            at = holes.get(number)
            if at is None:
                if line != known:
                    return None
                continue
            tokens, known_tokens = _TOKEN.findall(line), _TOKEN.findall(known)
            if len(tokens) != len(known_tokens):
                return None
            for index, (token, known_token) in enumerate(zip(tokens, known_tokens, strict=True)):
                slot = at.get(index)
                if slot is None:
                    if token != known_token:
                        return None
                elif literals[slot] is None and _kind(token) == self.kinds[slot]:
                    literals[slot] = token
                elif literals[slot] != token:
                    return None
        return _table(self.kinds, literals)

    def _holes_by_line(self) -> dict[int, dict[int, int]]:
        slots: dict[int, dict[int, int]] = {}
        for line, token, slot in self.holes:
            slots.setdefault(line, {})[token] = slot
        return slots

    def text(self, address: int) -> str:
        """Return the text that reads the numbers.

        Kernels have the table as a parameter. Other functions find it in the table of addresses, at
        index `address`. A function loads its numbers in its first line: line numbers stay the same.
        """
        lines = list(self.lines)
        used: dict[int, set[int]] = {}
        heads = _heads(lines)
        for line, at in self._holes_by_line().items():
            tokens = _TOKEN.findall(lines[line])
            for token, slot in at.items():
                tokens[token] = _name(slot)
            lines[line] = "".join(tokens)
            used.setdefault(heads[line], set()).update(at.values())
        for head, slots in used.items():
            loads = [_load(self.kinds[slot], slot) for slot in sorted(slots)]
            if f"*{TABLE}" not in lines[head]:
                loads.insert(0, f"const i64 *const {TABLE} = (const i64 *)b[{address}];")
            lines[head] = " ".join([lines[head], *loads])
        return "\n".join(lines)


def size_class(*texts: str) -> SizeClass | None:
    """Return the smallest class of some texts; None if they differ in more than numbers."""
    return _class_of([text.split("\n") for text in texts], set())


def find_class(
    text: str, known: Iterable[SizeClass], texts_for_others: Iterable[str]
) -> SizeClass | None:
    """Return a known class of a text, else a new one that also holds what it can of the known.

    `texts_for_others` yields the text for other lengths, as far as it is asked. Returns None if
    none of these differs from the text in numbers alone.
    """
    for each in known:
        if each.numbers(text) is not None:
            return each
    found = SizeClass(text.split("\n"), (), ())
    for each in known:
        found = found.joined(each) or found
    compared = 0
    for other in texts_for_others:
        joined = found.joined(SizeClass(other.split("\n"), (), ()))
        if joined is not None:
            found, compared = joined, compared + 1
        if compared == ENOUGH:
            break
    return found if found.holes else None


def _class_of(
    texts: Sequence[Sequence[str]], known: AbstractSet[tuple[int, int]]
) -> SizeClass | None:
    """Return the class of texts, given by lines, in which known tokens are numbers that differ."""
    first = texts[0]
    if any(len(text) != len(first) for text in texts):
        return None
    heads = _heads(first)
    known_lines = {line for line, _ in known}
    holes: list[Hole] = []
    slots: dict[tuple[str | None, ...], int] = {}
    for number, lines in enumerate(zip(*texts, strict=True)):
        if number not in known_lines and len(set(lines)) == 1:
            continue
        rows = [_TOKEN.findall(line) for line in lines]
        is_fixed = heads[number] < 0 or _is_constant(first, number)
        if is_fixed or len(set(map(len, rows))) > 1:
            return None
        for token, literals in enumerate(zip(*rows, strict=True)):
            if (number, token) not in known and len(set(literals)) == 1:
                continue
            kinds = set(map(_kind, literals))
            if len(kinds) > 1 or None in kinds:
                return None
            slot = slots.setdefault((*kinds, *literals), len(slots))
            holes.append(Hole(number, token, slot))
    return SizeClass(first, holes, [str(kind) for kind, *_ in slots], texts)


def _is_constant(lines: Sequence[str], number: int) -> bool:
    """Whether the numbers of a line must be constants, or are better so.

    Loops that are unrolled and arrays of vectors, which are registers, have their lengths from the
    tile. An array of scalars, such as a row of a softmax, may have any length.
    """
    line = lines[number]
    if _CONSTANT.match(line) or (number and _UNROLLED.match(lines[number - 1])):
        return True
    array = _ARRAY.match(line)
    if array is None:
        return False
    kind, dimensions, values = array.groups()
    if values is not None:
        return bool(dimensions != "[]")
    return kind not in _SCALARS or dimensions.count("[") > 1


def _heads(lines: Sequence[str]) -> list[int]:
    """Return for each line the line that begins its function; -1 outside of functions."""
    return list(_each_head(lines))


def _each_head(lines: Sequence[str]) -> Iterator[int]:
    head = -1
    for number, line in enumerate(lines):
        yield head
        if line == "}":
            head = -1
        elif _HEAD.match(line):
            head = number


def _kind(literal: str) -> str | None:
    kind = next((kind for kind, form in _KINDS.items() if form.fullmatch(literal)), None)
    return None if kind == "i32" and int(literal) > _LARGEST_I32 else kind


def _table(kinds: Sequence[str], literals: Sequence[str | None]) -> np.ndarray[Any, Any]:
    """Return numbers in words of 64 bits."""
    table = np.zeros(max(len(kinds), 1), np.int64)
    for slot, (kind, literal) in enumerate(zip(kinds, literals, strict=True)):
        assert literal is not None, "each number is in the text"
        digits = literal.rstrip("Lf")
        if kind.startswith("i"):
            table[slot] = int(digits)
        elif kind == "f32":
            table.view(np.float32)[2 * slot] = np.float32(digits)
        else:
            table.view(np.float64)[slot] = float(digits)
    return table


def _name(slot: int) -> str:
    return f"given{slot}"


def _load(kind: str, slot: int) -> str:
    if kind.startswith("i"):
        return f"const {kind} {_name(slot)} = ({kind}){TABLE}[{slot}];"
    return f"const {kind} {_name(slot)} = *(const {kind} *)({TABLE} + {slot});"
