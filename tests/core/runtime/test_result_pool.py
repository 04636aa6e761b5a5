"""Memory of large results is used again once nobody holds it, and never before."""

from __future__ import annotations

import gc
import mmap
import pickle
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from weft.runtime.result_pool import MOST, SMALLEST

SIZE = SMALLEST // 4


@pytest.fixture
def double() -> Any:
    x = weft.placeholder((SIZE,))
    return weft.make_transformer("numpy").computation(x * 2, x)


def numbers(value: float) -> Any:
    return np.full(SIZE, value, np.float32)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_that_nobody_holds_is_used_again(double: Any) -> None:
    first = address(double(numbers(1)))
    assert address(double(numbers(2))) == first


def test_a_result_begins_with_a_page(double: Any) -> None:
    held = [double(numbers(value)) for value in range(4)]
    assert [address(each) % mmap.PAGESIZE for each in held] == [0] * 4


def test_a_loop_that_keeps_the_last_result_needs_two_buffers(double: Any) -> None:
    places = set()
    result = None
    for value in range(6):
        result = double(numbers(value))
        places.add(address(result))
        np.testing.assert_array_equal(result, numbers(2 * value))
    assert len(places) == MOST


HOLDERS = {
    "array": lambda array: array,
    "view": lambda array: array[3:5].reshape(2, 1),
    "memoryview": lambda array: memoryview(array)[3:5],
    "list": lambda array: [array],
    "other dtype": lambda array: array.view(np.int32)[3:5],
    "foreign": lambda array: np.from_dlpack(array)[3:5],
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_anybody_holds_is_left_alone(double: Any, holder: str) -> None:
    held = HOLDERS[holder](double(numbers(1)))
    before = np.array(held).view(np.float32) if holder == "other dtype" else np.array(held)
    for value in range(2, 6):
        double(numbers(value))
    after = np.array(held).view(np.float32) if holder == "other dtype" else np.array(held)
    np.testing.assert_array_equal(after, before)
    assert (after == 2).all()


def test_all_results_can_be_kept(double: Any) -> None:
    kept = [double(numbers(value)) for value in range(10)]
    for value, result in enumerate(kept):
        np.testing.assert_array_equal(result, numbers(2 * value))


# Deprecated since NumPy 2.5, and still possible.
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_a_result_is_an_array_of_its_own(double: Any) -> None:
    result = double(numbers(1))
    gone = weakref.ref(result)
    assert result.flags.writeable
    assert result.flags.c_contiguous
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)), result)
    result.shape = (2, -1)
    result.flags.writeable = False
    del result
    gc.collect()
    assert gone() is None
    again = double(numbers(3))
    assert again.shape == (SIZE,)
    assert again.flags.writeable


def test_calls_from_several_threads_never_share_a_result(double: Any) -> None:
    wrong = []

    def call(value: int) -> None:
        for _ in range(30):
            result = double(numbers(value))
            other = double(numbers(value + 100))
            if not ((result == 2 * value).all() and (other == 2 * value + 200).all()):
                wrong.append(value)

    callers = [threading.Thread(target=call, args=(value,)) for value in range(6)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert not wrong


def test_small_results_are_fresh() -> None:
    x = weft.placeholder((4,))
    call = weft.make_transformer("numpy").computation(x + 1, x)
    assert call(np.ones(4, np.float32)).flags.owndata
