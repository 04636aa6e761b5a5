"""SimplePrune: simplifies arithmetic with 0, 1, -1, constants, and log of exp.

Always done: ``-c``, ``x + -0.0``, ``x - 0.0``, ``x * 1``, ``x * -1``, ``x / 1``, ``sum(c)``,
``x ** 1``, ``x ** 2``, integers plus and minus 0, views that change nothing, and gathers by
constant indices with one step, which are slices. Products, quotients and powers of complex numbers
are left alone: an infinity times 1 is not itself. Only with ``fast_math``: ``x + 0.0`` and
``x - -0.0``, which turn -0.0 into 0.0, ``0 * x`` to 0, which loses NaN and infinity, and
``log(exp(x))`` to x and ``log(exp(x) / d)`` to ``x - log(d)``, which do not overflow where the
original does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.ir.storage import constant
from weft.ir.tensor import TensorOp
from weft.ops.shape.movement import scalar_value
from weft.passes.interface import PeepholeGraphPass
from weft.passes.visitors import visit
from weft.plugins import hookimpl


class SimplePrune(PeepholeGraphPass):
    """Remove arithmetic that changes nothing, and fold scalars."""

    @visit.on_type(weft.NegativeOp)
    def prune_negative(self, op: Op) -> None:
        """Fold ``-c`` for a scalar, and ``-(-x)``."""
        (x,) = op.args
        if x.is_constant and x.is_scalar:
            self.replace_op(op, constant(np.negative(x.const), dtype=op.dtype))
        elif isinstance(x, weft.NegativeOp):
            self.replace_op(op, x.args[0])

    @visit.on_type(weft.AddOp)
    def prune_add(self, op: Op) -> None:
        """Drop ``+ -0.0``, and for integers ``+ 0``."""
        for x, other in (op.args, reversed(op.args)):
            if self.is_zero(other, is_negative=True) and _same(op, x):
                self.replace_op(op, x)
                return

    @visit.on_type(weft.SubtractOp)
    def prune_subtract(self, op: Op) -> None:
        """Drop ``- 0.0``, and for integers ``- 0``; take ``0 -`` integers for a negation."""
        x, y = op.args
        if self.is_zero(y, is_negative=False) and _same(op, x):
            self.replace_op(op, x)
        elif dtypes.is_integer(op.dtype) and scalar_value(x) == 0 and _same(op, y):
            self.replace_by_composite(op, weft.negative(y))

    def is_zero(self, op: Op, is_negative: bool) -> bool:
        """Whether an op is a scalar zero, with this sign if it is a float and signs count."""
        value = scalar_value(op)
        if value != 0 or not dtypes.is_inexact(op.dtype) or self.target.fast_math:
            return value == 0
        parts = (value.real, value.imag) if op.dtype.kind == "c" else (value.real,)
        return all((math.copysign(1, part) < 0) == is_negative for part in parts)

    @visit.on_type(weft.MultiplyOp)
    def prune_multiply(self, op: Op) -> None:
        """Drop ``* 1``, take ``* -1`` for a negation, and with fast_math ``* 0`` for 0."""
        for x, other in (op.args, reversed(op.args)):
            value = _real_value(other)
            if value == 1 and _same(op, x):
                self.replace_op(op, x)
                return
            if value == -1 and _same(op, x):
                self.replace_by_composite(op, weft.negative(x))
                return
            if value == 0 and self.target.fast_math:
                self.replace_op(op, weft.broadcast(constant(0, dtype=op.dtype), op.axes))
                return

    @visit.on_type(weft.DivideOp)
    def prune_divide(self, op: Op) -> None:
        """Drop ``/ 1``."""
        x, y = op.args
        if _real_value(y) == 1 and _same(op, x):
            self.replace_op(op, x)

    @visit.on_type(weft.PowerOp)
    def prune_power(self, op: Op) -> None:
        """Take ``x ** 1`` for x and ``x ** 2`` for a square."""
        x, y = op.args
        value = _real_value(y)
        if value == 1 and _same(op, x):
            self.replace_op(op, x)
        elif value == 2 and _same(op, x):
            self.replace_by_composite(op, weft.square(x))

    def replace_by_composite(self, op: Op, composite: Op) -> None:
        """Replace an op unless the composite would be decomposed into the like of it again."""
        if self.target.keeps_whole(composite):
            self.replace_op(op, composite)

    @visit.on_type(weft.SumOp)
    def prune_sum(self, op: weft.SumOp) -> None:
        """Take the sum of a repeated scalar constant for its product with the size."""
        (x,) = op.args
        if not op.positions:
            if x.dtype == op.dtype:
                self.replace_op(op, x)
            return
        value = scalar_value(x)
        if value is None or not x.axes.is_static or x.dtype != op.dtype:
            return
        total = _multiple(value, x.axes.size // (op.axes.size or 1), op.dtype)
        if total is not None:
            self.replace_op(op, weft.broadcast(constant(total, dtype=op.dtype), op.axes))

    @visit.on_type(weft.LogOp)
    def prune_log(self, op: Op) -> None:
        """With fast_math, undo an exponential."""
        (x,) = op.args
        if not self.target.fast_math:
            return
        if isinstance(x, weft.ExpOp):
            self.replace_op(op, x.args[0])
        elif isinstance(x, weft.DivideOp) and isinstance(x.args[0], weft.ExpOp):
            power, divisor = x.args
            self.replace_op(op, weft.subtract(power.args[0], weft.log(divisor)))

    @visit.on_type(weft.StopGradientOp, weft.ValueOfOp)
    def prune_identity(self, op: Op) -> None:
        """Drop what only mattered while the graph was built."""
        self.replace_op(op, op.args[0])

    @visit.on_type(weft.TransposeOp, weft.ReshapeOp)
    def prune_movement(self, op: weft.TransposeOp | weft.ReshapeOp) -> None:
        """Drop a move that changes nothing, and join two in a row."""
        (x,) = op.args
        if isinstance(op, weft.ReshapeOp):
            if isinstance(x, weft.ReshapeOp):
                self.replace_op(op, weft.cast_axes(x.args[0], op.axes))
            elif x.axes == op.axes:
                self.replace_op(op, x)
        elif isinstance(x, weft.TransposeOp):
            joined = tuple(x.permutation[place] for place in op.permutation)
            identity = joined == tuple(range(op.rank))
            inner = x.args[0]
            self.replace_op(op, inner if identity else weft.TransposeOp(inner, permutation=joined))

    @visit.on_type(weft.TakeOp)
    def prune_take(self, op: weft.TakeOp) -> None:
        """Take a gather by constant indices with one step for a slice, which is a view."""
        x, indices = op.args
        length = x.axes[op.position].length
        if not indices.is_constant or indices.rank > 1 or not isinstance(length, int):
            return
        found = np.ravel(indices.const).astype(np.int64) % max(length, 1)
        steps = np.diff(found[:2]) if found.size > 1 else np.ones(1, np.int64)
        if not found.size or not steps[0] or np.any(np.diff(found) != steps[0]):
            return
        bounds = [(0, axis.length, 1) for axis in x.axes]
        bounds[op.position] = int(found[0]), found.size, int(steps[0])
        self.replace_op(op, weft.cast_axes(weft.SliceOp(x, bounds=tuple(bounds)), op.axes))


def _same(op: Op, x: TensorOp) -> bool:
    return x.axes == op.axes and x.dtype == op.dtype


def _real_value(op: Op) -> complex | None:
    """Return the number of a real scalar constant, broadcast or not; None for other ops."""
    return None if op.dtype.kind == "c" else scalar_value(op)


def _multiple(value: Any, count: int, dtype: DType) -> Any:
    """Return the sum of a number taken so often; None if it is -0.0 or not finite."""
    if dtypes.is_integer(dtype):
        # Python's integers have no end, NumPy's wrap around.
        return np.asarray(value * count % 2**64, np.uint64).astype(dtype)
    wide: Any = np.complex128 if dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        total = np.asarray(wide(value) * count, wide).astype(dtype)
    parts = [total.real, total.imag]
    is_signed = any(part == 0 and np.signbit(part) for part in parts)
    return None if is_signed or not np.isfinite(total) else total


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("simple-prune", SimplePrune)
