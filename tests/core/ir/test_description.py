"""Tensor descriptions: their algebra of views, compared with real strides of NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ir import dtypes
from weft.ir.description import TensorDescription, contiguous, reshaped_strides, row_major
from weft.runtime.device import host_view

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)


def pair(shape: tuple[int, ...]):
    """Return an array and the description of it."""
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    return array, contiguous(shape, dtypes.int32)


def address(array: np.ndarray, base: np.ndarray):
    return array.ctypes.data - base.ctypes.data


def check(view: np.ndarray, description: TensorDescription, base: np.ndarray):
    """Compare a view that NumPy made with a description."""
    assert description.shape == view.shape
    assert description.size == view.size
    assert description.nbytes == view.nbytes
    np.testing.assert_array_equal(host_view(description, base), view)
    if view.size:
        kept = [place for place, length in enumerate(view.shape) if length != 1]
        assert [description.strides[i] for i in kept] == [view.strides[i] for i in kept]
        assert description.offset == address(view, base)
        assert description.is_contiguous == view.flags.c_contiguous


@st.composite
def sliced(draw: st.DrawFn, length: int):
    """Draw a slice as ``(start, length, step)`` and as Python writes it."""
    if not length:
        return (0, 0, 1), slice(0, 0)
    start = draw(st.integers(0, length - 1))
    step = draw(st.sampled_from([1, 2, 3, -1, -2]))
    most = (length - 1 - start) // step + 1 if step > 0 else start // -step + 1
    count = draw(st.integers(0, most))
    stop = start + count * step
    return (start, count, step), slice(start, None if stop < 0 else stop, step)


def apply_random_view(data: st.DataObject, view: np.ndarray, description: TensorDescription):
    kind = data.draw(st.sampled_from(["transpose", "slice", "broadcast", "cast"]))
    rank = view.ndim
    if kind == "transpose":
        order = tuple(data.draw(st.permutations(range(rank))))
        return view.transpose(order), description.transpose(order)
    if kind == "slice":
        bounds = [data.draw(sliced(length)) for length in view.shape]
        bound = tuple(bound for bound, _ in bounds)
        return view[(..., *(part for _, part in bounds))], description.slice(bound)
    if kind == "broadcast":
        extra = tuple(data.draw(st.lists(st.integers(0, 3), max_size=5 - rank if rank < 5 else 0)))
        grown = tuple(data.draw(st.integers(0, 3)) if n == 1 else n for n in view.shape)
        shape = (*extra, *grown)
        dims = range(len(extra), len(shape))
        return np.broadcast_to(view, shape), description.broadcast(shape, dims)
    target = data.draw(reshapes(view.shape))
    cast = description.cast(target)
    reshaped = view.reshape(target)
    if not np.shares_memory(reshaped, view) and view.size:
        assert cast is None
        return view, description
    assert cast is not None
    return reshaped, cast


@st.composite
def reshapes(draw: st.DrawFn, shape: tuple[int, ...]):
    """Draw another shape of as many elements: factors put together anew."""
    size = int(np.prod(shape, dtype=int))
    if size == 0:
        return tuple(draw(st.permutations([0, *draw(st.lists(st.integers(0, 3), max_size=2))])))
    factors = []
    for n in shape:
        for prime in (2, 3):
            while n % prime == 0:
                factors.append(prime)
                n //= prime
        if n > 1:
            factors.append(n)
    target: list[int] = []
    for factor in factors:
        if target and draw(st.booleans()):
            target[-1] *= factor
        else:
            target.append(factor)
    for _ in range(draw(st.integers(0, 2))):
        target.insert(draw(st.integers(0, len(target))), 1)
    return tuple(target)


@given(data=st.data(), shape=shapes)
def test_views_of_views_are_those_of_numpy(data: st.DataObject, shape: tuple[int, ...]):
    base, description = pair(shape)
    view = base
    check(view, description, base)
    for _ in range(data.draw(st.integers(1, 4))):
        view, description = apply_random_view(data, view, description)
        check(view, description, base)


@given(data=st.data(), shape=shapes)
def test_a_reshape_is_a_view_exactly_when_numpy_needs_no_copy(
    data: st.DataObject, shape: tuple[int, ...]
):
    base, description = pair(shape)
    view = base
    for _ in range(data.draw(st.integers(0, 2))):
        view, description = apply_random_view(data, view, description)
    target = data.draw(reshapes(view.shape))
    found = reshaped_strides(description.shape, description.strides, target, 4)
    needs_copy = view.size > 0 and not np.shares_memory(view.reshape(target), view)
    assert (found is None) == needs_copy


@given(shape=shapes)
def test_flatten_and_unflatten(shape: tuple[int, ...]):
    base, description = pair(shape)
    flat = description.flatten()
    assert flat is not None
    check(base.reshape(-1), flat, base)
    check(base, flat.unflatten(shape), base)


@given(shape=shapes.filter(lambda shape: 0 not in shape))
def test_row_major_strides(shape: tuple[int, ...]):
    assert row_major(shape, 4) == np.empty(shape, np.int32).strides


def test_a_reshape_keeps_the_number_of_elements():
    with pytest.raises(ValueError, match="cannot reshape"):
        reshaped_strides((2, 3), (12, 4), (5,), 4)


def test_a_broadcast_is_not_contiguous_and_a_reversal_starts_at_the_end():
    description = contiguous((3,), dtypes.float64)
    assert not description.broadcast((2, 3), (1,)).is_contiguous
    backwards = description.slice([(2, 3, -1)])
    assert (backwards.offset, backwards.strides) == (16, (-8,))
    assert TensorDescription((1, 3), dtypes.float64, (999, 8)).is_contiguous
