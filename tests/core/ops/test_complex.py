"""Complex numbers: what real() and imag() give, and the convention of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import DTypeError

Z = np.array([3 + 4j, -1 + 0.5j, 2 - 1j, -3j], np.complex64)


@pytest.fixture
def transformer(backend: str, transformer: weft.Transformer):
    if "complex64" not in transformer.target.dtypes:
        pytest.skip(f"{transformer.target.name} does not compute with complex numbers")
    return transformer


@pytest.fixture
def z():
    return weft.placeholder(Z.shape, "complex64")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (weft.absolute, np.absolute(Z)),
        (weft.real, Z.real),
        (weft.imag, Z.imag),
        (weft.conj, Z.conj()),
        (weft.sign, Z / np.absolute(Z)),
    ],
)
def test_parts_of_complex_numbers(
    transformer: weft.Transformer,
    z: weft.TensorOp,
    function: Callable[..., Any],
    expected: np.ndarray,
):
    found = transformer.computation(function(z), z)(Z)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda z: z * z, 2 * Z),
        (weft.exp, np.exp(Z)),
        (lambda z: z**3, 3 * Z**2),
        (lambda z: weft.real(z * z), 2 * Z),
        (lambda z: weft.imag(z * z), -2j * Z),
        (weft.absolute, Z.conj() / np.absolute(Z)),
        (lambda z: weft.square(weft.absolute(z)), 2 * Z.conj()),
        (lambda z: weft.real(weft.conj(z) * (1 + 2j)), np.full(4, 1 - 2j)),
    ],
)
def test_gradients_are_those_of_the_convention(
    transformer: weft.Transformer,
    z: weft.TensorOp,
    function: Callable[..., Any],
    expected: np.ndarray,
):
    found = transformer.computation(weft.deriv(weft.sum(function(z)), z), z)(Z)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("function", [weft.absolute, lambda z: weft.real(weft.sign(z))])
def test_gradients_at_zero_are_zero(
    transformer: weft.Transformer, z: weft.TensorOp, function: Callable[..., Any]
):
    found = transformer.computation(weft.deriv(weft.sum(function(z)), z), z)(Z * 0)
    assert found.tolist() == [0, 0, 0, 0]


def test_a_gradient_that_reaches_real_numbers_is_real(transformer: weft.Transformer):
    x = weft.placeholder((2,), "float64")
    y = weft.sum(weft.imag(x * (1 + 2j)) + weft.real(weft.exp(x * 1j)))
    found = transformer.computation(weft.deriv(y, x), x)([0.5, 2.0])
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 2 - np.sin([0.5, 2.0]), rtol=1e-12)


def test_infinite_parts_do_not_make_nan(transformer: weft.Transformer):
    x, y = weft.placeholder((3,)), weft.placeholder((3,))
    made = weft.complex(x, y)
    questions = [weft.isnan(made), weft.isinf(made), weft.isfinite(made)]
    values = [np.inf, 1, np.nan], [1, -np.inf, np.inf]
    found = transformer.computation([made, *questions], x, y)(*values)
    assert found[0].real.tolist()[:2] == [np.inf, 1]
    assert found[0].imag.tolist() == [1, -np.inf, np.inf]
    assert [value.tolist() for value in found[1:]] == [
        [False, False, True], [True, True, True], [False, False, False],
    ]  # fmt: skip


def test_a_large_number_is_finite_although_its_size_is_not(transformer: weft.Transformer):
    z = weft.placeholder((1,), "complex128")
    assert transformer.computation(weft.isfinite(z), z)([1.7e308 * (1 + 1j)]).all()


def test_a_choice_of_complex_numbers_may_overwrite_the_first(transformer: weft.Transformer):
    x = weft.placeholder((3,), "complex128")
    chosen = weft.where(weft.greater(weft.real(x), 0), x * 2, x * 3) + 1
    found = transformer.computation(chosen, x)([1j, 1, -1])
    assert found.tolist() == [1 + 3j, 3, -2]


@pytest.mark.parametrize(
    "build",
    [
        lambda z: z < 1,
        lambda z: weft.maximum(z, 0),
        lambda z: weft.clip(z, 0, 1),
        weft.relu,
        weft.floor,
        weft.erf,
        lambda z: weft.atan2(z, 1),
    ],
)
def test_complex_numbers_have_no_order(z: weft.TensorOp, build: Callable[..., Any]):
    with pytest.raises(DTypeError, match=r"complex64.*take real"):
        build(z)


def test_real_numbers_are_their_own_real_parts():
    x = weft.placeholder((2,), "int32")
    assert weft.real(x) is x
    assert weft.conj(x) is x
    assert weft.imag(x).dtype == np.int32


UNARY = [
    "exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan",
    "asinh", "acosh", "atanh", "log1p", "expm1", "log2", "log10", "sign", "square", "reciprocal",
    "abs", "isnan", "isinf", "isfinite",
]  # fmt: skip
IN_NUMPY = {
    "abs": "absolute", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
    "acosh": "arccosh", "atanh": "arctanh",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_functions_at_the_edges_of_the_plane(transformer: weft.Transformer, name: str):
    parts = [0.0, -0.0, 1.0, -4.0, 1e-30, 1e20, np.inf, np.nan]
    values = np.array([complex(re, im) for re in parts for im in parts], np.complex64)
    x = weft.placeholder(values.shape, "complex64")
    found = transformer.computation(getattr(weft, name)(x), x)(values)
    with np.errstate(all="ignore"):
        expected = getattr(np, IN_NUMPY.get(name, name))(values)
    np.testing.assert_allclose(found, expected, 1e-5)


@pytest.mark.parametrize(("dtype", "wide"), [("complex64", "complex128"), ("float32", "float64")])
def test_an_argument_that_is_too_large_is_infinite_without_a_warning(
    transformer: weft.Transformer, dtype: str, wide: str
):
    x = weft.placeholder((2,), dtype)
    call = transformer.computation(x * 2, x)
    assert np.isinf(call(np.full(2, 1e300, wide))).all()
