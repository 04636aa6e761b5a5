"""Errors of graphs and programs of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

from weft.errors import GraphError, ParseError


class UnsupportedOp(GraphError):
    """A graph has ops without a rule, or with arguments that a rule does not cover.

    Attributes
    ----------
    ops
        The names of the ops.
    """

    def __init__(self, problem: str, ops: Iterable[str] = ()) -> None:
        self.ops = tuple(ops)
        super().__init__(problem)


class ProgramError(ParseError):
    """A file is not an exported program, or one that weft refuses to read."""
