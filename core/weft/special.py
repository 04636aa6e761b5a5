"""Special functions, under the names of `scipy.special`.

Each is a composite of elementwise ops, so that it is computed in one kernel with what is around it.
Floats of 16 bits are computed in float32. Derivatives are functions of the same family.
"""

from __future__ import annotations

import math
from typing import SupportsIndex

from weft.errors import ArgumentError
from weft.ir.op import explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.pointwise.comparison import equal, where
from weft.ops.pointwise.elementwise import FloatOp, absolute, align, build, cast
from weft.ops.pointwise.math import sin
from weft.ops.pointwise.special import (
    digamma,
    erf,
    erfc,
    erfinv,
    lgamma,
    over_angle,
    wide,
    xlogy,
)
from weft.ops.special.airy import AiryOp
from weft.ops.special.bessel import (
    FirstKindOp,
    ModifiedFirstKindOp,
    ModifiedSecondKindOp,
    SecondKindOp,
)
from weft.ops.special.incomplete import BetaincOp, GammaincOp
from weft.ops.special.lambert import LambertwOp
from weft.ops.special.logarithms import EntrOp, xlog1py
from weft.ops.special.normal import ErfcxOp, LogNdtrOp, NdtriOp, NdtrOp
from weft.ops.special.orthogonal import evaluated
from weft.ops.special.zeta import PolygammaOp, ZetaOp

__all__ = [
    "airy",
    "betainc",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "eval_chebyt",
    "eval_chebyu",
    "eval_chebyv",
    "eval_chebyw",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_laguerre",
    "eval_legendre",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "lambertw",
    "log_ndtr",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "zeta",
]


def __dir__() -> list[str]:
    """List what is public, and nothing that is only imported here."""
    return __all__


_HIGHEST_ORDER = 170
"""The factorials of higher orders are no float64."""

gammaln, psi = lgamma, digamma


def airy(x: TensorLike) -> tuple[TensorOp, TensorOp, TensorOp, TensorOp]:
    """Return the Airy functions Ai and Bi and their derivatives: Ai, Ai', Bi, Bi'.

    What is not used is not computed. Their errors below 0 are a few units of the last place of
    their amplitudes, times 1 + abs(x)^1.5, as are the relative errors above.

    Returns
    -------
    tuple of TensorOp
        Four tensors, in the dtype of x. Integers give float32.

    Raises
    ------
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.airy(x)[0])(np.array([-1.0, 0.0, 1.0]))
    array([0.5356, 0.355 , 0.1353])
    """
    values = [build(AiryOp, x, second=second, slope=slope)
              for second in (False, True) for slope in (False, True)]  # fmt: skip
    return values[0], values[1], values[2], values[3]


def betainc(a: TensorLike, b: TensorLike, x: TensorLike) -> TensorOp:
    """Return the regularized incomplete beta function of a, b and x.

    It is the integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x, divided by that to 1; NaN for
    negative parameters and for x outside of 0 to 1. The derivatives by a and b are those of its
    approximation, of any order.

    Parameters
    ----------
    a, b
        The parameters, from 0 on.
    x
        Where the function is evaluated, between 0 and 1.

    Returns
    -------
    TensorOp
        The values, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(weft.special.betainc)(np.array([0.5, 2.0]), 2.0, np.array([0.5, 0.5]))
    array([0.8839, 0.5   ])
    """
    return build(BetaincOp, a, b, x)


def entr(x: TensorLike) -> TensorOp:
    """Return -x log(x), which is 0 at 0, and minus infinity below.

    Examples
    --------
    >>> weft.jit(weft.special.entr)(np.array([0.0, 0.5, 1.0]))
    array([0.    , 0.3466, 0.    ])
    """
    return build(EntrOp, x)


def erfcx(x: TensorLike) -> TensorOp:
    """Return erfc(x) exp(x²), where erfc(x) alone would be 0 or lose its digits.

    Examples
    --------
    >>> weft.jit(weft.special.erfcx)(np.array([0.0, 1.0, 100.0]))
    array([1.    , 0.4276, 0.0056])
    """
    return build(ErfcxOp, x)


