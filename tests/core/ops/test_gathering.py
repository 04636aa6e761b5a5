"""Indices that are tensors: out of range at a call, repeated, at ties and at zeros."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft_array_api
from weft.errors import IndexOutOfRange, WeftError
from weft.ops.indexing import gathering


def computed(build: Callable[..., Any], *arrays: Any):
    """Return what is built from a placeholder for each array."""
    places = [weft.placeholder(np.shape(array), array.dtype) for array in arrays]
    return weft.make_transformer("numpy").computation(build(*places), *places)(*arrays)


def in_rows(i: weft.TensorOp):
    return weft.stack([i, weft.constant([0, 0], dtype="int32")], pos=1)


USES = {
    "take": lambda x, i: weft.take(x, i, 0),
    "take of a view": lambda x, i: weft.take(weft.transpose(x), i, 1),
    "take_along_axis": lambda x, i: weft.take_along_axis(x, weft.reshape(i, (2, 1)), 0),
    "gather_nd": lambda x, i: weft.gather_nd(x, in_rows(i)),
    "index": lambda x, i: x[i],
    "indices": lambda x, i: x[i, [1, 0]],
    "scatter": lambda x, i: weft.scatter(x, i, 0, 0),
    "scatter add": lambda x, i: weft.scatter(x, i, 0, 0, "add"),
    "scatter_along_axis": lambda x, i: weft.scatter_along_axis(x, weft.reshape(i, (2, 1)), 0, 0),
    "scatter_nd": lambda x, i: weft.scatter_nd(x, in_rows(i), 0),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wrong", [3, -4, 1000])
def test_an_index_out_of_range_ends_the_call_and_writes_no_state(use: str, wrong: int):
    x, i = weft.placeholder((3, 2)), weft.placeholder((2,), "int32")
    count = weft.variable((), initial_value=0)
    with weft.make_transformer("numpy") as transformer:
        value = transformer.computation(count)
        write = weft.assign(count, count + 1)
        step = transformer.computation([write, USES[use](x, i)], x, i)
        step(np.ones((3, 2)), [2, -3])
        with pytest.raises(IndexOutOfRange) as caught:
            step(np.ones((3, 2)), [0, wrong])
        assert value().item() == 1
        step(np.ones((3, 2)), [0, 1])
        assert value().item() == 2
    message = str(caught.value)
    assert isinstance(caught.value, IndexError)
    assert isinstance(caught.value, WeftError)
    assert f"index {wrong} at (1" in message
    assert "length 3: its indices go from -3 to 2" in message
    assert f'File "{__file__}", line {USES[use].__code__.co_firstlineno}' in message


def test_a_huge_unsigned_index_is_no_negative_one():
    x, i = np.arange(3.0, dtype=np.float32), np.array([2**64 - 1], np.uint64)
    with pytest.raises(IndexOutOfRange, match=str(2**64 - 1)):
        computed(weft.take, x, i)
    assert computed(weft.take, x, i % 3).tolist() == [0.0]


X = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
A, B, SCALAR = np.array([[0, -1], [1, 0]], np.int32), np.array([1, -2]), np.array(1)
ALL = slice(None)
ITEMS = [
    (A,), (ALL, A), (..., A), (0, ALL, A), (A, ALL, 0), (ALL, A, slice(1, 3), 0), (A, B),
    (ALL, A, B), (A, ALL, B), (ALL, A, ALL, B), (0, A, B, 1), (slice(None, None, -1), A, B),
    (ALL, A, B, 0), (0, A), (A, B, A, B), ([0, 1],), (..., [1, 0], [1, 2]), (ALL, SCALAR, A),
    ([],), (slice(0, 0), A),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ITEMS)))
def test_items_with_tensors_are_what_numpy_takes(number: int):
    item = ITEMS[number]
    as_ops = tuple(weft.constant(p) if isinstance(p, np.ndarray) else p for p in item)
    tidy = tuple(np.array(p, np.intp) if isinstance(p, list) else p for p in item)
    got = computed(lambda x: [x[item], x[as_ops]], X)
    for each in got:
        np.testing.assert_array_equal(each, X[tidy], strict=True)


UNKNOWN = {
    "take": (lambda x, i: weft.take(x, i, 0), lambda x, i: x[i]),
    "take_along_axis": (
        lambda x, i: weft.take_along_axis(x, weft.expand_dims(i, dim=1), 1),
        lambda x, i: np.take_along_axis(x, i[:, None], 1),
    ),
    "gather_nd": (
        lambda x, i: weft.gather_nd(x, weft.expand_dims(i, dim=1), batch_dims=1),
        lambda x, i: x[np.arange(len(i)), i],
    ),
    "items": (lambda x, i: x[i, i], lambda x, i: x[i, i]),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_lengths_may_be_unknown(case: str):
    build, expected = UNKNOWN[case]
    n = weft.symbol("n")
    x, i = weft.placeholder((n, 3)), weft.placeholder((n,), "int32")
    value = build(x, i)
    slope = weft.deriv(weft.sum(weft.square(value)), x)
    step = weft.make_transformer("numpy").computation([value, slope], x, i)
    for indices in ([2, 0, 1], [-2, 1], [0]):
        array = np.arange(3.0 * len(indices)).reshape(-1, 3)
        got, gradient = step(array, indices)
        np.testing.assert_array_equal(got, expected(array, np.array(indices)))
        assert gradient.sum() == 2 * got.sum()


def test_a_scatter_into_an_unknown_length():
    n = weft.symbol("n")
    x, i = weft.placeholder((n, 2)), weft.placeholder((n,), "int32")
    results = [weft.scatter(x, i, x, 0, reduction) for reduction in ("set", "add", "mul", "max")]
    slopes = [weft.deriv(weft.sum(result), x) for result in results]
    step = weft.make_transformer("numpy").computation([*results, *slopes], x, i)
    array = np.array([[1.0, 2], [3, 4], [5, 6]])
    got = step(array, [2, 1, 2])
    assert got[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert got[1].tolist() == [[1, 2], [6, 8], [11, 14]]
    assert got[2].tolist() == [[1, 2], [9, 16], [25, 72]]
    assert got[3].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert got[4].tolist() == [[1, 1], [1, 1], [1, 1]]
    assert got[5].tolist() == [[2, 2], [2, 2], [2, 2]]
    assert got[6].tolist() == [[26, 37], [6, 8], [10, 24]]
    assert got[7].tolist() == [[1, 1], [1, 1], [1, 1]]


PLACES = np.array([1, 0, 1, 1, -3], np.int32)


def slopes(reduction: str, x: list[int] | np.ndarray, updates: list[int] | np.ndarray):
    """Return the derivatives of weighted sums by what is put into, and by what is put."""

    def build(x: weft.TensorOp, i: weft.TensorOp, updates: weft.TensorOp):
        value = weft.scatter(x, i, updates, 0, reduction)
        total = weft.sum(value * np.array([1, 10, 100], x.dtype))
        return weft.deriv(total, x), weft.deriv(total, updates)

    return computed(build, np.array(x, float), PLACES, np.array(updates, float))


def test_what_was_not_kept_has_no_gradient():
    by_x, by_updates = slopes("set", [1, 2, 3], [4, 5, 6, 7, 8])
    assert by_x.tolist() == [0, 0, 100]
    assert by_updates.tolist() == [0, 0, 0, 10, 1]


BACK = (slice(None, None, -1),) * 2
LAID = {
    "in order": lambda x: x,
    "transposed": lambda x: x.T,
    "backwards": lambda x: x[BACK],
    "columns backwards": lambda x: x[:, ::-1],
}
"""Views that undo themselves."""


@pytest.mark.parametrize("backend", ["numpy", "array"])
@pytest.mark.parametrize(("indices", "updates"), [*itertools.product(LAID, LAID)])
def test_the_last_in_row_major_order_is_kept_however_it_lies(
    indices: str, updates: str, backend: str
):
    at, numbers = np.array([[1, 0, 1], [1, 2, 0], [2, 2, 1]]), np.arange(9.0).reshape(3, 3)
    see, show = LAID[indices], LAID[updates]
    x, i, u = weft.placeholder((3,)), weft.placeholder((3, 3), "int64"), weft.placeholder((3, 3))
    value = weft.scatter(x, see(i), show(u))
    slope = show(weft.deriv(weft.sum(value), u))
    made = (
        weft.make_transformer("numpy")
        if backend == "numpy"
        else weft_array_api.ArrayTransformer(np)
    )
    with made:
        computation = made.computation([value, slope], x, i, u)
        got, gradient = computation(np.zeros(3), see(at), show(numbers))
    assert got.tolist() == [5, 8, 7]
    assert np.flatnonzero(gradient).tolist() == [5, 7, 8]
    op = gathering.ScatterOp(x, i, u, position=0, reduction="set")
    laid = see(see(at).copy()), show(show(numbers).copy())
    assert op.reference(np.zeros(3), *laid).tolist() == [5, 8, 7]


@pytest.mark.parametrize("laid", LAID)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_updates_reach_what_lies_in_another_order(dtype: str, laid: str):
    x, updates = np.arange(9).reshape(3, 3), np.array([[1, 2, 4], [8, 16, 32]])
    array = weft.ir.dtypes.as_dtype(dtype).type

    def build(x: weft.TensorOp, i: weft.TensorOp, u: weft.TensorOp):
        return weft.scatter(LAID[laid](x), i, u, 0, "add")

    found = computed(build, LAID[laid](x).astype(array), PLACES[:2], updates.astype(array))
    assert (found.astype(int) - x).tolist() == [updates[1].tolist(), updates[0].tolist(), [0] * 3]


@pytest.mark.parametrize("sign", [1, -1])
def test_ties_share_the_gradient(sign: int):
    x, updates = np.array([4, 1, 1]), np.array([2, 3, 2, 0, 4])
    by_x, by_updates = slopes("max" if sign > 0 else "min", sign * x, sign * updates)
    assert by_x.tolist() == [0.5, 0, 100]
    assert by_updates.tolist() == [5, 0, 5, 0, 0.5]


@pytest.mark.parametrize("zeros", [*itertools.product([0, 1], repeat=4)])
def test_a_product_has_the_right_gradient_at_zeros(zeros: tuple[int, ...]):
    x = np.array([2, 3 * zeros[0], 5.0])
    updates = np.array([7 * zeros[1], 11, 13 * zeros[2], 17, 19 * zeros[3]])
    by_x, by_updates = slopes("mul", x, updates)
    assert by_x.tolist() == [11 * updates[4], 10 * updates[0] * updates[2] * 17, 100]
    at_one = [x[1], updates[0], updates[2], updates[3]]
    others = [10 * np.prod(at_one[:k] + at_one[k + 1 :]) for k in range(4)]
    wanted = [others[1], 2 * updates[4], others[2], others[3], 2 * 11]
    np.testing.assert_allclose(by_updates, wanted)


def test_an_infinity_stays_where_it_is_put():
    x = np.zeros(3, np.float32)
    updates = np.array([np.inf, 1, -np.inf, np.nan, 2], np.float32)
    add, top = computed(
        lambda x, i, u: [weft.scatter(x, i, u, 0, "add"), weft.scatter(x, i, u, 0, "max")],
        x, PLACES, updates,
    )  # fmt: skip
    np.testing.assert_array_equal(add, [3, np.nan, 0])
    np.testing.assert_array_equal(top, [2, np.nan, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_narrow_floats_are_added_up_in_float32(dtype: str):
    x, i = weft.placeholder((1,), dtype), weft.placeholder((5000,), "int8")
    ones = weft.broadcast(weft.constant(1, dtype=dtype), (5000,))
    value = weft.scatter(x, i, ones, 0, "add")
    slope = weft.deriv(weft.sum(weft.take(x, i)), x)
    step = weft.make_transformer("numpy").computation([value, slope], x, i)
    got = step(np.zeros(1), np.zeros(5000, np.int8))
    assert [float(each[0]) for each in got] == pytest.approx([5000, 5000], rel=1e-2)
