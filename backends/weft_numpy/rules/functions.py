"""Lowering rules of mathematical functions: one ufunc each, where that is fastest.

`logaddexp` has no rule: its decomposition takes a third of the time of NumPy's ufunc.
"""

from __future__ import annotations

import numpy as np

from weft.ir.op import Op
from weft.ops.pointwise import math, rounding, trigonometry
from weft_numpy.emitter import Emitter
from weft_numpy.rules.elementwise import call_ufunc
from weft_numpy.rules.table import rules

FUNCTIONS: dict[type[Op], np.ufunc] = {
    math.CbrtOp: np.cbrt,
    math.Exp2Op: np.exp2,
    math.Expm1Op: np.expm1,
    math.HypotOp: np.hypot,
    math.Log10Op: np.log10,
    math.Log1pOp: np.log1p,
    math.Log2Op: np.log2,
    rounding.CeilOp: np.ceil,
    rounding.CopysignOp: np.copysign,
    rounding.FloorOp: np.floor,
    rounding.FmodOp: np.fmod,
    rounding.IsfiniteOp: np.isfinite,
    rounding.IsinfOp: np.isinf,
    rounding.IsnanOp: np.isnan,
    rounding.NextafterOp: np.nextafter,
    rounding.RoundOp: np.rint,
    rounding.SignbitOp: np.signbit,
    rounding.TruncOp: np.trunc,
    trigonometry.AcosOp: np.arccos,
    trigonometry.AcoshOp: np.arccosh,
    trigonometry.AsinOp: np.arcsin,
    trigonometry.AsinhOp: np.arcsinh,
    trigonometry.Atan2Op: np.arctan2,
    trigonometry.AtanhOp: np.arctanh,
    trigonometry.CoshOp: np.cosh,
    trigonometry.SinhOp: np.sinh,
    trigonometry.TanOp: np.tan,
}


@rules.on_type(*FUNCTIONS)
def function_rule(op: Op, emit: Emitter) -> None:
    """Call the ufunc."""
    call_ufunc(FUNCTIONS[type(op)], emit)
