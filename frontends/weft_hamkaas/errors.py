"""Errors of HamKaas: a node that cannot be built, and a script that is none."""

from __future__ import annotations

from weft.errors import ArgumentError, ParseError


class NodeError(ArgumentError):
    """A node cannot be built, or a model cannot take what it is given; also a ValueError."""


class KindError(NodeError, TypeError):
    """A value of another kind is given than is wanted, such as None for a node; a TypeError too."""


class ScriptError(ParseError):
    """A script is malformed; the message begins with file, line and column.

    Attributes
    ----------
    line, column
        Where, both counted from 1.
    """

    def __init__(self, problem: str, filename: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        super().__init__(f"{filename}:{line}:{column}: {problem}")
