"""Distributions that reject proposals: gamma, Poisson, binomial and von Mises.

A loop proposes a number for each element until all elements have accepted one. Number `round` of
the proposals is a function of the key and of `round` alone, so a sample does not depend on how long
others take. Proposals are made and compared in floats. So on another backend, whose logarithm
differs in its last digit, a proposal that is that close to its bound may be decided otherwise: the
sample is then another one of the same distribution. Of 10⁶ samples in float32 that is about one.

Elements whose parameters are none of the distribution take part with others, and are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from weft.errors import DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType
from weft.ir.graph import Graph
from weft.ir.op import explain
from weft.ir.storage import ParameterOp, constant, placeholder
from weft.ir.tensor import TensorOp
from weft.ops.control.calls import while_loop
from weft.ops.control.effects import stop_gradient
from weft.ops.pointwise.comparison import (
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    where,
)
from weft.ops.pointwise.elementwise import absolute, cast, square
from weft.ops.pointwise.math import atan, cos, exp, log, log1p, sin, sqrt
from weft.ops.pointwise.polynomials import polynomial
from weft.ops.pointwise.rounding import floor
from weft.ops.random.implicit import LogGammaSampleOp
from weft.ops.random.philox import SAMPLES, WORDS, BitSource, RandomBitsOp, middles
from weft.ops.reductions.reduction import any
from weft.ops.shape.movement import broadcast, cast_axes

Step = Callable[..., Sequence[TensorOp]]
"""A function from carried values, and others that stay, to the next ones that are carried."""


def _while_any(step: Step, carried: Sequence[TensorOp], fixed: Sequence[TensorOp]) -> TensorOp:
    """Iterate while any element of the first carried value is True; return the second one."""
    operands = (*carried, *fixed)
    inputs = [
        ParameterOp(source=placeholder(op.axes, op.dtype), target_axes=op.axes) for op in operands
    ]
    condition = Graph(inputs, [any(inputs[0], inputs[0].axes)], name="some_are_left")
    body = Graph(inputs, step(*inputs), name="step")
    return stop_gradient(while_loop(condition, body, *operands)[1])


def _first_accepted(
    draw: BitSource,
    count: int,
    propose: Callable[..., tuple[TensorOp, TensorOp]],
    parameters: Sequence[TensorOp],
) -> TensorOp:
    """Return the first proposal that is accepted, for each element of the parameters.

    Proposals are made of `count` uniform numbers for each element, and the parameters.
    """
    axes, dtype = parameters[0].axes, parameters[0].dtype

    def step(
        pending: TensorOp, found: TensorOp, turn: TensorOp, key: TensorOp, *others: TensorOp
    ) -> Sequence[TensorOp]:
        words = RandomBitsOp(key, turn, target_axes=make_axes((count, axes.size)), domain=SAMPLES)
        numbers = [cast_axes(middles(words[row], dtype), axes) for row in range(count)]
        value, accepted = propose(*numbers, *others)
        return pending & ~accepted, where(pending, value, found), turn + 1

    turn = constant(0, dtype=dtypes.uint32)
    carried = (_filled(True, axes, dtypes.bool_), _filled(0.0, axes, dtype), turn)
    return _while_any(step, carried, (draw(make_axes(WORDS)), *parameters))


def _filled(value: float, axes: Axes, dtype: DType) -> TensorOp:
    return broadcast(constant(value, dtype=dtype), axes)


def sample_gamma(draw: BitSource, alpha: TensorOp, is_log: bool) -> TensorOp:
    """Return samples of gamma distributions of scale 1, or their logarithms.

    Marsaglia, Tsang: A simple method for generating gamma variables, 2000. At least 95 % of the
    proposals are accepted. A sample for alpha below 1 is one for alpha + 1 times a power of a
    uniform number.
    """
    valid = greater(alpha, 0.0) & less(alpha, math.inf)
    shape = where(valid, alpha, 1.0)
    is_small = less(shape, 1.0)
    d = stop_gradient(where(is_small, shape + 1.0, shape) - 1 / 3)
    x = _first_accepted(draw, 3, _propose_gamma, (d, 1 / sqrt(9.0 * d)))
    # The power of a small alpha underflows, its logarithm does not.
    power = log(middles(draw(alpha.axes), alpha.dtype)) / shape
    boost = stop_gradient(maximum(where(is_small, power, 0.0), -1e38))
    moved = LogGammaSampleOp(log(d) + 3.0 * log1p(x) + boost, shape)
    rest = stop_gradient(alpha)
    if is_log:
        return where(valid, moved, log(rest))
    sample = d * (1.0 + x) * square(1.0 + x) * exp(boost)
    sample = sample * exp(moved - stop_gradient(moved))
    return where(valid, sample, where(less(rest, 0.0), math.nan, rest))


def _propose_gamma(
    u: TensorOp, share: TensorOp, turn: TensorOp, d: TensorOp, c: TensorOp
) -> tuple[TensorOp, TensorOp]:
    """Return x with the sample d (1 + x)³."""
    normal = sqrt(log(share) * -2.0) * cos(turn * (2 * math.pi))
    x = c * normal
    inside = greater(x, -1.0)
    t = where(inside, x, 0.0)
    # normal² / 2 + d (1 - v + log v) for v = (1 + t)³, of which 9 d t² = normal² cancels.
    far = d * (3.0 * log1p(t) - t * (3.0 + t * (3.0 + t))) + 0.5 * square(normal)
    is_near = less(absolute(t), 0.1)
    near = d * square(square(where(is_near, t, 0.0))) * polynomial(t, _BEYOND_NORMAL)
    return x, inside & less(log(u), where(is_near, near, far))


_BEYOND_NORMAL = tuple(3 * (-1) ** (n + 1) / n for n in range(12, 3, -1))
"""Coefficients of 3 log(1 + t) from t⁴ on, the highest first."""


SMALL_MEAN = 10.0
"""The mean from which counts are drawn by rejection, below it by inversion."""


def sample_poisson(draw: BitSource, mean: TensorOp) -> TensorOp:
    """Return samples of Poisson distributions as floats, NaN for means that are not finite.

    Hörmann: The transformed rejection method for generating Poisson random variables (PTRS), 1993.
    """
    valid = greater_equal(mean, 0.0) & less(mean, math.inf)
    mean = stop_gradient(where(valid, mean, 1.0))
    few = where(less(mean, SMALL_MEAN), mean, 0.0)
    small = _by_inversion(draw, exp(-few), few, few, few * 0.0)
    many = maximum(mean, SMALL_MEAN)
    b = 0.931 + 2.53 * sqrt(many)
    fits = (b, -0.059 + 0.02483 * b, many + 0.43, 0.9277 - 3.6224 / (b - 2.0))
    ratio = log(1.1239 + 1.1328 / (b - 3.4))
    large = _first_accepted(draw, 2, _propose_poisson, (*fits, ratio, many))
    return where(valid, where(less(mean, SMALL_MEAN), small, large), math.nan)


def sample_binomial(draw: BitSource, n: TensorOp, p: TensorOp) -> TensorOp:
    """Return samples of binomial distributions as floats, NaN for parameters that are none.

    Hörmann: The generation of binomial random variates (BTRS), 1993.
    """
    valid = greater_equal(n, 0.0) & less(n, math.inf) & equal(n, floor(n))
    valid = valid & greater_equal(p, 0.0) & less_equal(p, 1.0)
    n, p = (stop_gradient(where(valid, x, 0.0)) for x in (n, p))
    is_mirrored = greater(p, 0.5)
    p = where(is_mirrored, 1.0 - p, p)
    is_small = less(n * p, SMALL_MEAN)
    rare, odds = where(is_small, p, 0.0), where(is_small, p / (1.0 - p), 0.0)
    small = _by_inversion(draw, exp(n * log1p(-rare)), n * rare, n * odds, odds)
    # Others take part with a mean of 10.
    n_many, q = where(is_small, 2 * SMALL_MEAN, n), where(is_small, 0.5, p)
    mean, other = n_many * q, n_many * (1.0 - q)
    deviation = sqrt(mean * (1.0 - q))
    b = 1.15 + 2.53 * deviation
    fits = (b, -0.0873 + 0.0248 * b + 0.01 * q, mean + 0.5, 0.92 - 4.2 / b)
    mode = floor((n_many + 1.0) * q)
    ratio = log((2.83 + 5.1 / b) * deviation) + _log_binomial(mode, n_many, mean, other)
    large = _first_accepted(draw, 2, _propose_binomial, (*fits, ratio, n_many, mean, other))
    # Rounded probabilities may add up to less than 1: then one more than all have succeeded.
    count = where(is_small, minimum(small, n), large)
    return where(valid, where(is_mirrored, n - count, count), math.nan)


def _by_inversion(
    draw: BitSource, none: TensorOp, mean: TensorOp, rise: TensorOp, fall: TensorOp
) -> TensorOp:
    """Return counts by adding probabilities up to a uniform number.

    That of k + 1 is that of k times ``(rise - fall * k) / (k + 1)``. The sum ends as well where
    the probabilities are below the resolution of the number.
    """

    def step(
        pending: TensorOp, count: TensorOp, chance: TensorOp, below: TensorOp,
        u: TensorOp, mean: TensorOp, rise: TensorOp, fall: TensorOp,
    ) -> Sequence[TensorOp]:  # fmt: skip
        chance = chance * (rise - fall * count) / (count + 1.0)
        count = where(pending, count + 1.0, count)
        below = below + chance
        going = greater(u, below) & (less(count, mean) | greater(chance, 2.0**-26))
        return pending & going, count, chance, below

    u = middles(draw(none.axes), none.dtype)
    carried = (greater(u, none), _filled(0.0, none.axes, none.dtype), none, none)
    return _while_any(step, carried, (u, mean, rise, fall))


def _transformed(
    u: TensorOp, v: TensorOp, b: TensorOp, a: TensorOp, center: TensorOp, squeeze: TensorOp
) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return a count, whether it is accepted at once, and the density to compare with."""
    middle = u - 0.5
    edge = 0.5 - absolute(middle)
    count = floor((2.0 * a / edge + b) * middle + center)
    at_once = greater_equal(edge, 0.07) & less_equal(v, squeeze)
    return count, at_once, log(v) - log(a / square(edge) + b)


