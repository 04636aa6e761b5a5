"""Walks over ops and nested graphs without recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from weft.ir.op import Op


def operands(op: Op) -> Iterable[Op]:
    """Return the operands of an op: its arguments, or those of the composite that it means."""
    return op.meaning.args


def dependencies(op: Op) -> Iterable[Op]:
    """Return operands, the writes that come first, and members of a region."""
    reads = op.reads
    if reads.count(None) == len(reads):
        return op.meaning.args
    return (*op.meaning.args, *op.other_deps)


def postorder(roots: Iterable[Op], children: Callable[[Op], Iterable[Op]] = operands) -> list[Op]:
    """Return every op reachable from the roots, each after all its children.

    Where edges form a cycle, one of them is not respected.
    """
    seen: set[Op] = set()
    order: list[Op] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        path = [(root, iter(children(root)))]
        while path:
            op, rest = path[-1]
            for child in rest:
                if child not in seen:
                    seen.add(child)
                    below = children(child)
                    if below:
                        path.append((child, iter(below)))
                        break
                    order.append(child)
            else:
                path.pop()
                order.append(op)
    return order


K = TypeVar("K")
T = TypeVar("T")

LEVELS = 16
"""How deeply functions run inside one another by `nested`."""

_level: ContextVar[int] = ContextVar("weft_nesting", default=0)


class _TooDeep(BaseException):
    """What has to be made first, outside of everything that waits for it."""

    def __init__(self, make: Callable[[], None]) -> None:
        super().__init__()
        self.make = make


def nested(kept: MutableMapping[K, T], key: K, make: Callable[[], T]) -> T:
    """Return the value cached under a key, calling `make` on a miss, which may recurse.

    To any depth: at a depth of `LEVELS` those that wait are given up; what they need is made
    without them on the stack, and they begin again. So each begins at most twice.
    """
    if key in kept:
        return kept[key]
    level = _level.get()

    def make_and_keep() -> None:
        kept.setdefault(key, make())

    if level >= LEVELS:
        raise _TooDeep(make_and_keep)
    token = _level.set(level + 1)
    try:
        if level:
            make_and_keep()
        else:
            _make_in_turn(make_and_keep)
    finally:
        _level.reset(token)
    return kept[key]


def _make_in_turn(make: Callable[[], None]) -> None:
    waiting = [make]
    while waiting:
        try:
            waiting[-1]()
        except _TooDeep as inner:
            waiting.append(inner.make)
        else:
            waiting.pop()
