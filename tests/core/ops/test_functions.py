"""Functions where formulas that look right go wrong: signs of zero, tiny and huge operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.testing.reference import evaluate
from weft.testing.test_decompositions import decomposed

TINY = np.array([1e-300, -1e-300, 1e-20, -1e-20, 1e-9, -1e-9, 1e-4, -1e-4])
HUGE = np.array([1e9, -1e9, 1e154, -1e154, 1e300, -1e300])
ROUNDED = np.array(
    [0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.0, -0.0, 0.49999999999999994, -0.49999999999999994,
     4503599627370497.5, -4503599627370497.5, 9007199254740993.0, 1e300, -1e-300, np.inf, -np.inf]
)  # fmt: skip
ENDS = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, 5e-324, 1.7e308])

NUMPY = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cosh": np.cosh,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "round": np.rint,
    "sinh": np.sinh,
    "trunc": np.trunc,
}

NEAR_ZERO = ("asin", "asinh", "atanh", "expm1", "log1p", "sinh")


def primitives_of(y: weft.TensorOp, placeholders: list[Any], arrays: tuple[Any, ...]):
    (value,), _ = evaluate(decomposed(weft.capture([y], placeholders)), arrays)
    return value


@pytest.fixture(params=["backend", "primitives"])
def compute(request: Any, transformer: weft.Transformer):
    """Return a function that computes an op from arrays, whole or as primitives alone."""

    def run(function: Callable[..., Any], *arrays: Any):
        placeholders = [weft.placeholder(array.shape, array.dtype) for array in arrays]
        y = function(*placeholders)
        if request.param == "primitives":
            return primitives_of(y, placeholders, arrays)
        return transformer.computation(y, *placeholders)(*arrays)

    return run


def assert_same(found: np.ndarray, expected: np.ndarray, ulps: int):
    """Require equal values and signs, also of zeros, up to some units in the last place."""
    known = ~np.isnan(expected)
    assert np.isnan(found[~known]).all()
    np.testing.assert_array_max_ulp(found[known], expected[known], ulps)
    assert (np.signbit(found) == np.signbit(expected))[known].all()


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_nothing_cancels_near_zero(compute: Callable[..., Any], name: str):
    assert_same(compute(getattr(weft, name), TINY), NUMPY[name](TINY), 3)


@pytest.mark.parametrize("name", ["ceil", "round", "trunc"])
def test_rounding_is_exact(compute: Callable[..., Any], name: str):
    assert_same(compute(getattr(weft, name), ROUNDED), NUMPY[name](ROUNDED), 0)


@pytest.mark.parametrize("name", ["asinh", "log1p"])
def test_squares_do_not_overflow(compute: Callable[..., Any], name: str):
    with np.errstate(invalid="ignore"):
        assert_same(compute(getattr(weft, name), HUGE), NUMPY[name](HUGE), 3)


@pytest.mark.parametrize("name", ["acosh"])
def test_powers_do_not_overflow(compute: Callable[..., Any], name: str):
    assert_same(compute(getattr(weft, name), abs(HUGE)), NUMPY[name](abs(HUGE)), 3)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_only_the_result_overflows(compute: Callable[..., Any], name: str):
    x = np.array([-711.0, -710.4, -700, 0.0, -0.0, 700, 710.4, 711, np.inf, -np.inf])
    with np.errstate(over="ignore"):
        assert_same(compute(getattr(weft, name), x), NUMPY[name](x), 8)


@pytest.mark.parametrize("name", sorted(NUMPY))
def test_ends_of_domains(compute: Callable[..., Any], name: str):
    with np.errstate(all="ignore"):
        assert_same(compute(getattr(weft, name), ENDS), NUMPY[name](ENDS), 3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("atan2", np.arctan2), ("copysign", np.copysign), ("hypot", np.hypot),
     ("nextafter", np.nextafter), ("fmod", np.fmod)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_of_special_values(
    compute: Callable[..., Any], name: str, expected: np.ufunc, dtype: str
):
    values = np.array([*ENDS, 3.5, -0.1])
    with np.errstate(all="ignore"):
        x, y = (
            each.reshape(-1) for each in np.meshgrid(values.astype(dtype), values.astype(dtype))
        )
        assert_same(compute(getattr(weft, name), x, y), expected(x, y), 2)


def test_logaddexp_keeps_infinities(compute: Callable[..., Any]):
    x = np.array([np.inf, np.inf, -np.inf, -np.inf, 1000.0, -1000.0])
    y = np.array([np.inf, -np.inf, -np.inf, 3.0, 1000.0, -1001.0])
    assert_same(compute(weft.logaddexp, x, y), np.logaddexp(x, y), 2)


def test_gradients_of_logaddexp_at_infinities_are_not_nan(transformer: weft.Transformer):
    x = weft.placeholder((3,), "float64")
    y = weft.deriv(weft.sum(weft.logaddexp(x, -np.inf)), x)
    assert transformer.computation(y, x)([-np.inf, 0.0, np.inf]).tolist() == [1, 1, 1]


def test_erfc_is_exact_where_it_is_tiny(compute: Callable[..., Any]):
    x = np.array([5.0, 10.0, 20.0, 26.0])
    expected = [1.5374597944280349e-12, 2.088487583762545e-45, 5.395865611607901e-176,
                5.663192408856143e-296]  # fmt: skip
    np.testing.assert_allclose(compute(weft.erfc, x), expected, rtol=1e-12)


def test_erfinv_undoes_erf(compute: Callable[..., Any]):
    x = np.array([-5.0, -3, -1, -0.1, 0, 1e-10, 0.5, 2, 4])
    np.testing.assert_allclose(compute(lambda x: weft.erfinv(weft.erf(x)), x), x, rtol=1e-4)
    assert compute(weft.erfinv, np.array([1.0, -1.0])).tolist() == [np.inf, -np.inf]


def test_poles_of_the_gamma_function(compute: Callable[..., Any]):
    x = np.array([0.0, -1, -2, -0.5, 1, 2, 171.5, 1e300])
    expected = [*[np.inf] * 3, *map(math.lgamma, x[3:])]
    np.testing.assert_allclose(compute(weft.lgamma, x), expected, rtol=1e-12, atol=1e-14)
    assert compute(weft.lgamma, np.array([-1e300, -1.7e308, -np.inf])).tolist() == [np.inf] * 3
    slopes = [
        -np.inf,
        np.nan,
        np.nan,
        0.03648997397857652,
        -0.5772156649015329,
        0.42278433509846713,
    ]
    np.testing.assert_allclose(compute(weft.digamma, x[:6]), slopes, rtol=1e-12, atol=1e-14)
    ends = compute(weft.digamma, np.array([0.0, -0.0, -1, -math.inf, math.inf]))
    np.testing.assert_array_equal(ends, [-math.inf, math.inf, math.nan, math.nan, math.inf])


def test_sinc_of_large_numbers(compute: Callable[..., Any]):
    x = np.array([30000.0, -45000.5, 1e30, 1.7e308])
    for dtype in ("float16", "float32", "float64"):
        limits = np.finfo(dtype)
        values = np.clip(x, limits.min, limits.max).astype(dtype)
        found = compute(weft.sinc, values)
        assert (np.abs(found) <= 1 / np.abs(values.astype(np.float64)) + 1e-7).all()
    assert abs(compute(weft.sinc, np.array([1e15 + 0.5]))[0] - 1 / (np.pi * 1e15)) < 1e-25


def test_sigmoids_are_exact_where_they_are_tiny(compute: Callable[..., Any]):
    x = np.array([-700.0, -100, -37, -20, 0, 20])
    np.testing.assert_allclose(compute(weft.sigmoid, x), 1 / (1 + np.exp(-x)), rtol=1e-14)
    np.testing.assert_allclose(compute(weft.silu, x), x / (1 + np.exp(-x)), rtol=1e-14)
    assert compute(weft.sigmoid, np.array([-1e300, -np.inf, np.inf])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_powers_of_the_least_integer(compute: Callable[..., Any], dtype: str):
    least = np.iinfo(dtype).min
    x = np.array([least, -1, 0, 1, 2, -1], dtype)
    y = np.array([least, least, least, least, least, least + 1], dtype)
    assert compute(weft.power, x, y).tolist() == [0, 1, 0, 1, 0, -1]


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_remainders_of_integers_are_exact(compute: Callable[..., Any], dtype: str):
    limits = np.iinfo(dtype)
    values = np.array([limits.min, limits.max, limits.max - 1, 1, 3, 7], dtype)
    x, y = (each.reshape(-1) for each in np.meshgrid(values, values[1:]))
    assert (compute(weft.fmod, x, y) == np.fmod(x, y)).all()


def test_integers_are_whole_and_finite():
    x = weft.placeholder((2,), "int64")
    for round_off in (weft.floor, weft.ceil, weft.trunc, weft.round):
        assert round_off(x) is x
    for question in (weft.isnan, weft.isinf, weft.isfinite):
        assert question(x).dtype == np.bool_


SMOOTH = [weft.gelu, lambda x: weft.gelu(x, "tanh"), weft.softplus, weft.silu, weft.mish]


@pytest.mark.parametrize("function", SMOOTH)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations_have_derivatives_far_out(
    transformer: weft.Transformer, function: Callable[..., Any], dtype: str
):
    x = weft.placeholder((4,), dtype)
    first = weft.deriv(weft.sum(function(x)), x)
    second = weft.deriv(weft.sum(first), x)
    found = transformer.computation([first, second], x)([-1e30, 1e30, 1e20, np.inf])
    assert [each.tolist() for each in found] == [[0, 1, 1, 1], [0] * 4]


@pytest.mark.parametrize("function", SMOOTH[:3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_of_activations_far_out_are_0_and_1(
    transformer: weft.Transformer, function: Callable[..., Any], dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((2,), dtype)
    values = transformer.computation(weft.deriv(weft.sum(function(x)), x), x)([-6e4, 6e4])
    assert values.astype(np.float32).tolist() == [0, 1]


def test_lerp_is_exact_at_both_ends(transformer: weft.Transformer):
    x, y, weight = (weft.placeholder((2,)) for _ in range(3))
    found = transformer.computation(weft.lerp(x, y, weight), x, y, weight)
    assert found([0.1, 1e8], [0.7, 0.3], [1, 1]).tolist() == np.float32([0.7, 0.3]).tolist()
    assert found([0.1, 1e8], [0.7, 0.3], [0, 0]).tolist() == np.float32([0.1, 1e8]).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_to_num_takes_the_largest_float_of_the_dtype(dtype: str):
    x = weft.placeholder((3,), dtype)
    graph = weft.capture([weft.nan_to_num(x)], [x])
    (found,), _ = evaluate(graph, [np.array([np.inf, -np.inf, np.nan], x.dtype)])
    assert np.isfinite(found.astype(np.float64)).all()
    assert found[0] == np.nextafter(np.asarray(np.inf, x.dtype), np.zeros((), x.dtype))
    assert found[1] == -found[0]
    assert found[2] == 0
