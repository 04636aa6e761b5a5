"""Lambert's W function, exponential smoothing and histograms."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft import ElementwiseOp, TensorOp
from weft.batching import batching_rule_of
from weft.errors import DTypeError
from weft.ops.pointwise.elementwise import build


class LambertOp(ElementwiseOp):
    """Factor times the number w with w exp(w) = x, for x of at least 0."""

    factor: float

    @staticmethod
    def operand_dtype(dtype: Any) -> Any:
        """Return floats; float32 for anything else."""
        return dtype if weft.dtypes.is_inexact(dtype) else weft.float32

    def result_dtype(self, operand: Any) -> Any:
        """Keep a float; raises DTypeError for anything else."""
        if not weft.dtypes.is_float(operand):
            raise DTypeError(f"W is computed of real floats, not of {operand}")
        return operand

    def reference(self, x: Any) -> Any:
        """Take ten steps of Newton's method."""
        w = np.log1p(x)
        for _ in range(10):
            w = (w * w + x * np.exp(-w)) / (w + np.asarray(1, x.dtype))
        return w * np.asarray(self.factor, x.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Divide by the derivative of w exp(w)."""
        w = LambertOp(x, factor=1.0)
        return (self.factor * delta * weft.exp(-w) / (1 + w),)


def lambert(x: Any, factor: float = 1.0) -> TensorOp:
    """Return factor W(x)."""
    return build(LambertOp, x, factor=float(factor))


class SmoothOp(TensorOp):
    """y[t] = keep y[t - 1] + (1 - keep) x[t] along the last axis, with y[-1] = 0."""

    keep: float

    def infer(self) -> Any:
        """Keep axes and dtype; raises DTypeError for what are no floats."""
        (x,) = self.args
        if not weft.dtypes.is_float(x.dtype):
            raise DTypeError(f"floats are smoothed, not {x.dtype}")
        return x.axes, x.dtype

    def reference(self, x: Any) -> Any:
        """Go from element to element."""
        total, out = np.zeros(x.shape[:-1], np.result_type(x, "f4")), np.empty_like(x)
        for t in range(x.shape[-1]):
            total = self.keep * total + (1 - self.keep) * x[..., t]
            out[..., t] = total
        return out

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Smooth from the end."""
        return (weft.flip(SmoothOp(weft.flip(delta, -1), keep=self.keep), -1),)


@batching_rule_of(SmoothOp)
def batched_smooth(op: SmoothOp, batch: Any, x: TensorOp) -> TensorOp:
    """Smooth all examples."""
    return SmoothOp(x, keep=op.keep)


def smooth(x: Any, keep: float) -> TensorOp:
    """Return x smoothed along its last axis."""
    return SmoothOp(weft.as_op(x), keep=float(keep))


class HistogramOp(TensorOp):
    """How often each of the numbers from 0 to below `bins` occurs; others are not counted."""

    bins: int

    def infer(self) -> Any:
        """Return a vector of uint32."""
        (x,) = self.args
        if x.dtype != weft.int32:
            raise DTypeError(f"int32 is counted, not {x.dtype}")
        return weft.placeholder((self.bins,)).axes, weft.uint32

    def reference(self, x: Any) -> Any:
        """Count."""
        known = x[(x >= 0) & (x < self.bins)]
        return np.bincount(known.ravel(), minlength=self.bins).astype(np.uint32)


def histogram(x: Any, bins: int) -> TensorOp:
    """Return how often each number below `bins` occurs."""
    return HistogramOp(weft.as_op(x), bins=bins)
