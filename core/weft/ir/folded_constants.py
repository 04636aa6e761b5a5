"""Sources of large folded constants, kept so that cache entries need not store their values."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.ir.op import Op

LARGE = 2**16
"""The bytes from which a constant is kept as the ops that it was folded from."""

_sources: dict[int, tuple[weakref.ref[Op], Op]] = {}
"""By the identity of a constant, which hashes of weak references do not compare by."""


def remember(made: Op, source: Op) -> None:
    """Say of which op, whose operands are constants, a constant is the value."""
    if made.const.nbytes >= LARGE:
        number, pop = id(made), _sources.pop  # when Python ends, the name is gone before the op
        _sources[number] = weakref.ref(made, lambda _: pop(number, None)), source


def source_of(made: Op) -> Op | None:
    """Return the op that a large constant is the value of; None if that is not known."""
    found = _sources.get(id(made))
    return None if found is None else found[1]


def forget() -> None:
    """Let go of the ops, and of the values on the way: programs have been kept by now."""
    _sources.clear()