def _propose_poisson(
    u: TensorOp, v: TensorOp, b: TensorOp, a: TensorOp, center: TensorOp, squeeze: TensorOp,
    ratio: TensorOp, mean: TensorOp,
) -> tuple[TensorOp, TensorOp]:  # fmt: skip
    count, at_once, height = _transformed(u, v, b, a, center, squeeze)
    inside = greater_equal(count, 0.0)
    k = maximum(count, 0.0)
    density = -_deviance(k, mean) - _log_factorial_rest(k)
    return count, inside & (at_once | less_equal(height + ratio, density))


def _propose_binomial(
    u: TensorOp, v: TensorOp, b: TensorOp, a: TensorOp, center: TensorOp, squeeze: TensorOp,
    ratio: TensorOp, n: TensorOp, mean: TensorOp, other: TensorOp,
) -> tuple[TensorOp, TensorOp]:  # fmt: skip
    count, at_once, height = _transformed(u, v, b, a, center, squeeze)
    inside = greater_equal(count, 0.0) & less_equal(count, n)
    density = _log_binomial(minimum(maximum(count, 0.0), n), n, mean, other)
    return count, inside & (at_once | less_equal(height + ratio, density))


def _log_binomial(k: TensorOp, n: TensorOp, mean: TensorOp, other: TensorOp) -> TensorOp:
    """Return the logarithm of the binomial probability of k, with the means of k and n - k.

    Loader: Fast and accurate computation of binomial probabilities, 2000.
    """
    rest = _log_factorial_rest(n) - _log_factorial_rest(k) - _log_factorial_rest(n - k)
    return rest - _deviance(k, mean) - _deviance(n - k, other)