def eval_chebyt(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Chebyshev polynomial of the first kind, cos(n acos(x)).

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_chebyt(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-0., -1.,  1.])
    """
    return evaluated("chebyt", n, x)


def eval_chebyu(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Chebyshev polynomial of the second kind.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_chebyu(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-0., -1.,  4.])
    """
    return evaluated("chebyu", n, x)


def eval_chebyv(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Chebyshev polynomial of the third kind, V_1 = 2 x - 1.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_chebyv(3, x))(np.array([0.0, 0.5, 1.0]))
    array([ 1., -1.,  1.])
    """
    return evaluated("chebyv", n, x)


def eval_chebyw(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Chebyshev polynomial of the fourth kind, W_1 = 2 x + 1.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_chebyw(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-1., -1.,  7.])
    """
    return evaluated("chebyw", n, x)


def eval_hermite(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Hermite polynomial with the weight exp(-x²), H_1 = 2 x.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_hermite(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-0., -5., -4.])
    """
    return evaluated("hermite", n, x)


def eval_hermitenorm(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Hermite polynomial with the weight exp(-x² / 2), He_1 = x.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_hermitenorm(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-0.   , -1.375, -2.   ])
    """
    return evaluated("hermitenorm", n, x)


def eval_laguerre(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Laguerre polynomial.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_laguerre(3, x))(np.array([0.0, 0.5, 1.0]))
    array([ 1.    , -0.1458, -0.6667])
    """
    return evaluated("laguerre", n, x)


def eval_legendre(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the Legendre polynomial.

    Parameters
    ----------
    n
        The degree, an integer from 0 on. The recurrence is written out, with n - 1 steps.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 on.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.eval_legendre(3, x))(np.array([0.0, 0.5, 1.0]))
    array([-0.    , -0.4375,  1.    ])
    """
    return evaluated("legendre", n, x)


def gammainc(a: TensorLike, x: TensorLike) -> TensorOp:
    """Return the regularized lower incomplete gamma function of a and x.

    It is the integral of t^(a - 1) exp(-t) from 0 to x, divided by gamma(a); NaN for negative
    operands. The derivative by a is that of its approximation, of any order.

    Parameters
    ----------
    a
        The parameter, from 0 on.
    x
        Where the function is evaluated, from 0 on.

    Returns
    -------
    TensorOp
        The values, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(weft.special.gammainc)(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([0.8427, 0.2642])
    """
    return build(GammaincOp, a, x, upper=False)


def gammaincc(a: TensorLike, x: TensorLike) -> TensorOp:
    """Return the regularized upper incomplete gamma function, 1 - gammainc(a, x).

    It has a small relative error also where it is tiny; NaN for negative operands. The derivative
    by a is that of its approximation, of any order.

    Parameters
    ----------
    a
        The parameter, from 0 on.
    x
        Where the function is evaluated, from 0 on.

    Returns
    -------
    TensorOp
        The values, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(weft.special.gammaincc)(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([0.1573, 0.7358])
    """
    return build(GammaincOp, a, x, upper=True)


def i0(x: TensorLike) -> TensorOp:
    """Return the modified Bessel function of the first kind of order 0.

    Examples
    --------
    >>> weft.jit(weft.special.i0)(np.array([0.0, 1.0, 10.0]))
    array([1.0000e+00, 1.2661e+00, 2.8157e+03])
    """
    return build(ModifiedFirstKindOp, x, nu=0, scaled=False)


def i0e(x: TensorLike) -> TensorOp:
    """Return `i0` times exp(-abs(x)), where the function itself would overflow.

    Examples
    --------
    >>> weft.jit(weft.special.i0e)(np.array([0.0, 1.0, 1000.0]))
    array([1.    , 0.4658, 0.0126])
    """
    return build(ModifiedFirstKindOp, x, nu=0, scaled=True)


def i1(x: TensorLike) -> TensorOp:
    """Return the modified Bessel function of the first kind of order 1.

    Examples
    --------
    >>> weft.jit(weft.special.i1)(np.array([0.0, 1.0, 10.0]))
    array([0.0000e+00, 5.6516e-01, 2.6710e+03])
    """
    return build(ModifiedFirstKindOp, x, nu=1, scaled=False)


