"""Strides: how values lie in memory, found by following views before anything is planned."""

from __future__ import annotations

from weft.ir.description import TensorDescription, contiguous
from weft.ir.op import Op


class Locations:
    """Describes values of known shape, as if every op that is no view had memory of its own."""

    def __init__(self) -> None:
        self.known: dict[Op, TensorDescription] = {}

    def describe(self, op: Op) -> TensorDescription:
        """Return how a value lies in memory; the `base` is the op that has this memory."""
        chain = [op]
        while chain[-1] not in self.known and may_be_view(chain[-1]):
            chain.append(chain[-1].args[0])
        for each in reversed(chain):
            if each not in self.known:
                view = each.view(self.known[each.args[0]]) if may_be_view(each) else None
                self.known[each] = view or contiguous(each.axes.shape, each.dtype, each)
        return self.known[op]


def may_be_view(op: Op) -> bool:
    """Whether an op shows its first operand, if strides allow it."""
    return type(op).view is not Op.view


def last_row(lies: TensorDescription) -> tuple[int, int]:
    """Return how many elements, in the order of the axes, are evenly spaced, and their stride."""
    length, step = 1, 0
    for count, stride in zip(reversed(lies.shape), reversed(lies.strides), strict=True):
        if count == 1:
            continue
        if length == 1:
            step = stride
        elif stride != step * length:
            break
        length *= count
    return length, step


def suits_products(lies: TensorDescription) -> bool:
    """Whether BLAS takes the matrices of the last two axes, as they are or transposed."""
    return lies.dtype.itemsize in lies.strides[-2:]
