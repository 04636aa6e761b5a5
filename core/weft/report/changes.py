"""What a pass changed: ops that went away, and the ops that took their place.

Ops keep their identity for this through new operands. A replacement inherits the place in the
user's order of the op that it stands for, and a kernel contains the ops that it computes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.ir.results import ResultOp


@dataclass
class Change:
    """Ops that a pass removed, and the ops that it put in their place; either may be empty."""

    removed: list[Op] = field(default_factory=list)
    added: list[Op] = field(default_factory=list)


def changes(before: Graph, after: Graph) -> list[Change]:
    """Return the changes of a graph by a pass, in the order of the graphs."""
    if before is after:
        return []
    removed, added = _only_in(before.ops, after.ops), _only_in(after.ops, before.ops)
    result: list[Change] = []
    by_added: dict[Op, Change] = {}
    by_order: dict[float, Change] = {}
    by_key: dict[Hashable, Change] = {}
    for op in added:
        if op.contained:
            result.append(change := Change(added=[op]))
            by_added[op] = change
            by_key.update((key, change) for key in map(_key, op.contained))
        elif isinstance(op, ResultOp) and op.args[0] in by_added:
            by_added[op.args[0]].added.append(op)
        elif op.order in by_order:
            by_order[op.order].added.append(op)
        else:
            result.append(Change(added=[op]))
            by_order[op.order] = result[-1]
    gone: dict[float, Change] = {}
    for op in removed:
        replaced = by_key.get(_key(op)) or by_order.get(op.order) or gone.get(op.order)
        if replaced is None:
            result.append(replaced := Change())
            gone[op.order] = replaced
        replaced.removed.append(op)
    return result


def _only_in(ops: Sequence[Op], others: Iterable[Op]) -> list[Op]:
    """Return the ops of one graph without a counterpart in another."""
    counts: dict[Hashable, int] = {}
    for op in others:
        key = _key(op)
        counts[key] = counts.get(key, 0) + 1
    found = []
    for op in ops:
        key = _key(op)
        if counts.get(key):
            counts[key] -= 1
        else:
            found.append(op)
    return found


def _key(op: Op) -> Hashable:
    """Return a key that an op keeps when only its operands change; without operands, the op."""
    if not op.args:
        return op
    return type(op), op.order, op.attribute_key, op.axes, op.dtype
