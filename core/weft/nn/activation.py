"""Activation functions.

The gradient at a kink is 0, or that of the side towards 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes
from weft.ir.axes import AxisKey
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.arguments import as_number, check_choice, checked_number
from weft.ops.pointwise.elementwise import align, build
from weft.ops.pointwise.error_functions import normal_tail
from weft.ops.pointwise.polynomials import Coefficients, polynomial
from weft.ops.pointwise.special import wide
from weft.support.backports import override

__all__ = [
    "EluOp",
    "GeluOp",
    "LeakyReluOp",
    "MishOp",
    "ReluOp",
    "SigmoidOp",
    "SiluOp",
    "SoftplusOp",
    "celu",
    "elu",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softplus",
    "swish",
    "tanh_shrink",
    "threshold",
]

_FAR = 40.0
"""Beyond this distance from 0 the smooth functions equal x or 0 exactly, with constant slope."""

_FARTHEST = 100.0
"""Above this the derivative of x times a sigmoid is 1, also in float64."""

_HIGHEST = 2.0**40
"""Adding its reciprocal does not change it, also in float64."""

SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717
"""The constants for which mean 0 and variance 1 are a fixed point (Klambauer et al., 2017)."""


def _number(function: str, name: str, value: float, above: float = -math.inf) -> float:
    """Return an argument as a float; raises ArgumentError unless it is a number above a bound."""
    number = as_number(value)
    if number > above:
        return number
    bound = f" above {above:g}" if math.isfinite(above) else ""
    raise ArgumentError(f"{function}: {name} must be a Python number{bound}, not {value!r}")


class ReluOp(ops.RealNumberOp, CompositeOp):
    """The rectifier max(x, 0); its gradient at 0 is 0."""

    @override
    def reference(self, x: Array) -> Any:
        return np.maximum(x, np.zeros((), np.asarray(x).dtype))

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return ops.maximum(x, 0)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 above 0, else by 0."""
        return (ops.where(ops.greater(self, 0), delta, 0),)


class LeakyReluOp(ops.FloatOp, CompositeOp):
    """The leaky rectifier: x above 0, else x times a slope, also for the gradient at 0.

    Attributes
    ----------
    negative_slope
        The slope below 0.
    """

    negative_slope: float

    @override
    def reference(self, x: Array) -> Any:
        return np.where(np.greater(x, 0), x, x * np.asarray(self.negative_slope, x.dtype))

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return ops.where(ops.greater(x, 0), x, x * self.negative_slope)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 above 0, else by the slope."""
        return (ops.where(ops.greater(x, 0), delta, delta * self.negative_slope),)


class EluOp(ops.FloatOp, CompositeOp):
    """The ELU: x above 0, else alpha (exp(x) - 1), also for the gradient at 0.

    Attributes
    ----------
    alpha
        The negated limit at minus infinity.
    """

    alpha: float

    @override
    def reference(self, x: Array) -> Any:
        alpha = np.asarray(self.alpha, x.dtype)
        return np.where(np.greater(x, 0), x, alpha * np.expm1(np.minimum(x, np.zeros_like(x))))

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return ops.where(ops.greater(x, 0), x, ops.expm1(ops.minimum(x, 0)) * self.alpha)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 above 0, else by alpha exp(x)."""
        return (
            ops.where(ops.greater(x, 0), delta, delta * (ops.exp(ops.minimum(x, 0)) * self.alpha)),
        )