_STIELTJES = (1 / 12, 1 / 30, 53 / 210, 195 / 371, 22999 / 22737, 29944523 / 19733142)


def _log_factorial_rest(k: TensorOp) -> TensorOp:
    """Return log k! - k log k + k, with Stirling's series as a continued fraction of Stieltjes."""
    positive = maximum(k, 1.0)
    series = positive
    for coefficient in reversed(_STIELTJES[1:]):
        series = positive + coefficient / series
    rest = 0.5 * log(positive * (2 * math.pi)) + _STIELTJES[0] / series
    return where(less(k, 1.0), 0.0, rest)


def _deviance(k: TensorOp, mean: TensorOp) -> TensorOp:
    """Return k log(k / mean) + mean - k, by its series where the difference loses digits."""
    difference = k - mean
    v = difference / (k + mean)
    is_near = less(absolute(v), 0.1)
    near = where(is_near, v, 0.0)
    terms = polynomial(square(near), tuple(1 / (2 * n + 3) for n in reversed(range(7))))
    series = difference * near + 2.0 * k * near * square(near) * terms
    positive = where(greater(k, 0.0), k, mean)
    return where(is_near, series, k * log(positive / mean) - difference)


def as_counts(function: str, sample: TensorOp, dtype: DType) -> TensorOp:
    """Return counts in a dtype of floats, or of integers, where NaN is -1.

    Counts beyond the integers are the largest that is exact in both dtypes.
    """
    if dtypes.is_float(dtype):
        return cast(sample, dtype)
    if dtype.kind != "i":
        problem = f"counts are signed integers or floats, not {dtype}"
        raise DTypeError(explain(function, problem, ()))
    digits = 24 if sample.dtype == dtypes.float32 else 53
    width = 8 * dtype.itemsize - 1
    largest = float(2**width - 2 ** max(width - digits, 0))
    return cast(where(equal(sample, sample), minimum(sample, largest), -1.0), dtype)


