"""A pass that leaves out casts on the way."""

from __future__ import annotations

import weft
from weft import PeepholeGraphPass, visit
from weft.ir.dtypes import DType
from weft.ops.pointwise.elementwise import CastOp


class DirectCasts(PeepholeGraphPass):
    """Cast a tensor directly where it was widened first, which lost nothing."""

    @visit.on_type(CastOp)
    def skip_widening(self, op: CastOp) -> None:
        """Take the operand of a widening cast for its result."""
        (widened,) = op.args
        if isinstance(widened, CastOp) and _is_widening(widened.args[0].dtype, widened.dtype):
            self.replace_op(op, weft.cast(widened.args[0], op.dtype))


def _is_widening(source: DType, target: DType) -> bool:
    """Whether each value of a dtype is a value of the other, which is of the same kind."""
    return source.kind == target.kind and source.itemsize < target.itemsize
