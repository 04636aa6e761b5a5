"""The base of special functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.ir.dtypes import Array
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ir.traversal import postorder
from weft.ops.pointwise.elementwise import FloatOp, cast
from weft.ops.pointwise.special import wide
from weft.support.backports import override


class SpecialOp(FloatOp, CompositeOp):
    """The base: a formula in elementwise ops, and the derivative in closed form.

    The formula is evaluated in float32 for 16-bit floats.
    """

    def formula(self, *args: Any) -> TensorOp:
        """Return the value for operands of float32 or float64."""
        raise NotImplementedError

    def slopes(self, *args: Any) -> Iterable[TensorOp | None]:
        """Return the derivative by each operand; None for that of the formula."""
        raise NotImplementedError

    @override
    def decompose(self, *args: TensorOp) -> TensorOp:
        return cast(self.formula(*map(wide, args)), self.dtype)

    def reference(self, *args: Array) -> Any:
        """Compute the formula with NumPy."""
        result = self.decompose(*(constant(np.asarray(each)) for each in args))
        values: dict[Any, Any] = {}
        for op in postorder([result]):
            operands = (values[arg] for arg in op.args)
            values[op] = op.const if op.is_constant else np.asarray(op.reference(*operands))
        return values[result]

    @override
    def partials(self, delta: TensorOp, *args: TensorOp) -> Iterable[Any]:
        slopes = list(self.slopes(*args))
        own: Iterable[Any] = slopes
        if any(slope is None for slope in slopes):
            own = CompositeOp.generate_adjoints(self, delta, *args)
        pairs = zip(slopes, own, strict=True)
        return [adjoint if slope is None else delta * slope for slope, adjoint in pairs]