def i1e(x: TensorLike) -> TensorOp:
    """Return `i1` times exp(-abs(x)), where the function itself would overflow.

    Examples
    --------
    >>> weft.jit(weft.special.i1e)(np.array([0.0, 1.0, 1000.0]))
    array([0.    , 0.2079, 0.0126])
    """
    return build(ModifiedFirstKindOp, x, nu=1, scaled=True)


def j0(x: TensorLike) -> TensorOp:
    """Return the Bessel function of the first kind of order 0.

    Its error is a few units of the last place of its amplitude, sqrt(2 / πx), also near zeros.

    Examples
    --------
    >>> weft.jit(weft.special.j0)(np.array([0.0, 1.0, 10.0]))
    array([ 1.    ,  0.7652, -0.2459])
    """
    return build(FirstKindOp, x, nu=0)


def j1(x: TensorLike) -> TensorOp:
    """Return the Bessel function of the first kind of order 1.

    Its error is a few units of the last place of its amplitude, sqrt(2 / πx), also near zeros.

    Examples
    --------
    >>> weft.jit(weft.special.j1)(np.array([0.0, 1.0, 10.0]))
    array([0.    , 0.4401, 0.0435])
    """
    return build(FirstKindOp, x, nu=1)


def k0(x: TensorLike) -> TensorOp:
    """Return the modified Bessel function of the second kind of order 0.

    It is infinite at 0, and NaN below.

    Examples
    --------
    >>> weft.jit(weft.special.k0)(np.array([0.0, 1.0, 10.0]))
    array([       inf, 4.2102e-01, 1.7780e-05])
    """
    return build(ModifiedSecondKindOp, x, nu=0, scaled=False)


def k0e(x: TensorLike) -> TensorOp:
    """Return `k0` times exp(x), where the function itself would be 0.

    It is infinite at 0, and NaN below.

    Examples
    --------
    >>> weft.jit(weft.special.k0e)(np.array([0.0, 1.0, 1000.0]))
    array([   inf, 1.1445, 0.0396])
    """
    return build(ModifiedSecondKindOp, x, nu=0, scaled=True)


def k1(x: TensorLike) -> TensorOp:
    """Return the modified Bessel function of the second kind of order 1.

    It is infinite at 0, and NaN below.

    Examples
    --------
    >>> weft.jit(weft.special.k1)(np.array([0.0, 1.0, 10.0]))
    array([       inf, 6.0191e-01, 1.8649e-05])
    """
    return build(ModifiedSecondKindOp, x, nu=1, scaled=False)


def k1e(x: TensorLike) -> TensorOp:
    """Return `k1` times exp(x), where the function itself would be 0.

    It is infinite at 0, and NaN below.

    Examples
    --------
    >>> weft.jit(weft.special.k1e)(np.array([0.0, 1.0, 1000.0]))
    array([   inf, 1.6362, 0.0396])
    """
    return build(ModifiedSecondKindOp, x, nu=1, scaled=True)


def lambertw(x: TensorLike, k: SupportsIndex = 0) -> TensorOp:
    """Return Lambert's W, the solution w of w exp(w) = x, on a real branch.

    Parameters
    ----------
    x
        The operand. The result is NaN below -1 / e, and on the branch -1 also above 0.
    k
        The branch: 0 has the solutions from -1 up, -1 those from -1 down.

    Returns
    -------
    TensorOp
        The solutions, real, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If k is another branch: those are complex.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(weft.special.lambertw)(np.array([0.0, 1.0, np.e]))
    array([0.    , 0.5671, 1.    ])
    >>> weft.jit(lambda x: weft.special.lambertw(x, -1))(np.array([-0.1]))
    array([-3.5772])
    """
    branch = checked_integer("lambertw", "the branch k", k, low=-1)
    if branch > 0:
        problem = f"the branch k must be 0 or -1, not {branch}: the others are complex"
        raise ArgumentError(explain("lambertw", problem, (as_op(x),)))
    return build(LambertwOp, x, branch=branch)


def log_ndtr(x: TensorLike) -> TensorOp:
    """Return the logarithm of `ndtr`, finite also where that is 0.

    Examples
    --------
    >>> weft.jit(weft.special.log_ndtr)(np.array([-100.0, 0.0, 10.0]))
    array([-5.0055e+03, -6.9315e-01, -7.6199e-24])
    """
    return build(LogNdtrOp, x)


