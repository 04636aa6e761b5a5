"""Buffers: the memory ranges of a plan, of five kinds."""

from __future__ import annotations

from typing import Any

ARENA, STATE, INPUT, CONSTANT, RESULT = "arena", "state", "input", "constant", "result"


class Buffer:
    """A stretch of memory in use from step `first` to step `last`, both included.

    Attributes
    ----------
    kind
        ``arena``, ``state``, ``input``, ``constant`` or ``result``.
    owner
        The state or constant op, the number of the input or result, or None in the arena.
    nbytes, size
        The bytes in use, and those taken in the arena after rounding up to the alignment.
    offset
        Where it lies in the arena.
    number
        Its place among the buffers of its `Dataflow`.
    """

    __slots__ = ("first", "kind", "last", "nbytes", "number", "offset", "owner", "size")

    def __init__(self, kind: str, nbytes: int, number: int, owner: Any = None) -> None:
        self.kind = kind
        self.nbytes = nbytes
        self.size = nbytes
        self.first = 0
        self.last = 0
        self.offset = 0
        self.owner = owner
        self.number = number

    def __repr__(self) -> str:
        return f"<{self.kind} buffer, {self.nbytes} bytes, steps {self.first} to {self.last}>"
