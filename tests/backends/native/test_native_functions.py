"""Vector functions of native programs, compared with double precision."""

from __future__ import annotations

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
