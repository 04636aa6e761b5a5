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
    return (*op.meaning.args, *op.other_deps)


def postorder(roots: Iterable[Op], children: Callable[[Op], Iterable[Op]] = operands) -> list[Op]:
    """Return every op reachable from the roots, each after all its children.

    Raises GraphError naming the ops of a cycle, which only changed ordering edges can form.
    """
    done: dict[Op, bool] = {}
    order: list[Op] = []
    for root in roots:
        stack = [root]
        while stack:
            op = stack[-1]
            state = done.get(op)
            if state is None:
                done[op] = False
                stack.extend(
                    child for child in reversed(tuple(children(op))) if not done.get(child)
                )
                continue
            stack.pop()
            if not state:
                done[op] = True
                order.append(op)
    return order
