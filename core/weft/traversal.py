"""Iterative walks over ops: depth is bounded by memory, never by the interpreter's stack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.op import Op


def operands(op: Op) -> Iterable[Op]:
    """Return what an op computes from: its arguments, or those of the composite that it means."""
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
