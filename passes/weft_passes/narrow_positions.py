"""Positions as int32, for devices without 64-bit integers: the pass `narrow-integers` makes them.

Each class is the op of its base but for the dtype, so the rules of backends for that are its rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.axes import Axes
from weft.ir.dtypes import Array, DType
from weft.ir.tensor import TensorOp
from weft.nn.spatial.pooling import MaxPoolIndexOp
from weft.ops.reductions.reduction import ArgmaxOp, ArgminOp
from weft.ops.reductions.sorting import ArgsortOp, SearchSortedOp, TopKIndicesOp


class NarrowPositions:
    """The dtype and the reference of an op whose positions are int32 instead of int64."""

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the base, and int32."""
        base: Any = super()
        return base.infer()[0], dtypes.int32

    def reference(self, *args: Array) -> Any:
        """Convert the positions that the base computes."""
        base: Any = super()
        return np.asarray(base.reference(*args), np.int32)


class NarrowArgmaxOp(NarrowPositions, ArgmaxOp):
    """The first maximum along an axis."""


class NarrowArgminOp(NarrowPositions, ArgminOp):
    """The first minimum along an axis."""


class NarrowArgsortOp(NarrowPositions, ArgsortOp):
    """The order of elements along an axis."""


class NarrowTopKIndicesOp(NarrowPositions, TopKIndicesOp):
    """The places of the first elements in order."""


class NarrowSearchSortedOp(NarrowPositions, SearchSortedOp):
    """The places in a sorted vector."""


class NarrowMaxPoolIndexOp(NarrowPositions, MaxPoolIndexOp):
    """The places of the maxima of windows."""


NARROW: dict[type[TensorOp], type[TensorOp]] = {
    ArgmaxOp: NarrowArgmaxOp,
    ArgminOp: NarrowArgminOp,
    ArgsortOp: NarrowArgsortOp,
    MaxPoolIndexOp: NarrowMaxPoolIndexOp,
    SearchSortedOp: NarrowSearchSortedOp,
    TopKIndicesOp: NarrowTopKIndicesOp,
}
"""The op with int32 for each with int64."""
