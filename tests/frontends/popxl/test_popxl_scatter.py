"""scatter and scatter_reduce against NumPy's `at`: every dtype, reduction and form of indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from popxl_programs import called, results

import weft_popxl as popxl
from weft_popxl import ops

UFUNCS: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
}
DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32")
INDICES: dict[str, Any] = {
    "of each element": [[0, 2], [2, 2], [4, 0]],
    "of each slice": [2, 0, 2],
    "of each slice, as a column": [[2], [0], [2]],
    "of each column": [[3, 0]],
    "one for all": [[1]],
}


def extremes(dtype: np.dtype[Any]) -> Any:
    """Return an array with both ends of a dtype's range."""
    values = np.array([[1, 0], [3, 5], [2, 7]], dtype)
    if dtype.kind == "f":
        values[0] = -np.inf, np.inf
        values[1, 1] = -np.inf
    else:
        limits = np.iinfo(dtype)
        values[0] = limits.min, limits.max
        values[1, 1] = limits.min
    return values


def reduced(data: Any, indices: Any, how: str, size: int, axis: int) -> Any:
    """Return what NumPy makes of elements with the same index; 0, or 1 for a product, of none."""
    shape = list(data.shape)
    shape[axis] = size
    index = np.asarray(indices)
    if index.ndim < data.ndim:
        index = np.expand_dims(index, [n for n in range(data.ndim) if n != axis])
    places = list(np.indices(data.shape))
    places[axis] = np.broadcast_to(index, data.shape)
    met = np.zeros(shape, bool)
    met[tuple(places)] = True
    out = np.full(shape, how == "mul", data.dtype)
    with np.errstate(all="ignore"):
        if how in ("max", "min"):
            ends = (-np.inf, np.inf) if data.dtype.kind == "f" else np.iinfo(data.dtype)
            low, high = ends if isinstance(ends, tuple) else (ends.min, ends.max)
            out[met] = low if how == "max" else high
        UFUNCS[how].at(out, tuple(places), data)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", UFUNCS)
def test_scatter_reduce_of_whole_ranges(how: str, dtype: str, backend: str) -> None:
    if backend != "numpy" and dtype not in ("float32", "int8", "uint32"):
        pytest.skip("the other dtypes take the same kernels")
    forms = INDICES if backend == "numpy" else {name: INDICES[name] for name in [*INDICES][:2]}
    data = extremes(np.dtype(dtype))

    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        x = popxl.variable(data, downcast=False)
        return [
            ops.scatter_reduce(x if axis == 0 else x.T, place, how, axis=axis, axis_size=6)
            for indices in forms.values()
            for axis, place in ((0, indices), (1, np.transpose(indices)))
        ]

    wanted = [
        reduced(data if axis == 0 else data.T, place, how, 6, axis)
        for indices in forms.values()
        for axis, place in ((0, indices), (1, np.transpose(indices)))
    ]
    found = results(backend, build)
    for name, value, expected in zip(np.repeat([*forms], 2), found, wanted, strict=True):
        assert value.dtype == expected.dtype
        np.testing.assert_array_equal(value, expected, err_msg=f"indices {name}")


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("how", ["sum", "max"])
def test_initial_values_and_gradients_with_broadcast_indices(how: str, indices: str) -> None:
    data = np.array([[1.0, 4.0], [3.0, 5.0], [2.0, 7.0]], np.float32)
    begun = np.full((6, 2), 2.5, np.float32)

    def graph_of(x: popxl.Tensor, initial: popxl.Tensor) -> popxl.Tensor:
        return ops.scatter_reduce(x, INDICES[indices], how, initial)

    (value,), (gradient, _) = called("cpu", graph_of, [data, begun])
    expected = reduced(data, INDICES[indices], "sum" if how == "sum" else "max", 6, 0)
    combined = begun + expected if how == "sum" else np.maximum(begun, expected)
    np.testing.assert_array_equal(value, combined)
    wins = np.ones_like(data)
    if how == "max":
        places = np.broadcast_to(
            np.reshape(INDICES[indices], (-1, 1))
            if indices == "of each slice"
            else INDICES[indices],
            data.shape,
        )
        wins = (value[places, np.arange(2)] == data).astype(np.float32)
    np.testing.assert_array_equal(gradient, wins)


@pytest.mark.parametrize("indices", [[0, 1], [[0, 1, 0]], [[0], [1]], [[[0]]], 0])
@pytest.mark.parametrize("function", ["scatter", "scatter_reduce"])
def test_indices_that_do_not_fit_are_refused(function: str, indices: Any) -> None:
    with popxl.Ir().main_graph:
        data = popxl.variable(np.ones((3, 2)))
        arguments = {"reduction": "sum", "axis_size": 3} if function == "scatter_reduce" else {}
        begin = (data,) if function == "scatter" else ()
        order = (*begin, indices, data) if function == "scatter" else (data, indices)
        message = r"takes values with 2 axes, .* or one for each slice along axis 0"
        with pytest.raises(popxl.popart_exception, match=message):
            getattr(ops, function)(*order, **arguments)


def test_scatter_with_one_index_for_each_slice(backend: str) -> None:
    def build(ir: popxl.Ir) -> list[popxl.Tensor]:
        t, values = popxl.variable(np.zeros((3, 4))), popxl.variable([[1.0, 2.0], [3.0, 4.0]])
        return [ops.scatter(t, [3, 1], values, 1), ops.scatter(t, [[3, 1]], values, axis=1)]

    wanted = [[0, 2, 0, 1], [0, 4, 0, 3], [0, 0, 0, 0]]
    for value in results(backend, build):
        np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize("how", UFUNCS)
def test_one_op_makes_one_tensor(how: str) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        data, indices = popxl.variable(np.ones((3, 2))), popxl.variable([3, 0, 1])
        ops.scatter_reduce(data=data, indices=indices, axis=0, axis_size=5, reduction=how)
    assert len(ir.main_graph.tensors) == 3
    assert [op.kind for op in ir.main_graph.ops] == ["scatter_reduce"]


def test_the_last_of_repeated_indices_wins_and_has_the_gradient(backend: str) -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)

    def graph_of(x: popxl.Tensor) -> tuple[popxl.Tensor, ...]:
        zeros = popxl.constant(np.zeros((2, 2), np.float32))
        reduced = ops.scatter_reduce(x, [[1, 0], [1, 1], [0, 1]], "none", axis_size=3)
        return ops.scatter(zeros, [1, 0, 1], x), reduced

    (placed, reduced), (gradient,) = called(backend, graph_of, [values])
    assert placed.tolist() == [[3, 4], [5, 6]]
    assert reduced.tolist() == [[5, 2], [3, 6], [0, 0]]
    np.testing.assert_array_equal(gradient, [[0, 1], [2, 1], [2, 2]])
