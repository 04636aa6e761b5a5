"""Vector functions of native programs, compared with double precision."""

from __future__ import annotations

import pytest
from check_functions import largest_error, largest_error_of_pairs

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
