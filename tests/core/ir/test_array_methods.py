"""Methods and protocols of arrays: each does what NumPy's does, on values of every kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.ir.methods import ArrayOp
from weft.ir.op import op_classes

X = np.arange(12.0).reshape(3, 4) - 5
CUBE = np.arange(24.0).reshape(2, 3, 4)

METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum() + x.sum(axis=0) + x.sum(-1, keepdims=True),
    "prod": lambda x: x.prod(axis=1),
    "mean": lambda x: x.mean(axis=(0, 1)),
    "var": lambda x: x.var(axis=0, ddof=1),
    "std": lambda x: x.std(axis=-1),
    "max": lambda x: x.max(axis=0) + x.max(),
    "min": lambda x: x.min(axis=0, keepdims=True),
    "any": lambda x: (x > 5).any(axis=0),
    "all": lambda x: (x > -3).all(axis=1),
    "argmax": lambda x: x.argmax(axis=1),
    "argmin": lambda x: x.argmin(),
    "cumsum": lambda x: x.cumsum(axis=1).sum() + x.cumsum(),
    "cumprod": lambda x: x.cumprod(axis=0),
    "reshape": lambda x: x.reshape(2, 6) + x.reshape((2, -1)) + x.reshape([2, 6]),
    "ravel": lambda x: x.ravel() + x.flatten(),
    "transpose": lambda x: x.transpose() + x.transpose(1, 0) + x.transpose((1, 0)) + x.T,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x[:, None].squeeze(1) + x[None].squeeze(),
    "repeat": lambda x: x.repeat(2, axis=1),
    "take": lambda x: x.take([2, 0], axis=0).sum() + x.take([5, 7]),
    "diagonal": lambda x: x.diagonal() + x.diagonal(1),
    "astype": lambda x: x.astype("int32"),
    "clip": lambda x: x.clip(-1, 3) + x.clip(min=0),
    "round": lambda x: (x / 3).round(),
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real + x.imag,
    "dot": lambda x: x.dot(x.T),
    "argsort": lambda x: (-x).argsort(axis=1),
    "copy": lambda x: x.copy(),
    "nbytes": lambda x: x + x.nbytes + x.size + x.ndim,
    "len": lambda x: x * len(x),
    "iteration": lambda x: sum(row * number for number, row in enumerate(x)),
    "unpacking": lambda x: (lambda a, b, c: a - b + c)(*x),
}

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": lambda x: np.exp(x) + np.sin(np.abs(x)),
    "operators with an array on the left": lambda x: np.ones(4) * x - np.float32(2) / (x + 9.5),
    "matmul": lambda x: np.ones((2, 3)) @ x + np.matmul(np.ones((2, 3)), x),
    "comparisons": lambda x: np.logical_and(np.ones(4) < x, x <= np.float64(3)),
    "reductions": lambda x: np.sum(x, axis=0) + np.add.reduce(x, axis=0) + np.mean(x, axis=0),
    "where": lambda x: np.where(x > 0, x, 0.0),
    "concatenate": lambda x: np.concatenate([x, x], axis=1) * np.stack([x, x]).sum(),
    "clip": lambda x: np.clip(x, -1.0, 1.0),
    "transpose": lambda x: np.transpose(x) + np.reshape(x, (4, 3)),
    "maximum": lambda x: np.maximum(x, np.minimum(x.T.max(), 1.0)),
}


@pytest.mark.parametrize("function", [*METHODS.values(), *FUNCTIONS.values()],
                         ids=[*METHODS, *(f"numpy {name}" for name in FUNCTIONS)])  # fmt: skip
def test_it_is_what_numpy_does(function: Callable[[Any], Any]) -> None:
    found, wanted = weft.jit(function, backend="numpy")(X), function(X)
    assert found.dtype.kind == np.asarray(wanted).dtype.kind
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_each_method_is_compared_with_numpy() -> None:
    own = {name for name in vars(ArrayOp) if not name.startswith("_")}
    left_out = {"fields", "rank", "shape", "ndim", "size", "at", "flatten", "imag"}
    left_out |= {"device", "to_device"}  # of the array API standard, which has its own tests
    assert own - left_out <= METHODS.keys()


def test_no_attribute_of_an_op_hides_a_method() -> None:
    names = {name for name in vars(ArrayOp) if not name.startswith("_")} - {"fields"}
    for kind in op_classes.values():
        if issubclass(kind, ArrayOp):
            assert not names.intersection(kind.fields), kind
            assert all(inspect.getattr_static(kind, name) is vars(ArrayOp)[name]
                       for name in names), kind  # fmt: skip


INDICES: dict[str, tuple[Any, Any]] = {
    "an integer": (1, 5.0),
    "a negative one": ((-1, 2), 5.0),
    "slices": ((slice(None), slice(0, 2)), np.arange(4.0)),
    "a step": ((Ellipsis, slice(None, None, -2)), np.array([3.0, 4.0])),
    "a new axis": ((None, 0), 7.0),
    "indices that repeat": (np.array([0, 1, 0]), 2.0),
    "pairs of indices": ((np.array([0, 1]), np.array([2, 2])), np.arange(4.0)),
    "indices and slices": ((slice(0, 1), np.array([2, 0])), np.arange(4.0)),
    "nothing": ((slice(2, 2),), 1.0),
    "new axes and indices": ((None, np.array([1, 0]), Ellipsis, None, np.array([2, 0])), 3.0),
    "a mask of the first axes": ((CUBE[..., 0] > 6,), np.arange(4.0)),
    "a mask of the last": ((Ellipsis, np.array([True, False, True, True])), 3.0),
    "a mask after an integer": ((1, CUBE[1] > 15), 3.0),
    "a mask before a slice": ((np.array([False, True]), slice(1, None)), np.arange(4.0)),
    "an empty mask": ((np.zeros((2, 3, 4), bool),), 3.0),
}


@pytest.mark.parametrize("reduction", ["set", "add", "multiply", "max", "min"])
@pytest.mark.parametrize(("index", "value"), INDICES.values(), ids=INDICES)
def test_updates_at_an_index(index: Any, value: Any, reduction: str, backend: str) -> None:
    wanted = CUBE.copy()
    if reduction == "set":
        wanted[index] = value
    else:
        name = {"max": "maximum", "min": "minimum"}.get(reduction, reduction)
        getattr(np, name).at(wanted, index, value)

    @weft.jit(backend=backend)
    def changed(x: Any, value: Any) -> Any:
        return getattr(x.at[index], reduction)(value), x

    found, same = changed(CUBE, value)
    np.testing.assert_allclose(found, wanted)
    np.testing.assert_array_equal(same, CUBE)


def test_updates_at_a_mask_and_at_a_traced_index(backend: str) -> None:
    @weft.jit(backend=backend)
    def changed(x: Any, i: Any) -> Any:
        clipped = x.at[x > 3].set(3.0)
        raised = x.at[x > 3].add(1.0)
        return clipped, raised, x.at[i].set(0.0), x.at[i, 2].apply(lambda row: row * 2)

    found = changed(X, 1)
    wanted = [X.copy() for _ in found]
    wanted[0][X > 3] = 3
    wanted[1][X > 3] += 1
    wanted[2][1] = 0
    wanted[3][1, 2] *= 2
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, two)


@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_gradients_of_updates(rows: int, columns: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=3, unique=True))
    x, value = np.ones((rows, columns)), np.full(columns, 2.0)

    def loss(x: Any, value: Any) -> Any:
        return (x.at[np.array(index)].set(value) ** 2).sum()

    dx, dvalue = weft.grad(loss, (0, 1))(x, value)
    kept = np.ones(rows)
    kept[index] = 0
    np.testing.assert_allclose(dx, 2 * kept[:, None] * x)
    np.testing.assert_allclose(dvalue, 4.0 * len(index) * np.ones(columns))


def test_code_for_the_array_api_standard_finds_weft() -> None:
    x = weft.placeholder((2,))
    assert x.__array_namespace__() is weft
    assert x.__array_namespace__(api_version="2025.12") is weft
