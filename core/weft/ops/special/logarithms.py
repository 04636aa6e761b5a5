"""Products with logarithms."""

from __future__ import annotations

import math

from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.pointwise.comparison import equal, less, where
from weft.ops.pointwise.elementwise import build
from weft.ops.pointwise.math import log, log1p
from weft.ops.pointwise.special import xlogy
from weft.ops.special.base import SpecialOp
from weft.support.backports import override


class Xlog1pyOp(SpecialOp):
    """The product of x and log(1 + y); 0 where x is 0."""

    @override
    def formula(self, x: TensorOp, y: TensorOp) -> TensorOp:
        return where(equal(x, 0) & equal(y, y), 0, x * log1p(y))

    def slopes(self, x: TensorOp, y: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return log(1 + y), and x / (1 + y), which is 0 where x is 0."""
        return log1p(y), where(equal(x, 0), 0, x / (y + 1))


class EntrOp(SpecialOp):
    """The product -x log(x); 0 at 0, and minus infinity below."""

    @override
    def formula(self, x: TensorOp) -> TensorOp:
        return where(less(x, 0), -math.inf, 0 - xlogy(x, x))

    def slopes(self, x: TensorOp) -> tuple[TensorOp]:
        """Return -1 - log(x)."""
        return (-1 - log(x),)


def xlog1py(x: TensorLike, y: TensorLike) -> TensorOp:
    """Return x log(1 + y), which is 0 where x is 0 unless y is NaN.

    The gradient with respect to x is log(1 + y) everywhere, so it is infinite at y = -1.

    Parameters
    ----------
    x
        The factor.
    y
        What the logarithm is taken of, less 1.

    Returns
    -------
    TensorOp
        The products, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(weft.special.xlog1py)(np.array([0.0, 2.0]), np.array([-1.0, 1.0]))
    array([0.    , 1.3863])
    """
    return build(Xlog1pyOp, x, y)
