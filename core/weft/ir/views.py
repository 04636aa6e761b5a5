"""Views: ops that may share their first operand's memory, and the layouts they produce."""

from __future__ import annotations

from weft.ir.description import TensorDescription, contiguous
from weft.ir.op import Op


def may_be_view(op: Op) -> bool:
    """Whether an op shows its first operand, where strides allow it."""
    return type(op).view is not Op.view and bool(op.args)


class Layouts:
    """The layouts of values of known shape, before anything is planned.

    As in a plan, every op that is not a view has contiguous memory of its own.
    """

    def __init__(self) -> None:
        self._known: dict[Op, TensorDescription] = {}

    def of(self, op: Op) -> TensorDescription:
        """Return the layout of a value; its `base` is the op that owns the memory."""
        known = self._known
        chain = [op]
        while chain[-1] not in known and may_be_view(chain[-1]):
            chain.append(chain[-1].args[0])
        for each in reversed(chain):
            if each not in known:
                view = each.view(known[each.args[0]]) if may_be_view(each) else None
                known[each] = view or contiguous(each.axes.shape, each.dtype, each)
        return known[op]


def planned_layout(op: Op) -> TensorDescription:
    """Return the layout of one value; see `Layouts`."""
    return Layouts().of(op)
