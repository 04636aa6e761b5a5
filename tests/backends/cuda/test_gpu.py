"""What only a real GPU can show; docs/backends.md says on which they ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import BackendError, IndexOutOfRange
from weft_c.runtime.errors import DeviceMemoryError
from weft_cupy import drivers
from weft_cupy.transformer import CuPyTransformer

pytestmark = pytest.mark.needs("gpu")


@pytest.fixture
def transformer() -> Iterator[CuPyTransformer]:
    with weft.make_transformer("cupy") as made:
        assert isinstance(made, CuPyTransformer)
        yield made


def block(x: Any, w: Any) -> Any:
    """Matrix products, a softmax and elementwise ops."""
    return weft.softmax(weft.matmul(weft.tanh(weft.matmul(x, w)), w.T), 1) + x


def test_every_call_gives_the_same_by_itself_and_as_a_graph(transformer: CuPyTransformer) -> None:
    x, w = weft.placeholder((64, 96)), weft.placeholder((96, 80))
    result = block(x, w)
    computation = transformer.computation(result, x, w)
    expected = weft.make_transformer("numpy").computation(result, x, w)
    random = np.random.default_rng(7)
    for _ in range(5):
        arrays = [random.normal(size=each.axes.shape).astype(np.float32) / 8 for each in (x, w)]
        np.testing.assert_allclose(computation(*arrays), expected(*arrays), 1e-4, 1e-5)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-3), ("bfloat16", 1e-2)],
)
def test_products_in_every_dtype(
    transformer: CuPyTransformer, dtype: str, tolerance: float
) -> None:
    x, y = weft.placeholder((3, 200, 300), dtype), weft.placeholder((100, 300), dtype)
    computation = transformer.computation(weft.matmul(x, y.T), x, y)
    random = np.random.default_rng(7)
    left, right = (random.normal(size=each.axes.shape).astype(each.dtype) for each in (x, y))
    wide = left.astype("f8") @ right.astype("f8").T
    for _ in range(3):
        got = computation(left, right).astype("f8")
        assert np.linalg.norm(got - wide) <= tolerance * np.linalg.norm(wide)


def test_subnormal_numbers_are_not_taken_for_zero(transformer: CuPyTransformer) -> None:
    given = np.array([3e-42, 0, -1e-40, 1e-41], np.float32)
    x = weft.placeholder((4,))
    results = [x * 2, weft.equal(x, 0), weft.divide(x, x), weft.argmax(x, 0), weft.sort(x, 0)]
    expected = weft.make_transformer("numpy").computation(results, x)(given)
    computation = transformer.computation(results, x)
    for _ in range(3):
        for got, wanted in zip(computation(given), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_an_index_out_of_range_leaves_states_as_they_were(transformer: CuPyTransformer) -> None:
    x, at = weft.placeholder((6,)), weft.placeholder((2,), "int32")
    calls = weft.variable((), initial_value=0)
    weft.assign(calls, calls + 1)
    computation = transformer.computation([weft.take(x * 2, at), calls], x, at)
    numbers = np.arange(6, dtype=np.float32)
    for count in range(1, 4):
        with pytest.raises(IndexOutOfRange, match="index 6 "):
            computation(numbers, [0, 6])
        assert computation(numbers, [5, -6])[1] == count


def test_too_much_memory_is_refused_and_the_device_works_on(transformer: CuPyTransformer) -> None:
    free, _ = drivers.cupy().cuda.runtime.memGetInfo()
    x = weft.placeholder(())
    huge = weft.broadcast(x, (free // 4 + 2**20,))
    with pytest.raises(DeviceMemoryError):
        transformer.computation(weft.cumsum(weft.contiguous(huge)), x)(1)
    assert transformer.computation(x + 1, x)(1) == 2


def test_a_source_that_does_not_build_is_shown(transformer: CuPyTransformer) -> None:
    with pytest.raises(BackendError, match=r"NVRTC refused(.|\n)*>    2 "):
        transformer.device.build("// fine\nint f() { return f23; }\n", "a program", None)


def test_two_hundred_transformers_leave_no_memory() -> None:
    x = weft.placeholder((512, 512))
    w = weft.variable((512, 512), initial_value=1)
    weft.assign(w, w + x)
    result = weft.matmul(x, w)
    free = []
    for _ in range(200):
        with weft.make_transformer("cupy") as made:
            made.computation([result, w], x)(np.ones((512, 512)))
        free.append(drivers.cupy().cuda.runtime.memGetInfo()[0])
    assert free[-1] >= free[20] - 2**24