def ndtr(x: TensorLike) -> TensorOp:
    """Return the distribution function of the standard normal distribution.

    It has a small relative error also where it is tiny.

    Examples
    --------
    >>> weft.jit(weft.special.ndtr)(np.array([-10.0, 0.0, 1.0]))
    array([7.6199e-24, 5.0000e-01, 8.4134e-01])
    """
    return build(NdtrOp, x)


def ndtri(x: TensorLike) -> TensorOp:
    """Return the quantiles of the standard normal distribution, the inverse of `ndtr`.

    They are infinite at 0 and 1, and NaN outside.

    Examples
    --------
    >>> weft.jit(weft.special.ndtri)(np.array([1e-20, 0.5, 0.975]))
    array([-9.2623,  0.    ,  1.96  ])
    """
    return build(NdtriOp, x)


def polygamma(n: SupportsIndex, x: TensorLike) -> TensorOp:
    """Return the derivative of order n of `digamma`; infinite at 0, -1, -2 and so on if n > 0.

    Parameters
    ----------
    n
        The order, an integer from 0 to 170.
    x
        Where it is evaluated.

    Returns
    -------
    TensorOp
        The values, in the dtype of x. Integers give float32.

    Raises
    ------
    ArgumentError
        If n is not an integer from 0 to 170.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> weft.jit(lambda x: weft.special.polygamma(1, x))(np.array([0.5, 1.0, 10.0]))
    array([4.9348, 1.6449, 0.1052])
    """
    order = checked_integer("polygamma", "the order n", n, low=0)
    if order > _HIGHEST_ORDER:
        problem = f"the order n must be at most {_HIGHEST_ORDER}, not {order}"
        raise ArgumentError(explain("polygamma", problem, (as_op(x),)))
    return build(PolygammaOp, x, n=order) if order else digamma(x)


def spherical_bessel_j0(x: TensorLike) -> TensorOp:
    """Return sin(x) / x, which is 1 at 0: the spherical Bessel function of order 0.

    Examples
    --------
    >>> weft.jit(weft.special.spherical_bessel_j0)(np.array([0.0, 1.0, 10.0]))
    array([ 1.    ,  0.8415, -0.0544])
    """
    (given,) = align(FloatOp, x)
    x = wide(given)
    angle = where(equal(absolute(x), math.inf), 0, x)
    value = over_angle(sin(angle), angle)
    return cast(where(equal(angle, x), value, 0 * value), given.dtype)


def y0(x: TensorLike) -> TensorOp:
    """Return the Bessel function of the second kind of order 0.

    It is minus infinity at 0, and NaN below. Its error is that of `j0`.

    Examples
    --------
    >>> weft.jit(weft.special.y0)(np.array([0.0, 1.0, 10.0]))
    array([  -inf, 0.0883, 0.0557])
    """
    return build(SecondKindOp, x, nu=0)


def y1(x: TensorLike) -> TensorOp:
    """Return the Bessel function of the second kind of order 1.

    It is minus infinity at 0, and NaN below. Its error is that of `j1`.

    Examples
    --------
    >>> weft.jit(weft.special.y1)(np.array([0.0, 1.0, 10.0]))
    array([   -inf, -0.7812,  0.249 ])
    """
    return build(SecondKindOp, x, nu=1)


def zeta(x: TensorLike, q: TensorLike = 1) -> TensorOp:
    """Return Hurwitz's zeta function, the sum of (k + q)^-x over k from 0 on.

    Parameters
    ----------
    x
        The exponent. The sum is infinite for 1, and NaN below.
    q
        The first base: with 1 it is Riemann's zeta function. The sum is infinite for 0, and NaN
        below.

    Returns
    -------
    TensorOp
        The values, in the promoted dtype of the operands, which are broadcast. Integers give
        float32.

    Raises
    ------
    AxesError
        If the operands do not broadcast.
    DTypeError
        If an operand is complex.

    Examples
    --------
    >>> weft.jit(weft.special.zeta)(np.array([1.0, 2.0, 10.0]))
    array([   inf, 1.6449, 1.001 ])
    """
    return build(ZetaOp, x, q)
