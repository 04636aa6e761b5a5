"""The error function, its complement and gelu in float32: as exact as their docstrings say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import dtypes
from weft.testing.reference import evaluate
from weft.testing.test_decompositions import decomposed

LEAST = 2.0**-149
"""The smallest float32 above 0."""


def exact_gelu(x: float):
    return x * 0.5 * math.erfc(-x * math.sqrt(0.5))


EXACT = {"erf": math.erf, "erfc": math.erfc, "gelu": exact_gelu}

ACCURACY = [
    ("erf", -1e38, 1e38, 4),
    ("erf", -0.5, 0.5, 4),
    ("erf", -5.0, 5.0, 4),
    ("erf", -1e-30, 1e-30, 4),
    ("erf", -1e-40, 1e-40, 4),
    ("erfc", -1e38, 1e38, 10),
    ("erfc", -0.5, 0.5, 10),
    ("erfc", 0.0, 4.0, 10),
    ("erfc", 4.0, 9.0, 10),
    ("erfc", 9.0, 10.5, 10),
    ("gelu", -1.0, 1.0, 6),
    ("gelu", -1e-30, 1e-30, 6),
    ("gelu", 0.0, 15.0, 6),
    ("gelu", 0.0, 1e38, 6),
    ("gelu", -4.0, -1.0, 12),
    ("gelu", -6.0, -4.0, 30),
    ("gelu", -14.5, -6.0, 100),
    ("gelu", -1e38, -14.5, 0.5),
]
"""A function, a range, and the units in the last place by which it may be off there."""


@pytest.fixture(params=["backend", "primitives"])
def compute(request: Any, transformer: weft.Transformer):
    """Return a function that computes an op of one array, whole or as primitives alone."""

    def run(name: str, array: np.ndarray):
        x = weft.placeholder(array.shape, array.dtype)
        y = getattr(weft, name)(x)
        if request.param == "primitives":
            (value,), _ = evaluate(decomposed(weft.capture([y], [x])), [array])
            return value
        return transformer.computation(y, x)(array)

    return run


def exact(name: str, x: np.ndarray):
    return np.array([EXACT[name](value) for value in x.tolist()])


TANH = {"numpy": 0, "opencl": 2, "cupy": 2, "native": 2}
"""By how many units more a backend's tanh is off, of which erf is made."""


@pytest.mark.parametrize(("name", "low", "high", "ulps"), ACCURACY)
def test_float32_is_as_exact_as_it_says(
    compute: Callable[..., Any], backend: str, name: str, low: float, high: float, ulps: float
):
    ulps += TANH.get(backend, 0) if name == "erf" else 0
    x = np.linspace(low, high, 5001).astype(np.float32)
    expected = exact(name, x)
    found = compute(name, x)
    assert found.dtype == np.float32
    unit = np.maximum(np.abs(np.spacing(expected.astype(np.float32))), LEAST)
    errors = np.abs(found.astype(np.float64) - expected) / unit
    worst = int(errors.argmax())
    assert errors[worst] <= ulps, f"{errors[worst]:.1f} ulps at {x[worst]!r}"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", EXACT)
def test_16_bits_are_computed_in_float32(
    compute: Callable[..., Any], transformer: weft.Transformer, name: str, dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = np.linspace(-9, 9, 1001).astype(dtypes.as_dtype(dtype))
    wide = compute(name, x.astype(np.float32)).astype(x.dtype)
    assert (compute(name, x) == wide).all()


@pytest.mark.parametrize("name", EXACT)
def test_float64_is_exact(compute: Callable[..., Any], name: str):
    x = np.concatenate([np.linspace(-9, 9, 1001), [1e-300, -1e-300, 1e300]])
    np.testing.assert_allclose(compute(name, x), exact(name, x), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [("erf", [0.0, -0.0, 1, -1, np.nan]), ("erfc", [1, 1, 0, 2, np.nan]),
     ("gelu", [0, 0, np.inf, 0, np.nan])],
)  # fmt: skip
def test_special_values(compute: Callable[..., Any], name: str, expected: list[Any], dtype: str):
    found = compute(name, np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype))
    np.testing.assert_array_equal(found, expected)
    if name == "erf":
        assert np.signbit(found[:4]).tolist() == [False, True, False, True]


@pytest.mark.parametrize("name", EXACT)
def test_gradients_are_those_of_the_exact_function(transformer: weft.Transformer, name: str):
    x = weft.placeholder((5,))
    at = np.array([-4, -0.7, 0, 0.7, 4], np.float32)
    first = weft.deriv(weft.sum(getattr(weft, name)(x)), x)
    second = weft.deriv(weft.sum(first), x)
    step = 1e-4
    wide = at.astype(np.float64)
    above, here, below = (exact(name, wide + shift) for shift in (step, 0, -step))
    slope, bend = transformer.computation([first, second], x)(at)
    np.testing.assert_allclose(slope, (above - below) / (2 * step), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bend, (above - 2 * here + below) / step**2, rtol=1e-4, atol=1e-6)


def test_a_dense_layer_with_gelu_is_one_short_kernel():
    """The formula for float64 alone has more than 100 values."""
    x, w, b = (weft.placeholder(shape) for shape in ((512, 256), (256, 1024), (1024,)))
    y = weft.gelu(weft.matmul(x, w) + b)
    account = weft.make_transformer("numpy").computation(y, x, w, b).fusion_statistics
    assert (account.steps, account.kernels) == (1, 1)
    assert account.ops <= 25