class SigmoidOp(ops.InexactOp, CompositeOp):
    """The logistic function 1 / (1 + exp(-x)), with a small relative error where it is tiny.

    16-bit floats are computed in float32.
    """

    def reference(self, x: Array) -> Any:
        """Divide exponentials, or use tanh for complex numbers, whose infinities would give NaN."""
        x = np.asarray(x)
        if x.dtype.kind != "c":
            _, up, down = _half_values(x)
            return (up / (up + down)).astype(x.dtype)
        return np.tanh(x / 2) / 2 + np.asarray(0.5, x.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Divide exp(x / 2) by 2 cosh(x / 2), which does not overflow, or use tanh."""
        if x.dtype.kind == "c":
            return ops.tanh(x * 0.5) * 0.5 + 0.5
        _, up, down = _halves(wide(x))
        return ops.cast(up / (up + down), self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by s (1 - s) for the result s, which is inexact for s near 1."""
        return (delta * (self - ops.square(self)),)


def _lowest(dtype: DType) -> float:
    """Return the least number for which the exponential of its half is in range."""
    return -1400.0 if dtype == dtypes.float64 else -175.0


def _halves(x: TensorOp) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return x, exp(x / 2) and exp(-x / 2), whose products and quotients underflow late.

    The logistic function is the first exponential divided by their sum. Far above 0, where the
    second is negligible, the first is clipped to a power of 2, which multiplies without rounding.
    Far below 0, where all results are 0, x is clipped.
    """
    x = ops.maximum(x, _lowest(x.dtype))
    up = ops.minimum(ops.exp(x * 0.5), _HIGHEST)
    return x, up, ops.reciprocal(up)


def _half_values(x: Array) -> tuple[Any, Any, Any]:
    """Return `_halves` in NumPy, in at least float32."""
    wide = accumulator_dtype(np.asarray(x).dtype)
    x = np.maximum(np.asarray(x, wide), wide.type(_lowest(wide)))
    with np.errstate(over="ignore"):
        up = np.minimum(np.exp(x / 2), _HIGHEST)
    return x, up, 1 / up


class SoftplusOp(ops.FloatOp, CompositeOp):
    """log(1 + exp(x)), without overflow."""

    @override
    def reference(self, x: Array) -> Any:
        return np.logaddexp(x, np.zeros((), np.asarray(x).dtype))

    def decompose(self, x: TensorOp) -> TensorOp:
        """Add log1p of the smaller exponential to the maximum, without overflow."""
        return ops.maximum(x, 0) + ops.log1p(ops.exp(-ops.absolute(x)))

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by the sigmoid."""
        return (delta * SigmoidOp(x),)


class SiluOp(ops.FloatOp, CompositeOp):
    """The SiLU, x sigmoid(x) (Elfwing et al., 2018), accurate where the sigmoid underflows.

    16-bit floats are computed in float32.
    """

    def reference(self, x: Array) -> Any:
        """Multiply x by exp(x / 2) / (exp(x / 2) + exp(-x / 2)), dividing first."""
        wide, up, down = _half_values(x)
        return (wide / (up + down) * up).astype(np.asarray(x).dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply x by exp(x / 2) / (exp(x / 2) + exp(-x / 2)), dividing first."""
        x, up, down = _halves(wide(x))
        return ops.cast(x / (up + down) * up, self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by s (1 + x (1 - s)) for the sigmoid s; 0 or 1 far from 0."""
        x, up, down = _halves(ops.minimum(wide(x), _FARTHEST))
        share = ops.reciprocal(up + down)
        slope = up * (share * (x * (down * share) + 1))
        return (delta * ops.cast(slope, self.dtype),)


class MishOp(ops.FloatOp, CompositeOp):
    """The Mish, x tanh(softplus(x)) (Misra, 2019), accurate where the tanh underflows.

    16-bit floats are computed in float32.
    """

    def reference(self, x: Array) -> Any:
        """Compute x (p² + 2 p) / (p² + 2 p + 2) for p = exp(x), reduced by sqrt(p)."""
        wide, up, down = _half_values(x)
        top = (up * up + 2) * up
        return (wide / (top + 2 * down) * top).astype(np.asarray(x).dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compute x (p² + 2 p) / (p² + 2 p + 2) for p = exp(x), reduced by sqrt(p)."""
        x, up, down = _halves(wide(x))
        top = (ops.square(up) + 2) * up
        return ops.cast(x / (down * 2 + top) * top, self.dtype)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by t + x (1 - t²) s for tanh t and sigmoid s; 0 or 1 far from 0.

        1 - t² is 4 (1 + p)² / (p² + 2 p + 2)² for p = exp(x).
        """
        x, up, down = _halves(ops.minimum(wide(x), _FARTHEST))
        top = (ops.square(up) + 2) * up
        share = ops.reciprocal(down * 2 + top)
        rest = (up + down) * share * 4
        slope = share * (x * (rest * up) + top)
        return (delta * ops.cast(slope, self.dtype),)


class GeluOp(ops.FloatOp, CompositeOp):
    """The GELU: x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    The error in float32 is up to 6 ulp from -1 up. Below, the error of x² dominates: 12 ulp down to
    -4, 30 to -6, 100 to -14; with the approximation that of its argument: 60 down to -5, 120 to
    -10. The value is 0 at ±0 and at -infinity.

    Attributes
    ----------
    approximate
        "none", or "tanh" for the paper's approximation.
    """

    approximate: str

    def reference(self, x: Array) -> Any:
        """Multiply by the distribution function, computed in float64."""
        wide = np.asarray(x, np.float64)
        if self.approximate == "tanh":
            _, up, down = _half_values(2 * _GELU_SCALE * (wide + _GELU_CUBE * wide**3))
            chance = up / (up + down)
        else:
            wide = np.maximum(wide, -_FAR)
            chance = 0.5 * np.vectorize(math.erfc, otypes=[float])(wide * -math.sqrt(0.5))
        return (wide * chance).astype(x.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Multiply by the approximate distribution function, or subtract a tail from max(x, 0).

        The subtracted term is |x| times the upper tail at |x|: small above 0, and the whole result
        below 0, so that there is no cancellation on either side.
        """
        x = wide(x)
        if self.approximate == "tanh":
            return ops.cast(x * self._chance(x), self.dtype)
        size = ops.minimum(ops.absolute(x), _FAR)
        is_short = x.dtype == dtypes.float32
        tail = normal_tail(size) if is_short else ops.erfc(size * math.sqrt(0.5)) * 0.5
        return ops.cast(ops.maximum(x, 0) - size * tail, self.dtype)

    def _chance(self, x: TensorOp) -> TensorOp:
        if self.approximate == "tanh":
            return SigmoidOp(_gelu_angle(x))
        return ops.erfc(x * -math.sqrt(0.5)) * 0.5

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by the distribution function plus x times the density."""
        x = wide(x)
        chance, near = self._chance(x), ops.clip(x, -_FAR, _FAR)
        if self.approximate == "tanh":
            _, up, down = _halves(ops.minimum(_gelu_angle(x), _FARTHEST))
            inner = ops.square(near) * (6 * _GELU_CUBE * _GELU_SCALE) + 2 * _GELU_SCALE
            slope = ops.square(ops.reciprocal(up + down)) * inner
        else:
            slope = ops.exp(ops.square(near) * -0.5) * (1 / math.sqrt(2 * math.pi))
        return (delta * ops.cast(chance + near * slope, self.dtype),)


_SHRUNK = 2.0
_SHRINK: Coefficients = tuple(2 * k / math.factorial(2 * k + 1) for k in reversed(range(1, 15)))
"""The power series of (x cosh(x) - sinh(x)) / x³ in x², used for |x| below `_SHRUNK`."""

_GELU_SCALE, _GELU_CUBE = math.sqrt(2 / math.pi), 0.044715


def _gelu_angle(x: TensorOp) -> TensorOp:
    """Return twice the argument of the paper's tanh, since (1 + tanh(a)) / 2 is sigmoid(2 a)."""
    x = ops.clip(x, -_FAR, _FAR)
    return (ops.square(x) * _GELU_CUBE + 1) * x * (2 * _GELU_SCALE)


def relu(x: TensorLike) -> TensorOp:
    """Return the rectifier, ``max(x, 0)``; its gradient at 0 is 0.

    Integers keep their dtype, bool gives int32. Raises DTypeError for complex numbers.

    Examples
    --------
    >>> weft.jit(weft.relu)(np.array([-1.0, 0.0, 2.0]))
    array([0., 0., 2.])
    """
    return build(ReluOp, x)


def relu6(x: TensorLike) -> TensorOp:
    """Return x clipped to the range from 0 to 6; the gradient at both limits is 0.

    Integers keep their dtype, bool gives int32. Raises DTypeError for complex numbers.

    Examples
    --------
    >>> weft.jit(weft.relu6)(np.array([-1.0, 2.0, 8.0]))
    array([0., 2., 6.])
    """
    return ops.minimum(6, relu(x))


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> TensorOp:
    """Return x where it is above 0, else `negative_slope` times x.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    negative_slope
        The slope below 0, also for the gradient at 0.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If the slope is not a Python number.

    Examples
    --------
    >>> weft.jit(weft.leaky_relu)(np.array([-1.0, 0.0, 2.0]))
    array([-0.01,  0.  ,  2.  ])
    >>> weft.jit(lambda x: weft.leaky_relu(x, 0.5))(np.array([-1.0, 0.0, 2.0]))
    array([-0.5,  0. ,  2. ])
    """
    slope = _number("leaky_relu", "negative_slope", negative_slope)
    return LeakyReluOp(*align(LeakyReluOp, x), negative_slope=slope)


def prelu(x: TensorLike, weight: TensorLike) -> TensorOp:
    """Return x where it is above 0, else `weight` times x (He et al., 2015).

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    weight
        The slope below 0, usually a trained tensor. It is broadcast to x, by name or from the
        right: one weight for each channel of ``(N, C, H, W)`` has the shape ``(C, 1, 1)``.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    AxesError
        If the weight has axes that x lacks.

    Examples
    --------
    >>> x = np.array([[-1.0, -1.0], [2.0, 2.0]])
    >>> weft.jit(weft.prelu)(x, np.array([0.25, 0.5]))
    array([[-0.25, -0.5 ],
           [ 2.  ,  2.  ]])
    """
    axes = as_op(x).axes
    x, weight = align(ops.FloatOp, x, weight)
    if x.axes != axes:
        problem = f"the weight adds axes to x {axes}, which gives {x.axes}"
        raise AxesError(explain("prelu", problem, (x, weight)))
    return ops.where(ops.greater(x, 0), x, ops.multiply(x, weight))


def elu(x: TensorLike, alpha: float = 1.0) -> TensorOp:
    """Return x where it is above 0, else ``alpha * (exp(x) - 1)`` (Clevert et al., 2016).

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    alpha
        The negated limit at minus infinity.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If `alpha` is not a Python number.

    Examples
    --------
    >>> weft.jit(weft.elu)(np.array([-1.0, 0.0, 2.0]))
    array([-0.6321,  0.    ,  2.    ])
    """
    return EluOp(*align(EluOp, x), alpha=_number("elu", "alpha", alpha))


def selu(x: TensorLike) -> TensorOp:
    """Return the scaled `elu` that preserves mean 0 and variance 1 (Klambauer et al., 2017).

    It is ``1.0507 * elu(x, 1.6733)``, with more digits. Weights drawn by `lecun_normal` fit it.

    Examples
    --------
    >>> weft.jit(weft.selu)(np.array([-1.0, 0.0, 2.0]))
    array([-1.1113,  0.    ,  2.1014])
    """
    return elu(x, SELU_ALPHA) * SELU_SCALE


def celu(x: TensorLike, alpha: float = 1.0) -> TensorOp:
    """Return x where it is above 0, else ``alpha * (exp(x / alpha) - 1)`` (Barron, 2017).

    The slope at 0 is 1 on both sides, for any `alpha`.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    alpha
        The negated limit at minus infinity.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If `alpha` is not a positive number.

    Examples
    --------
    >>> weft.jit(lambda x: weft.celu(x, alpha=2.0))(np.array([-1.0, 0.0, 2.0]))
    array([-0.7869,  0.    ,  2.    ])
    """
    alpha = _number("celu", "alpha", alpha, above=0)
    (x,) = align(ops.FloatOp, x)
    return ops.where(ops.greater(x, 0), x, ops.expm1(ops.minimum(x, 0) / alpha) * alpha)


def gelu(x: TensorLike, approximate: str = "none") -> TensorOp:
    """Return x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    approximate
        ``"none"``, or ``"tanh"`` for 0.5 x (1 + tanh(sqrt(2 / π) (x + 0.044715 x³))), which is
        closer than 0.001.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If `approximate` is another word.

    Examples
    --------
    >>> weft.jit(weft.gelu)(np.array([-1.0, 0.0, 2.0]))
    array([-0.1587,  0.    ,  1.9545])
    >>> weft.jit(lambda x: weft.gelu(x, "tanh"))(np.array([-1.0, 0.0, 2.0]))
    array([-0.1588,  0.    ,  1.9546])
    """
    (x,) = align(GeluOp, x)
    check_choice("gelu", "approximate", approximate, ("none", "tanh"), (x,))
    return GeluOp(x, approximate=approximate)


def sigmoid(x: TensorLike) -> TensorOp:
    """Return the logistic function, ``1 / (1 + exp(-x))``.

    Integers count as float32, and complex numbers are allowed. The relative error is small where
    the result is tiny, too.

    Examples
    --------
    >>> weft.jit(weft.sigmoid)(np.array([-2.0, 0.0, 2.0]))
    array([0.1192, 0.5   , 0.8808])
    """
    return build(SigmoidOp, x)


def log_sigmoid(x: TensorLike) -> TensorOp:
    """Return the logarithm of `sigmoid`, finite for finite x.

    Examples
    --------
    >>> weft.jit(weft.log_sigmoid)(np.array([-100.0, 0.0, 2.0]))
    array([-100.    ,   -0.6931,   -0.1269])
    """
    (x,) = align(SoftplusOp, x)
    return -SoftplusOp(-x)


def softplus(x: TensorLike, beta: float = 1.0) -> TensorOp:
    """Return ``log(1 + exp(beta * x)) / beta``, without overflow.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    beta
        The sharpness: the larger, the closer to `relu`.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If `beta` is not a positive number.

    Examples
    --------
    >>> weft.jit(weft.softplus)(np.array([-1.0, 0.0, 100.0]))
    array([  0.3133,   0.6931, 100.    ])
    """
    beta = _number("softplus", "beta", beta, above=0)
    (x,) = align(SoftplusOp, x)
    return SoftplusOp(x) if beta == 1 else SoftplusOp(x * beta) / beta


def silu(x: TensorLike) -> TensorOp:
    """Return x times its `sigmoid`, also called swish (Elfwing et al., 2018).

    Examples
    --------
    >>> weft.jit(weft.silu)(np.array([-1.0, 0.0, 2.0]))
    array([-0.2689,  0.    ,  1.7616])
    """
    return build(SiluOp, x)


swish = silu


def mish(x: TensorLike) -> TensorOp:
    """Return ``x * tanh(softplus(x))`` (Misra, 2019).

    Examples
    --------
    >>> weft.jit(weft.mish)(np.array([-1.0, 0.0, 2.0]))
    array([-0.3034,  0.    ,  1.944 ])
    """
    return build(MishOp, x)


def hard_sigmoid(x: TensorLike) -> TensorOp:
    """Return ``relu6(x + 3) / 6``: 0 below -3, 1 above 3, and linear between.

    Examples
    --------
    >>> weft.jit(weft.hard_sigmoid)(np.array([-4.0, 0.0, 1.5]))
    array([0.  , 0.5 , 0.75])
    """
    (x,) = align(ops.FloatOp, x)
    return relu6(x + 3) * (1 / 6)


def hard_swish(x: TensorLike) -> TensorOp:
    """Return x times its `hard_sigmoid` (Howard et al., 2019).

    Examples
    --------
    >>> weft.jit(weft.hard_swish)(np.array([-4.0, -1.0, 3.0]))
    array([-0.    , -0.3333,  3.    ])
    """
    (x,) = align(ops.FloatOp, x)
    return ops.multiply(x, hard_sigmoid(x))


def hard_tanh(x: TensorLike, min_val: float = -1.0, max_val: float = 1.0) -> TensorOp:
    """Return x clipped to a range; the gradient at both limits is 0.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    min_val, max_val
        The limits, Python numbers.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If a limit is not a number, or they cross.

    Examples
    --------
    >>> weft.jit(weft.hard_tanh)(np.array([-4.0, 0.5, 3.0]))
    array([-1. ,  0.5,  1. ])
    >>> weft.jit(lambda x: weft.hard_tanh(x, 0.0, 2.0))(np.array([-4.0, 0.5, 3.0]))
    array([0. , 0.5, 2. ])
    """
    low = _number("hard_tanh", "min_val", min_val)
    high = _number("hard_tanh", "max_val", max_val)
    if low > high:
        raise ArgumentError(explain("hard_tanh", f"the limits {low} and {high} cross", [x]))
    return ops.minimum(high, ops.maximum(low, x))


def hard_shrink(x: TensorLike, lambd: float = 0.5) -> TensorOp:
    """Return x where its absolute value exceeds `lambd`, else 0; NaN is kept.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    lambd
        The limit, a Python number.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If the limit is not a number.

    Examples
    --------
    >>> weft.jit(weft.hard_shrink)(np.array([-1.0, 0.25, 2.0]))
    array([-1.,  0.,  2.])
    """
    limit = _number("hard_shrink", "lambd", lambd)
    (x,) = align(ops.FloatOp, x)
    return ops.where(ops.less_equal(ops.absolute(x), limit), 0, x)


def soft_shrink(x: TensorLike, lambd: float = 0.5) -> TensorOp:
    """Return x moved towards 0 by `lambd`, and 0 where its absolute value is less.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    lambd
        The distance, a Python number of at least 0.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If the distance is not a finite number of at least 0.

    Examples
    --------
    >>> weft.jit(weft.soft_shrink)(np.array([-1.0, 0.25, 2.0]))
    array([-0.5,  0. ,  1.5])
    """
    limit = checked_number("soft_shrink", "lambd", lambd)
    (x,) = align(ops.FloatOp, x)
    return ops.subtract(x, ops.clip(x, -limit, limit))


def tanh_shrink(x: TensorLike) -> TensorOp:
    """Return ``x - tanh(x)``, accurate near 0.

    Examples
    --------
    >>> weft.jit(weft.tanh_shrink)(np.array([-1.0, 0.0, 2.0]))
    array([-0.2384,  0.    ,  1.036 ])
    """
    (given,) = align(ops.FloatOp, x)
    x = wide(given)
    is_near = ops.less(ops.absolute(x), _SHRUNK)
    near = ops.where(is_near, x, 0)
    x2 = ops.square(near)
    # The power series of x cosh(x) - sinh(x) has no cancellation.
    series = near * x2 * polynomial(x2, _SHRINK) / ops.cosh(near)
    return ops.cast(ops.where(is_near, series, x - ops.tanh(x)), given.dtype)


def threshold(x: TensorLike, threshold: float, value: float) -> TensorOp:
    """Return x where it is above `threshold`, else `value`; NaN is kept.

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    threshold
        The limit, a Python number.
    value
        What comes in place of elements that are not above it, a Python number.

    Returns
    -------
    TensorOp
        Floats, with the axes of x.

    Raises
    ------
    ArgumentError
        If `threshold` or `value` is not a number.

    Examples
    --------
    >>> weft.jit(lambda x: weft.threshold(x, 0.5, -1.0))(np.array([0.0, 0.5, 2.0]))
    array([-1., -1.,  2.])
    """
    limit = _number("threshold", "threshold", threshold)
    return ops.where(ops.less_equal(x, limit), _number("threshold", "value", value), x)


def glu(x: TensorLike, axis: AxisKey = -1) -> TensorOp:
    """Return the gated linear unit: one half of x times the sigmoid of the other half.

    (Dauphin et al., 2017.)

    Parameters
    ----------
    x
        A tensor of real numbers; integers count as float32.
    axis
        The axis that is halved, by position or name; its length is known and even. The second half
        gives the gates.

    Returns
    -------
    TensorOp
        Floats, with the axes of x, of which that one has half its length.

    Raises
    ------
    AxesError
        If there is no such axis, or its length is odd or unknown.

    Examples
    --------
    >>> weft.jit(weft.glu)(np.array([3.0, 4.0, 0.0, 1000.0]))
    array([1.5, 4. ])
    """
    (x,) = align(ops.FloatOp, x)
    place = explained("glu", (x,), x.axes.position, axis)
    length = x.axes[place].length
    if not isinstance(length, int) or length % 2:
        raise AxesError(explain("glu", f"the axis has length {length}, which must be even", [x]))
    first, second = ops.split(x, 2, place)
    return first * sigmoid(second)


operators["sigmoid"] = sigmoid
