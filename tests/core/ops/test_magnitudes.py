"""Results in range are found where squares, sums of powers or quotients on the way are not.

Data lie near both ends of each dtype. mpmath is the judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import mpmath as mp
import numpy as np
import pytest

import weft
from weft.ir import dtypes

mp.mp.prec = 200

SCALES = {
    "float16": (6e3, 1e-3),
    "bfloat16": (1e30, 1e-30),
    "float32": (1e30, 1e-30),
    "float64": (1e300, 1e-300),
}
VALUES = (3.0, -1.0, 4.0, 1.5, -5.0, 9.0)


class Row(NamedTuple):
    """A function of a vector, and what it is for a list of numbers."""

    build: Callable[[Any], Any]
    exact: Callable[[Any], Any]


def slope(function, by_x=False):
    """Return the function's gradient, for an adjoint of 1, or for one as large as x."""

    def build(x):
        y = function(x)
        return weft.deriv(y, x, error=x if by_x else weft.ones_like(y))

    return build


def deviations(v):
    mean = sum(v) / len(v)
    return [x - mean for x in v]


def deviation(v, correction=0):
    return mp.norm(deviations(v)) / mp.sqrt(len(v) - correction)


def power_mean(v, p):
    return sum(abs(x) ** p for x in v) ** mp.mpf(1 / p)


def each(function):
    return lambda v: [function(x) for x in v]


ROWS = {
    "norm": Row(weft.norm, mp.norm),
    "norm of order 3": Row(lambda x: weft.norm(x, 3), lambda v: mp.norm(v, 3)),
    "slope of norm": Row(slope(weft.norm), lambda v: [x / mp.norm(v) for x in v]),
    "L2_norm": Row(weft.L2_norm, mp.norm),
    "normalize": Row(
        lambda x: weft.normalize(x, epsilon=0.0), lambda v: [x / mp.norm(v) for x in v]
    ),
    "cosine_similarity": Row(
        lambda x: weft.cosine_similarity(x, weft.flip(x, 0), epsilon=0.0),
        lambda v: mp.fdot(v, v[::-1]) / mp.fdot(v, v),
    ),
    "clip_by_norm": Row(
        lambda x: weft.clip_by_norm(x, 1.0), lambda v: [x / max(1, mp.norm(v)) for x in v]
    ),
    "std": Row(weft.std, deviation),
    "unbiased std": Row(lambda x: weft.std(x, correction=1), lambda v: deviation(v, 1)),
    "slope of std": Row(
        slope(weft.std), lambda v: [d / deviation(v) / len(v) for d in deviations(v)]
    ),
    "logsumexp": Row(weft.logsumexp, lambda v: max(v) + mp.log(sum(mp.exp(x - max(v)) for x in v))),
    "hypot": Row(lambda x: weft.hypot(x, x), each(lambda x: abs(x) * mp.sqrt(2))),
    "lp_pool": Row(lambda x: weft.lp_pool(weft.reshape(x, (1, 1, 6)), 2, 6)[0, 0, 0], mp.norm),
    "slope of atan": Row(slope(weft.atan), each(lambda x: 1 / (1 + x * x))),
    "slope of asinh": Row(slope(weft.asinh), each(lambda x: 1 / mp.sqrt(1 + x * x))),
    "slope of log2": Row(slope(weft.log2), each(lambda x: 1 / (x * mp.log(2)))),
    "slope of log10": Row(slope(weft.log10), each(lambda x: 1 / (x * mp.log(10)))),
    "slope of reciprocal": Row(slope(weft.reciprocal, True), each(lambda x: -1 / x)),
    "slope of rsqrt": Row(
        lambda x: slope(weft.rsqrt, True)(weft.absolute(x)),
        each(lambda x: -1 / (2 * mp.sqrt(abs(x)))),
    ),
    "gaussian_nll_loss": Row(
        lambda x: weft.gaussian_nll_loss(x, 0.0, weft.absolute(x), epsilon=0, reduction="none"),
        each(lambda x: (mp.log(abs(x)) + abs(x)) / 2),
    ),
}


@pytest.mark.parametrize("end", ["large", "small"])
@pytest.mark.parametrize("dtype", SCALES)
def test_results_in_range_are_exact_near_the_ends_of_a_dtype(transformer, dtype, end):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    scale = SCALES[dtype][end == "small"]
    values = (np.array(VALUES) * scale).astype(dtypes.as_dtype(dtype))
    limits = ml_dtypes.finfo(values.dtype)
    x = weft.placeholder(values.shape, dtype)
    found = transformer.computation([row.build(x) for row in ROWS.values()], x)(values)
    numbers = [mp.mpf(float(value)) for value in values]
    for (name, row), got in zip(ROWS.items(), found, strict=True):
        exact = row.exact(numbers)
        for one, want in zip(
            np.ravel(got), exact if isinstance(exact, list) else [exact], strict=True
        ):
            if abs(want) > float(limits.max):
                continue
            room = 16 * float(limits.eps) * abs(want) + 4 * float(limits.smallest_subnormal)
            assert abs(mp.mpf(float(one)) - want) <= room, (name, float(one), float(want))


@pytest.mark.parametrize("function", ["atan", "atanh", "asinh", "asin"])
def test_slopes_of_complex_functions_do_not_overflow(transformer, function):
    if "complex64" not in transformer.target.dtypes:
        pytest.skip("the backend has no complex numbers")
    exact = {
        "atan": lambda z: 1 / (1 + z * z),
        "atanh": lambda z: 1 / (1 - z * z),
        "asinh": lambda z: 1 / mp.sqrt(1 + z * z),
        "asin": lambda z: 1 / mp.sqrt(1 - z * z),
    }[function]
    values = np.array(
        [3 + 4j, -2 + 1j, 1 - 3j, 0.3 + 0.2j, 1e15 + 2e15j, 3e30 - 1e30j], "complex64"
    )
    x = weft.placeholder(values.shape, "complex64")
    found = transformer.computation(slope(getattr(weft, function))(x), x)(values)
    for z, got in zip(values, found, strict=True):
        want = complex(exact(mp.mpc(complex(z))))
        assert abs(complex(got) - want) <= 1e-5 * abs(want) + 1e-44, (z, got, want)
