"""On a device that has the host's memory arrays which fill pages are used in place, by mapping."""

from __future__ import annotations

import gc
import mmap
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from machines import transformer_for

import weft
from weft.errors import CheckFailed, IndexOutOfRange
from weft.ir.dtypes import as_dtype
from weft.runtime.result_pool import SMALLEST
from weft_opencl.transformer import OpenCLTransformer

pytestmark = pytest.mark.slow

LARGE = SMALLEST // 4
"""The float32 elements of a result that begins with a page."""
NUMBER = 4
"""Bytes: the constants of the tests, which are copied once."""


@pytest.fixture
def maps(device: None) -> Iterator[OpenCLTransformer]:
    with transformer_for("maps") as made:
        yield made


@pytest.fixture
def copies(maps: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each copy of an array, but for numbers, to or from the device."""
    found: list[int] = []
    enqueue_copy = maps.cl.enqueue_copy

    def copy(queue: Any, target: Any, source: Any, **options: Any) -> Any:
        arrays = [each for each in (target, source) if isinstance(each, np.ndarray)]
        found.extend(each.nbytes for each in arrays if each.nbytes > NUMBER)
        return enqueue_copy(queue, target, source, **options)

    monkeypatch.setattr(maps.cl, "enqueue_copy", copy)
    return found


@pytest.fixture
def mapped(maps: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each buffer that is mapped."""
    found: list[int] = []
    enqueue_map_buffer = maps.cl.enqueue_map_buffer

    def map_buffer(queue: Any, buffer: Any, *args: Any, **options: Any) -> Any:
        found.append(buffer.size)
        return enqueue_map_buffer(queue, buffer, *args, **options)

    monkeypatch.setattr(maps.cl, "enqueue_map_buffer", map_buffer)
    return found


def placed(values: Any, start: int = 0) -> Any:
    """Return a copy of an array that begins so many bytes into a page."""
    values = np.asarray(values)
    raw = np.empty(values.nbytes + 2 * mmap.PAGESIZE, np.uint8)
    start += -raw.ctypes.data % mmap.PAGESIZE
    found: Any = np.ndarray(values.shape, values.dtype, raw, start)
    found[...] = values
    return found


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return (np.arange(np.prod(shape)) % 97).reshape(shape).astype(as_dtype(dtype))


@pytest.mark.parametrize(
    ("size", "start", "copied"),
    [
        (LARGE, 0, []),
        (LARGE, mmap.PAGESIZE // 2, ["input"]),
        (LARGE, 16, ["input"]),
        (LARGE + 1, 0, ["input", "result"]),
        (LARGE + 64, 0, []),
        (LARGE // 4, 0, ["result"]),
        (16, 0, ["result"]),
        (5, 4, ["input", "result"]),
    ],
)
def test_arrays_that_fill_pages_are_not_copied(
    maps: OpenCLTransformer, copies: list[int], mapped: list[int], size: int, start: int,
    copied: list[str],
) -> None:  # fmt: skip
    x = weft.placeholder((size,))
    double = maps.computation(x * 2, x)
    given = placed(numbers(size), start)
    for step in range(3):
        given += step
        copies.clear()
        mapped.clear()
        np.testing.assert_array_equal(double(given), given * 2)
        assert copies == [4 * size] * len(copied)
        assert mapped == ([] if "result" in copied else [4 * size])


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "uint64"])
def test_arrays_of_any_dtype_are_used_in_place(
    maps: OpenCLTransformer, copies: list[int], dtype: str
) -> None:
    given = placed(numbers(SMALLEST, dtype=dtype))
    given.flags.writeable = False
    x = weft.placeholder(given.shape, dtype)
    found = maps.computation(weft.where(weft.equal(x, x), x, x), x)(given)
    assert found.tobytes() == given.tobytes()
    assert copies == []


def test_what_a_call_returned_is_an_argument_of_the_next(
    maps: OpenCLTransformer, copies: list[int]
) -> None:
    x = weft.placeholder((LARGE,))
    step = maps.computation(x * 2 + 1, x)
    value = placed(np.zeros(LARGE, np.float32))
    for _ in range(5):
        value = step(value)
    assert np.all(value == 31)
    assert copies == []


SHARED: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "the same": (lambda x: x, []),
    "another view of the same": (lambda x: x.reshape(2, -1).reshape(-1), []),
    "overlapping": (lambda x: x[mmap.PAGESIZE // 4 :], [4 * LARGE - mmap.PAGESIZE]),
    "beside": (lambda x: placed(x), []),
}


@pytest.mark.parametrize("name", SHARED)
def test_no_two_buffers_have_the_same_memory(
    maps: OpenCLTransformer, copies: list[int], name: str
) -> None:
    second, copied = SHARED[name]
    given = placed(numbers(LARGE))
    other = second(given)
    x, y = weft.placeholder(given.shape), weft.placeholder(other.shape)
    found = maps.computation([x + 1, weft.sum(y)], x, y)(given, other)
    np.testing.assert_array_equal(found[0], given + 1)
    assert found[1] == other.sum(dtype=np.float64)
    assert copies == copied


def test_results_are_written_where_the_caller_wants_them(
    maps: OpenCLTransformer, copies: list[int]
) -> None:
    x = weft.placeholder((64, 64))
    computation = maps.computation(x * 2, x)
    given, out = placed(numbers(64, 64)), placed(numbers(64, 64))
    assert computation(given, out=out) is out
    np.testing.assert_array_equal(out, given * 2)
    assert copies == []


def test_the_host_reads_results_in_the_middle_of_a_program(maps: OpenCLTransformer) -> None:
    x = weft.placeholder((LARGE,))
    computation = maps.computation(weft.check_finite(x + 1), x)
    given = placed(numbers(LARGE))
    np.testing.assert_array_equal(computation(given), given + 1)
    given[7] = np.inf
    with pytest.raises(CheckFailed, match=f"in 1 of {LARGE}"):
        computation(given)


def test_an_index_out_of_range_is_explained(maps: OpenCLTransformer) -> None:
    x, at = weft.placeholder((LARGE,)), weft.placeholder((1024,), "int32")
    computation = maps.computation([x + 1, weft.take(x + 2, at)], x, at)
    given, indices = placed(numbers(LARGE)), placed(np.zeros(1024, np.int32))
    assert computation(given, indices)[1][5] == given[0] + 2
    indices[9] = LARGE
    with pytest.raises(IndexOutOfRange, match=f"index {LARGE} "):
        computation(given, indices)


def test_nothing_of_the_callers_is_held_after_a_call(maps: OpenCLTransformer) -> None:
    x = weft.placeholder((LARGE,))
    double = maps.computation(x * 2, x)
    given = placed(numbers(LARGE))
    held = [weakref.ref(each) for each in (given.base, double(given).base)]
    del given
    gc.collect()
    assert [each() is None for each in held] == [True, False], "a result's memory is used again"
    del double
