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
    "float16": {"large": 6e3, "small": 1e-3},
    "bfloat16": {"largest": 2.8e37, "large": 1e30, "small": 1e-30, "smallest": 2e-38},
    "float32": {"largest": 2.9e37, "large": 1e30, "small": 1e-30, "smallest": 2e-38},
    "float64": {"largest": 1.5e307, "large": 1e300, "small": 1e-300, "smallest": 4e-308},
}
VALUES = (3.0, -1.0, 4.0, 1.5, -5.0, 9.0)


class Row(NamedTuple):
    """A function of a vector, and what it is for a list of numbers."""

    build: Callable[[Any], Any]
    exact: Callable[[Any], Any]


def slope(function: Callable[..., Any], by_x: bool = False):
    """Return the function's gradient, for an adjoint of 1, or for one as large as x."""

    def build(x: weft.TensorOp):
        y = function(x)
        return weft.deriv(y, x, error=x if by_x else weft.ones_like(y))

    return build


def deviations(v: list[Any]):
    mean = sum(v) / len(v)
    return [x - mean for x in v]


def deviation(v: list[Any], correction: int = 0):
    return mp.norm(deviations(v)) / mp.sqrt(len(v) - correction)


def power_mean(v: Any, p: Any):
    return sum(abs(x) ** p for x in v) ** mp.mpf(1 / p)


def each(function: Callable[..., Any]):
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


SHARES = {
    "of one sign": (0.7, 0.8, 0.6, 0.64, 0.52, 0.74, 0.53),
    "of both signs": (-0.99, 0.97, 0.93, 0.9, 1e-9, -0.6, 0.99),
    "almost equal": (0.98, 0.98, 0.97, 0.98, 0.98, 0.98, 0.98),
}


def judge(rows: dict[str, Any], found: tuple[Any, ...], values: np.ndarray):
    """Compare results that are in range with those of mpmath."""
    limits = ml_dtypes.finfo(values.dtype)
    numbers = [mp.mpf(float(value)) for value in values]
    for (name, row), got in zip(rows.items(), found, strict=True):
        exact = row.exact(numbers)
        for one, want in zip(
            np.ravel(got), exact if isinstance(exact, list) else [exact], strict=True
        ):
            if abs(want) > float(limits.max):
                continue
            room = 16 * float(limits.eps) * abs(want) + 4 * float(limits.smallest_subnormal)
            assert abs(mp.mpf(float(one)) - want) <= room, (name, float(one), float(want))


@pytest.mark.parametrize("end", ["largest", "large", "small", "smallest"])
@pytest.mark.parametrize("dtype", SCALES)
def test_results_in_range_are_exact_near_the_ends_of_a_dtype(
    transformer: weft.Transformer, dtype: str, end: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    if end not in SCALES[dtype]:
        pytest.skip(f"{dtype} is computed in float32")
    scale = SCALES[dtype][end]
    values = (np.array(VALUES) * scale).astype(dtypes.as_dtype(dtype))
    x = weft.placeholder(values.shape, dtype)
    found = transformer.computation([row.build(x) for row in ROWS.values()], x)(values)
    judge(ROWS, found, values)


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("dtype", SCALES)
def test_standard_deviations_of_the_largest_and_smallest_numbers(
    transformer: weft.Transformer, dtype: str, shares: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    limits = ml_dtypes.finfo(dtypes.as_dtype(dtype))
    rows = {name: row for name, row in ROWS.items() if "std" in name}
    x = weft.placeholder((7,), dtype)
    computation = transformer.computation([row.build(x) for row in rows.values()], x)
    for scale in (float(limits.max), 1.0, 64 * float(limits.smallest_normal)):
        values = (np.array(SHARES[shares]) * scale).astype(dtypes.as_dtype(dtype))
        judge(rows, computation(values), values)


def test_the_standard_deviation_of_equal_numbers_is_0(transformer: weft.Transformer):
    x = weft.placeholder((1001,))
    results = [weft.std(x), weft.deriv(weft.std(x), x)]
    computation = transformer.computation(results, x)
    for value in (0.1, 3e38, -1e-38, 0.0):
        deviation, gradient = computation(np.full(1001, value, "f4"))
        assert deviation == 0
        assert not np.any(gradient)


@pytest.mark.parametrize("function", ["atan", "atanh", "asinh", "asin"])
def test_slopes_of_complex_functions_do_not_overflow(transformer: weft.Transformer, function: str):
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
