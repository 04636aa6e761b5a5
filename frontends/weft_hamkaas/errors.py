"""Errors of HamKaas: invalid nodes, arguments and scripts."""

from __future__ import annotations

from weft.errors import ArgumentError, ParseError


class NodeError(ArgumentError):
    """A node cannot be built, or an argument of a model is invalid; also a ValueError."""


class KindError(NodeError, TypeError):
    """An argument has the wrong type, such as None instead of a node; also a TypeError."""


class ScriptError(ParseError):
    """A script is malformed; the message begins with file, line and column.

    Attributes
    ----------
    line, column
        The position of the error, both counted from 1.
    """

    def __init__(self, problem: str, filename: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        super().__init__(f"{filename}:{line}:{column}: {problem}")
