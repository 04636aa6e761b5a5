"""Einsum equations: parsing, and checks against the operands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.axes import Axis
from weft.ir.lengths import Length
from weft.ir.op import explain

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
ELLIPSIS, ARROW = "...", "->"
TOKEN = re.compile(r"\s+|\.\.\.|->|.", re.DOTALL)


class Subscript(NamedTuple):
    """A subscript: a letter or an ellipsis, and its position in the equation."""

    text: str
    position: int


class Equation:
    """A parsed equation, which marks the wrong subscript in its errors.

    Attributes
    ----------
    terms
        The subscripts of each operand.
    result
        The subscripts after the arrow, or None without one.
    """

    def __init__(self, text: str, operands: Sequence[Any]) -> None:
        self.text = text
        self.operands = operands
        self.terms: list[list[Subscript]] = [[]]
        self.result: list[Subscript] | None = None
        for match in TOKEN.finditer(text):
            self._take(Subscript(match.group(), match.start()))

    def _take(self, subscript: Subscript) -> None:
        text, position = subscript
        if text.isspace():
            return
        if text in (ARROW, ","):
            if self.result is not None:
                raise self.refusal(ArgumentError, position, f"no {text!r} can follow the arrow")
            if text == ARROW:
                self.result = []
            else:
                self.terms.append([])
            return
        if text != ELLIPSIS and text not in LETTERS:
            problem = f"{text!r} is not a letter, comma, arrow '->' or ellipsis '...'"
            raise self.refusal(ArgumentError, position, problem)
        term = self.terms[-1] if self.result is None else self.result
        is_single = self.result is not None or text == ELLIPSIS
        if is_single and text in (each.text for each in term):
            where = "the result" if self.result is not None else "one operand"
            raise self.refusal(ArgumentError, position, f"{text!r} is repeated in {where}")
        term.append(subscript)

    def refusal(self, kind: type[WeftError], position: int, problem: str) -> WeftError:
        """Return an error with the equation and a mark at a position in it."""
        shown = f"{problem}\n  {self.text}\n  {' ' * position}^"
        return kind(explain("einsum", shown, self.operands))

    def labels(self) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """Return one label for each axis of each operand, and of the result."""
        if len(self.terms) != len(self.operands):
            problem = f"{len(self.terms)} terms for {len(self.operands)} operands"
            raise self.refusal(ArgumentError, len(self.text), problem)
        inputs = [self._expanded(number) for number in range(len(self.terms))]
        return inputs, self._result_labels(inputs)

    def _expanded(self, number: int) -> tuple[str, ...]:
        """Return the labels of an operand; labels of an ellipsis are numbered from the right."""
        term, x = self.terms[number], self.operands[number]
        letters = sum(subscript.text != ELLIPSIS for subscript in term)
        count = x.rank - letters
        if count < 0 or (count and letters == len(term)):
            position = term[0].position if term else 0
            problem = f"operand {number} has rank {x.rank}, but its term has {letters} letters"
            raise self.refusal(AxesError, position, problem)
        return _expanded(term, count)

    def _result_labels(self, inputs: list[tuple[str, ...]]) -> tuple[str, ...]:
        found = [label for labels in inputs for label in labels]
        hidden = max((_hidden_rank(labels) for labels in inputs), default=0)
        if self.result is None:
            once = sorted(x for x in set(found) if len(x) == 1 and found.count(x) == 1)
            return (*_hidden_labels(hidden), *once)
        for subscript in self.result:
            if subscript.text != ELLIPSIS and subscript.text not in found:
                problem = f"the letter {subscript.text!r} of the result is in no operand"
                raise self.refusal(ArgumentError, subscript.position, problem)
        if hidden and ELLIPSIS not in (subscript.text for subscript in self.result):
            problem = "the result needs an ellipsis for the axes that '...' stands for"
            raise self.refusal(ArgumentError, len(self.text), problem)
        return _expanded(self.result, hidden)

    def axes(self, inputs: list[tuple[str, ...]]) -> dict[str, Axis]:
        """Return the axis of each label after broadcasting."""
        found: dict[str, Axis] = {}
        for number, labels in enumerate(inputs):
            mine: dict[str, Axis] = {}
            for label, axis in zip(labels, self.operands[number].axes, strict=True):
                if mine.setdefault(label, axis).length != axis.length:
                    raise self._mismatch(label, number, mine[label], axis)
            for label, axis in mine.items():
                known = found.get(label)
                if known is None or known.length == 1:
                    found[label] = axis
                elif axis.length not in (1, known.length):
                    raise self._mismatch(label, number, known, axis)
        return found

    def names(self, inputs: list[tuple[str, ...]], result: tuple[str, ...]) -> list[Axis]:
        """Return the named axes of the result, or none if all operands are positional."""
        if not any(x.axes.is_named for x in self.operands):
            return []
        names: dict[str, str] = {}
        axes = self.axes(inputs)
        for number, (labels, x) in enumerate(zip(inputs, self.operands, strict=True)):
            for label, axis in zip(labels, x.axes, strict=True):
                if axis.name is not None and names.setdefault(label, axis.name) != axis.name:
                    problem = f"stands for axis {axis.name} of operand {number}, but for axis"
                    raise self._of_label(label, number, f"{problem} {names[label]} before")
        for label in result:
            if label not in names:
                number = next(i for i, labels in enumerate(inputs) if label in labels)
                problem = "is in the result, but stands for no named axis as other letters do"
                raise self._of_label(label, number, f"{problem}: give names with cast_axes")
        named = [Axis(axes[label].length, names[label]) for label in result]
        if len({axis.name for axis in named}) < len(named):
            problem = f"the axes {tuple(named)} of the result need different names: map_roles"
            raise self.refusal(AxesError, len(self.text), problem)
        return named

    def _of_label(self, label: str, number: int, problem: str) -> WeftError:
        """Return an error about a letter or ellipsis of an operand."""
        text = label if len(label) == 1 else ELLIPSIS
        position = next(each.position for each in self.terms[number] if each.text == text)
        return self.refusal(AxesError, position, f"{text!r} {problem}")

    def _mismatch(self, label: str, number: int, known: Axis, axis: Axis) -> WeftError:
        problem = f"has length {axis.length} in operand {number}, but {known.length} before"
        if isinstance(axis.length, Length) or isinstance(known.length, Length):
            problem += ": an unknown length equals only itself"
        return self._of_label(label, number, problem)


def _expanded(term: list[Subscript], hidden: int) -> tuple[str, ...]:
    labels: list[str] = []
    for subscript in term:
        labels.extend(_hidden_labels(hidden) if subscript.text == ELLIPSIS else subscript.text)
    return tuple(labels)


def _hidden_labels(count: int) -> tuple[str, ...]:
    return tuple(f"{ELLIPSIS}{number}" for number in range(count, 0, -1))


def _hidden_rank(labels: tuple[str, ...]) -> int:
    return sum(len(label) > 1 for label in labels)
