"""Vector functions of native programs, compared with double precision."""

from __future__ import annotations

import pytest
from check_functions import largest_error

BOUNDS = {
    "exp": 1.1, "exp2": 1.1, "expm1": 3.0, "log": 1.0, "log1p": 3.0, "sin": 2.0, "cos": 2.0,
    "tanh": 5.0,
}  # fmt: skip
"""The bounds in docs/native.md, in units in the last place."""


@pytest.mark.parametrize("name", BOUNDS)
def test_functions_are_as_exact_as_documented(has_compiler: None, name: str) -> None:
    assert largest_error(name, step=331)[0] <= BOUNDS[name]
