"""Functions, ufuncs and methods of NumPy on traced values: the results are those on arrays."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError

OPERANDS = {
    "x": np.arange(6.0).reshape(2, 3) + 0.5,
    "v": np.array([3.0, 1.0, 2.0]),
    "i": np.array([[1, 2, 3], [4, 5, 6]], "int64"),
    "b": np.array([[True, False, True], [False, True, True]]),
}

EXPRESSIONS = """
    np.pad(x, 1); np.pad(x, (1, 2)); np.pad(x, ((1, 1), (0, 2))); np.pad(x, 1, "edge")
    np.pad(x, [(2, 1)], mode="wrap"); np.pad(x, 1, constant_values=3.0)
    np.linalg.norm(x); np.linalg.norm(x, axis=1); np.linalg.norm(x, 1, axis=1, keepdims=True)
    np.linalg.norm(v, 1); np.add.reduce(x); np.add.reduce(x, axis=None); np.add.reduce(x, 1)
    np.maximum.reduce(x); np.add.reduce(x, (0, 1), keepdims=True); np.logical_and.reduce(b)
    np.arcsin(x / 9); np.arccos(x / 9); np.arctan(x); np.arcsinh(x); np.arccosh(x + 1)
    np.arctanh(x / 9); np.arctan2(x, v); np.rint(x); np.fabs(-x); np.around(x); np.amax(x, 1)
    np.exp(x); np.expm1(x); np.log1p(x); np.sqrt(x); np.square(x); np.floor(x); np.sign(-x)
    np.hypot(x, v); np.logaddexp(x, v); np.maximum(x, 2); np.power(x, 2); np.mod(-x, 2)
    np.fmod(-x, 2); np.floor_divide(-x, 2); np.isfinite(x); np.invert(i); np.invert(b)
    np.right_shift(i, 1); np.left_shift(i, 1)
    np.fft.fft(x); np.fft.irfft(np.fft.rfft(v), 3); np.fft.fftn(x, axes=(0, 1)); np.fft.fftshift(v)
    np.sum(x); np.sum(x, keepdims=True); np.mean(x, axis=0); np.std(x); np.std(x, axis=0)
    np.prod(x); np.max(x, axis=1); np.argmax(x); np.argmax(x, 0); np.all(b); np.any(b, axis=0)
    np.count_nonzero(b); np.median(x); np.quantile(x, 0.3); np.cumsum(x, 1); np.diff(v)
    np.sort(-v); np.sort(x, 0); np.argsort(v); np.searchsorted(np.sort(v), 1.5); np.nansum(x)
    np.dot(x, v); np.dot(x, x.T); np.inner(x, x); np.outer(v, v); np.tensordot(x, x, 2)
    np.einsum("ij,ij->i", x, x); np.matmul(x, v); np.trace(x); np.diag(v); np.cross(v, v[::-1])
    np.kron(v, v); np.linalg.inv(x @ x.T); np.linalg.det(x @ x.T); np.linalg.solve(x @ x.T, v[:2])
    np.linalg.cholesky(x @ x.T + np.eye(2)); np.linalg.matrix_power(x @ x.T, 2)
    np.reshape(x, -1); np.ravel(x); np.transpose(x); np.swapaxes(x, 0, 1); np.squeeze(x[None])
    np.expand_dims(x, 1); np.concatenate([x, x], 1); np.stack([x, x], -1); np.split(v, 3)
    np.repeat(x, 2); np.repeat(x, 2, axis=0); np.tile(x, 2); np.tile(x, (2, 1)); np.roll(x, 1)
    np.roll(x, 1, axis=1); np.flip(x); np.broadcast_to(v, (2, 3)); np.triu(x); np.tril(x)
    np.take(v, [0, 1]); np.take_along_axis(x, np.array([[0], [1]]), 1); np.meshgrid(v, v)
    np.where(b, x, 0); np.clip(x, 1, 3); np.zeros_like(x); np.full_like(x, 3); np.nan_to_num(x)
    x.sum(0); x.mean(axis=1, keepdims=True); x.std(); x.reshape(3, 2); x.reshape((3, 2)); x.ravel()
    x.transpose(1, 0); x.argmax(); x.dot(v); x.cumsum(1); x.min(0); x.swapaxes(0, 1); x.repeat(2)
    x.clip(1, 2); x.astype(int); x.copy(); x // 2; x % 2; 2**x; x @ v; x < 2; b & b; ~b; i >> 1
    x[..., None]; x[::-1]; x[:, [0, 2]]; x[[0, 1], [1, 2]]; x[-1]; np.arange(3) * x
"""
CASES = [each.strip() for line in EXPRESSIONS.splitlines() for each in line.split(";")]


@pytest.mark.parametrize("expression", list(filter(None, CASES)))
@pytest.mark.filterwarnings("ignore::weft.functional.retraces.RetraceWarning")
def test_an_expression_gives_what_numpy_gives(expression: str) -> None:
    code = compile(expression, "expression", "eval")
    wanted = eval(code, {"np": np, **OPERANDS})

    def traced(operands: dict[str, object]) -> object:
        return eval(code, {"np": np, **operands})

    found = weft.jit(traced, backend="numpy")(OPERANDS)
    pairs = (
        zip(found, wanted, strict=True) if isinstance(wanted, list | tuple) else [(found, wanted)]
    )
    for one, other in pairs:
        assert one.shape == np.shape(other)
        assert one.dtype.kind == np.asarray(other).dtype.kind
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_the_norm_of_a_matrix_is_not_that_of_a_vector() -> None:
    with pytest.raises(ArgumentError, match=r"use weft\.linalg\.matrix_norm, or vector_norm"):
        weft.jit(lambda x: np.linalg.norm(x, ord=1))(OPERANDS["x"])
