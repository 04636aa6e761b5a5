"""Indexing maps: the dimension of the iteration domain that indexes each axis of a value.

A kernel runs over an iteration domain, a box of indices. The indexing map of a value holds for each
axis the dimension of the domain that indexes it, or None for an axis that is whole at every point
(the contracted axis of a matrix product, the axes of what a piecewise op reads) or has length 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.ir.op import Op
from weft.kernels.piecewise import PiecewiseOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import ContractionOp
from weft.ops.reductions.reduction import ReductionOp
from weft.ops.shape.movement import BroadcastOp, ReshapeOp

IndexingMap = tuple[int | None, ...]

VIEWS = (BroadcastOp, ReshapeOp)
"""The ops that a kernel has to follow only: they show the elements of a value that it has."""


def place(op: Op, known: Mapping[Op, IndexingMap], domain: Sequence[int]) -> IndexingMap | None:
    """Return the indexing map of an op, given those of its operands in the kernel.

    None if the op needs another domain, or elements of an operand from other points.
    """
    if isinstance(op, ElementwiseOp):
        return _place_elementwise(op, known, domain)
    first = known.get(op.args[0]) if op.args else None
    if first is None:
        return None
    if isinstance(op, ReductionOp):
        return tuple(first[position] for position in op.kept())
    if isinstance(op, BroadcastOp):
        return _place_broadcast(op, first, domain)
    return _place_reshape(op, first) if isinstance(op, ReshapeOp) else None


def _place_elementwise(
    op: Op, known: Mapping[Op, IndexingMap], domain: Sequence[int]
) -> IndexingMap | None:
    if not op.axes:
        return ()
    found = {known[arg] for arg in op.args if arg.axes and arg in known}
    if not found and op.axes.shape == tuple(domain):
        return tuple(range(len(domain)))
    return found.pop() if len(found) == 1 else None


def _place_broadcast(
    op: BroadcastOp, first: IndexingMap, domain: Sequence[int]
) -> IndexingMap | None:
    """Map new axes to the remaining dimensions in order, if the lengths agree."""
    shape = op.axes.shape
    if shape != tuple(domain):
        return None
    for given, wanted, axis in zip(first, op.dims, op.args[0].axes, strict=True):
        if given != wanted and axis.length != 1:
            return None
    return tuple(range(len(shape)))


def _place_reshape(op: ReshapeOp, first: IndexingMap) -> IndexingMap | None:
    """Follow axes through a reshape that only adds or drops axes of length 1."""
    old, new = op.args[0].axes.shape, op.axes.shape
    if [n for n in old if n != 1] != [n for n in new if n != 1]:
        return None
    rest = iter([given for given, length in zip(first, old, strict=True) if length != 1])
    return tuple(next(rest) if length != 1 else None for length in new)


def operand_indexing_map(op: Op, index: int, places: IndexingMap) -> IndexingMap:
    """Return the indexing map of an operand from outside the kernel, given that of the op."""
    arg = op.args[index]
    if isinstance(op, ContractionOp):
        return op.operand_map(index, places)
    if isinstance(op, PiecewiseOp):
        return (None,) * len(arg.axes)
    if isinstance(op, ReductionOp):
        return tuple(range(arg.rank))
    return places if arg.axes else ()
