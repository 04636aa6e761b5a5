"""Vector functions of native programs, compared with double precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from check_functions import SPECIAL, largest_error, largest_error_of_pairs

import weft

BOUNDS = {
    "log": 1.0, "log10": 1.0, "cbrt": 1.0, "exp": 1.1, "exp2": 1.1, "log2": 1.5,
    "acos": 2.0, "cos": 2.0, "cosh": 2.0, "sin": 2.0, "sinh": 2.0,
    "acosh": 3.0, "asin": 3.0, "asinh": 3.0, "atan": 3.0, "atanh": 3.0, "expm1": 3.0, "log1p": 3.0,
    "tan": 3.0, "tanh": 6.0,
}  # fmt: skip
"""The bounds in docs/native.md, in units in the last place."""

POWER_BOUND = 1.5

DOUBLE_BOUNDS = {"cos": 1.0, "exp": 1.0, "expm1": 2.0, "log": 1.0, "log1p": 1.0, "sin": 1.0}
"""The same of float64."""

DOUBLES = (
    0, 5e-324, 1e-310, 2.0**-1022, 1e-20, 2.0**-30, 0.2928932188134524, 0.4142135623730951, 0.5,
    1 - 2.0**-53, 1, 1 + 2.0**-52, 2, 1e10, 2.0**53, 708.5, 709.782712893384, 709.7827128933841,
    744.5, 745.1332191019411, 745.1332191019412, 1e308, np.inf, np.nan,
)  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.needs("compiler")
def test_functions_are_as_exact_as_documented(name: str) -> None:
    assert largest_error(name, step=331)[0] <= BOUNDS[name]


@pytest.mark.needs("compiler")
def test_powers_are_as_exact_as_documented() -> None:
    assert largest_error_of_pairs("pow", rounds=4)[0] <= POWER_BOUND


DIVISORS = (3, -0.1, 255, 2 - 2**-23, 1 + 2**-23, 1e-17, 1e17, 1e-40, 3e38, 0, -0.0, np.inf, np.nan)


@pytest.mark.needs("compiler")
def test_a_division_by_one_number_is_rounded_as_any_other() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    finite = random.standard_normal(200_000, np.float32)
    zeros = np.resize(np.array([0, -0.0], np.float32), 64)
    values = np.concatenate([np.array(SPECIAL, np.float32), bits, finite, zeros])
    x, y = weft.placeholder(values.shape), weft.placeholder(())
    divide = weft.make_transformer("native").computation([x / y, x / np.float32(3)], x, y)
    for divisor in np.array(DIVISORS, np.float32):
        for found, by in zip(divide(values, divisor), (divisor, np.float32(3)), strict=True):
            with np.errstate(all="ignore"):
                wanted = values / by
            has_error = (abs(values) > 1e-30) | ~np.isfinite(wanted)
            np.testing.assert_array_equal(found[has_error], wanted[has_error])
            np.testing.assert_allclose(found, wanted, 1.2e-7, 1.5e-45)
            is_zero = wanted == 0
            np.testing.assert_array_equal(np.signbit(found[is_zero]), np.signbit(wanted[is_zero]))


@pytest.mark.parametrize("name", DOUBLE_BOUNDS)
@pytest.mark.needs("compiler")
def test_functions_of_doubles_are_as_exact_as_documented(name: str) -> None:
    random = np.random.default_rng(0)
    sizes = np.exp(random.uniform(np.log(1e-310), np.log(1e3), 400))
    turns = np.pi / 2 * random.integers(1, 600_000, 200)
    signed = np.resize(np.array([1, -1]), 1600) * np.concatenate(
        [sizes, random.uniform(0, 1, 500), random.uniform(0, 700, 500), turns]
    )
    x = np.concatenate([DOUBLES, np.negative(DOUBLES), signed, 1 + random.normal(size=99) / 1e4])
    found = weft.jit(getattr(weft, name), backend="native")(x)
    with np.errstate(all="ignore"):
        known = getattr(np, name)(x)
    is_finite = np.isfinite(known)
    np.testing.assert_array_equal(found[~is_finite], known[~is_finite])
    np.testing.assert_array_equal(np.signbit(found[is_finite]), np.signbit(known[is_finite]))
    for place, value, close in zip(*(each[is_finite] for each in (x, found, known)), strict=True):
        with mp.workprec(1200):
            exact = getattr(mp, name)(mp.mpf(float(place)))
            error = abs(mp.mpf(float(value)) - exact) / float(np.spacing(abs(close)))
        assert error <= DOUBLE_BOUNDS[name], (place, value)


@pytest.mark.needs("compiler")
def test_vectors_of_doubles_and_bools_compute_as_numpy_does() -> None:
    random = np.random.default_rng(1)
    x = np.resize(np.array([*DOUBLES, *np.negative(DOUBLES)]), 61)
    y, known = np.roll(x, 7), random.uniform(size=61) < 0.5

    def every(x: weft.TensorOp, y: weft.TensorOp, known: weft.TensorOp) -> list[weft.TensorOp]:
        less = weft.less(x, y)
        return [
            less, weft.where(less & ~known, x, y), weft.cast(known, "float64") * x,
            weft.cast(x, "bool") ^ known, weft.maximum(x, y), weft.minimum(x, 1.5), weft.sign(x),
            weft.absolute(x), -x, weft.reciprocal(x), weft.sqrt(x), weft.rsqrt(x), weft.floor(x),
            weft.ceil(x), weft.trunc(x), weft.round(x), weft.isnan(x), weft.copysign(x, y), x - y,
            weft.equal(x, y), weft.where(known, weft.relu(x), 2), weft.square(x),
            weft.sin(x), weft.hypot(x, y), weft.cbrt(x),
        ]  # fmt: skip

    call = weft.jit(every, backend="native")
    with np.errstate(all="ignore"):
        wanted = weft.jit(every, backend="numpy")(x, y, known)
    for found, each in zip(call(x, y, known), wanted, strict=True):
        assert found.dtype == each.dtype
        np.testing.assert_allclose(found, each, 3e-16, 0)
