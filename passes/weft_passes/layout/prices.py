"""Prices of the views around a region, for each axis split of it.

A price is in bytes: whatever takes longer than reading each operand once, in a row, is counted as
the bytes that could have been moved in a row meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod

from weft.ir.description import TensorDescription, contiguous
from weft.ops.reductions.reduction import ReductionOp
from weft_passes.axis_splitting import AxisSplit, lengths, moves, restricted
from weft_passes.layout.regions import Regions
from weft_passes.strides import last_row, suits_products

STRIDED = 8
"""A strided read takes as long as this many in a row; NumPy was measured to need 9 to 45."""

RUN = 256
"""The bytes that could be moved while a loop over a row begins; 120 to 640 were measured."""

STEP = 1 << 14
"""The bytes that could be moved while a step of its own, such as a copy, begins."""


def reading_price(lies: TensorDescription) -> int:
    """Return the cost of reading a value in the order of its axes, and not in one row."""
    if not lies.size:
        return 0
    length, stride = last_row(lies)
    price = lies.size // length * RUN
    return price if stride in (0, lies.dtype.itemsize) else price + STRIDED * lies.nbytes


def copy_price(lies: TensorDescription) -> int:
    """Return the cost of a copy: to read the value as it lies, and to write it."""
    return STEP + 2 * lies.nbytes + reading_price(lies)


@dataclass(frozen=True)
class Crossing:
    """A value that enters or leaves a region.

    Attributes
    ----------
    split
        Its axis split outside the region, in the factors of the region.
    lies
        How it lies in memory; of a value that leaves, only the dtype counts.
    leaves
        Whether it leaves.
    is_fused
        Whether it stays in registers if it has the region's axis split, up to axes of length 1.
    is_callers
        Whether it is an argument or a result. Each call makes the view of it that is needed, and a
        result whose elements are in another order than they were computed is a copy.
    is_factor
        Whether it goes into a matrix product, which takes transposed matrices as they are.
    """

    split: AxisSplit
    lies: TensorDescription
    leaves: bool
    is_fused: bool = False
    is_callers: bool = False
    is_factor: bool = False

    def price(self, split: AxisSplit) -> int:
        """Return the bytes that the crossing costs in an axis split of the region."""
        steps = moves(split, self.split) if self.leaves else moves(self.split, split)
        if self.leaves and not steps:
            return 0
        lies = contiguous(lengths(split), self.lies.dtype) if self.leaves else self.lies
        price = 0
        if self.is_fused and not self._keeps_rows(split):
            price += STEP + 2 * lies.nbytes
        if self.is_callers and steps:
            price += STEP
        for kind, given in steps:
            shown = getattr(lies, kind)(*given)
            if shown is None:
                price += copy_price(lies)
                shown = contiguous(given[0], lies.dtype)
            lies = shown
        if self.leaves and self.is_callers:
            return price if lies.is_contiguous else price + copy_price(lies)
        if self.is_factor:
            return price if suits_products(lies) else price + copy_price(lies)
        return price + reading_price(lies)

    def _keeps_rows(self, split: AxisSplit) -> bool:
        inner, outer = (split, self.split) if self.leaves else (self.split, split)
        return restricted(outer, inner) == restricted(inner, inner)


@dataclass(frozen=True)
class Sharing:
    """An operand of two regions: in equal axis splits they may share a kernel."""

    split: AxisSplit
    nbytes: int

    def price(self, split: AxisSplit) -> int:
        """Return the bytes that are read again in an axis split of the region."""
        return (
            0
            if restricted(split, self.split) == restricted(self.split, self.split)
            else self.nbytes
        )


@dataclass(frozen=True)
class Reducing:
    """A reduction in a region."""

    op: ReductionOp
    regions: Regions

    def price(self, split: AxisSplit) -> int:
        """Return the bytes that a reduction costs in an axis split of its region."""
        (x,) = self.op.args
        places = self.regions.reduced_places(self.op, split)
        if places is None:
            nbytes: int = x.nbytes
            return STEP + 2 * nbytes
        long = [
            (place in places, length) for place, length in enumerate(lengths(split)) if length > 1
        ]
        _, row = next(groupby(reversed(long), key=lambda each: each[0]))
        size: int = x.axes.size
        return size // prod(length for _, length in row) * RUN
