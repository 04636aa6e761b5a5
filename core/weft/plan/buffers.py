"""Buffers: the memory ranges of a plan, of six kinds."""

from __future__ import annotations

from typing import Any

from weft.ir.storage import CARRIED, DONATED

ARENA, STATE, INPUT, CONSTANT, RESULT = "arena", "state", "input", "constant", "result"
STATES = (STATE, CARRIED, DONATED)
"""Kinds of memory with a value that a program updates: states, those of a loop, and arguments."""


def kind_of(state: Any) -> str:
    """Return the kind of a state's buffer."""
    return state.kind if state.kind in STATES else STATE


class Buffer:
    """A range of memory that is live from step `first` to step `last`, both included.

    Attributes
    ----------
    kind
        ``arena``, ``state``, ``carried``, ``input``, ``constant`` or ``result``.
    owner
        The state or constant op, the number of the input or result, or None in the arena.
    nbytes, size
        The bytes of the value, and those reserved in the arena, rounded up to the alignment.
    offset
        Its offset in the arena.
    number
        Its index among the buffers of its `Dataflow`.
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