def sample_von_mises(draw: BitSource, kappa: TensorOp) -> TensorOp:
    """Return angles of von Mises distributions around 0.

    Best, Fisher: Efficient simulation of the von Mises distribution, 1979; at least 65 % of the
    proposals are accepted. An angle is proposed as 2 atan(s x), with x of a Cauchy distribution.
    All quantities are positive, so none loses digits for large and small κ.
    """
    valid = greater_equal(kappa, 0.0) & less(kappa, math.inf)
    kappa = stop_gradient(where(valid, kappa, 1.0))
    large = maximum(kappa, 1.0)
    root = where(
        greater(kappa, 1.0),
        2.0 * large * sqrt(1.0 + square(0.5 / large)),
        sqrt(1.0 + square(2.0 * minimum(kappa, 1.0))),
    )
    # With τ = 1 + root this is τ - 2κ.
    least = 1.0 + 1.0 / (root + 2.0 * kappa)
    shrink = least / (1.0 + root + 2.0 * kappa)
    angle = _first_accepted(draw, 2, _propose_angle, (sqrt(shrink), 0.5 * least, kappa * shrink))
    return where(valid, angle, math.nan)


def _propose_angle(
    u: TensorOp, v: TensorOp, s: TensorOp, least: TensorOp, spread: TensorOp
) -> tuple[TensorOp, TensorOp]:
    x = standard_cauchy(u)
    half = s * x
    c = least + 2.0 * spread * square(x) / (1.0 + square(half))
    return 2.0 * atan(half), greater_equal(log(c / v) + 1.0 - c, 0.0)


def standard_cauchy(u: TensorOp) -> TensorOp:
    """Return the quantile of the Cauchy distribution at u."""
    tail = minimum(u, 1.0 - u) * math.pi
    size = cos(tail) / sin(tail)
    return where(less(u, 0.5), -size, size)
