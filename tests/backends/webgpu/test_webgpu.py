"""The WebGPU backend by itself; what every backend must do is in the conformance kit."""

import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from needs import skip_without

import weft
from weft.errors import ArgumentError, BackendError, IndexOutOfRange


@pytest.fixture(scope="module")
def webgpu() -> Iterator[Any]:
    """A transformer of this backend."""
    skip_without("webgpu")
    with weft.make_transformer("webgpu", cache=False) as made:
        yield made


def test_elementwise_ops_are_one_shader(webgpu: Any):
    x = weft.placeholder((5,))
    computation = webgpu.computation(weft.tanh(x * 2 + 1), x)
    array = np.linspace(-2, 2, 5, dtype="f")
    np.testing.assert_allclose(computation(array), np.tanh(array * 2 + 1), rtol=1e-6)
    assert computation.source.count("@compute") == 1


BOUNDS: dict[str, tuple[Any, Any, float, float]] = {
    "exp": (weft.exp, np.exp, 87, 1.8),
    "sin": (weft.sin, np.sin, 1000, 2.4),
    "cos": (weft.cos, np.cos, 1000, 2.4),
    "tanh": (weft.tanh, np.tanh, 10, 6.1),
    "atan": (weft.atan, np.arctan, 50, 2.4),
    "erf": (weft.erf, np.vectorize(math.erf), 4, 7.0),
}
"""Functions, their references, how far from 0 arguments are, and the errors in docs/webgpu.md."""


@pytest.mark.parametrize("name", BOUNDS)
def test_errors_are_within_the_documented_bounds(webgpu: Any, name: str):
    function, reference, most, bound = BOUNDS[name]
    x = weft.placeholder((20_000,))
    array = np.random.default_rng(3).uniform(-most, most, 20_000).astype("f")
    expected = reference(array.astype("d"))
    errors = np.abs(webgpu.computation(function(x), x)(array) - expected)
    assert (errors / np.spacing(np.abs(expected).astype("f"))).max() <= bound


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16"])
def test_elements_smaller_than_a_word(webgpu: Any, dtype: str):
    """Neighbors in a word are written together, whatever is left at the end."""
    for length in (1, 3, 4, 5, 1027):
        x = weft.placeholder((length,), dtype=dtype)
        array = (np.arange(length) % 2).astype(dtype)
        same, moved = webgpu.computation([weft.equal(x, x[::-1]), x[::-1]], x)(array)
        assert np.array_equal(same, array == array[::-1])
        assert np.array_equal(moved, array[::-1])


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (33, 17, 65), (100, 130, 70)])
def test_products_of_every_tile(webgpu: Any, shape: tuple[int, int, int]):
    m, k, n = shape
    random = np.random.default_rng(0)
    x, y = random.normal(size=(m, k)).astype("f"), random.normal(size=(n, k)).astype("f")
    a, b = weft.placeholder(x.shape), weft.placeholder(y.shape)
    product = webgpu.computation(a @ weft.transpose(b), a, b)(x, y)
    np.testing.assert_allclose(product, x @ y.T, atol=1e-4)


def test_two_results_of_a_kernel_share_the_arena(webgpu: Any):
    """Bindings are keyed by the storage: two of one buffer that are written give wrong numbers."""
    x = weft.placeholder((64,))
    y, z = x * 2, x + 1
    rows = weft.sum(y) + weft.sum(z * z), weft.max(y) - weft.max(z)
    found = webgpu.computation(rows, x)(np.arange(64, dtype="f"))
    array = np.arange(64, dtype="f")
    assert found[0] == (2 * array).sum() + ((array + 1) ** 2).sum()
    assert found[1] == 2 * 63 - 64


def test_equal_kernels_at_other_places_share_a_shader(webgpu: Any):
    x = weft.placeholder((3, 4, 4))
    computation = webgpu.computation([x[0] @ x[1], x[1] @ x[2], x[2] @ x[0]], x)
    array = np.random.default_rng(0).normal(size=(3, 4, 4)).astype("f")
    for found, (i, j) in zip(computation(array), [(0, 1), (1, 2), (2, 0)], strict=True):
        np.testing.assert_allclose(found, array[i] @ array[j], rtol=1e-4, atol=1e-5)
    assert computation.source.count("@compute") == 1


def test_sums_are_compensated(webgpu: Any):
    """No compiler takes ``(a + b) - a`` for `b`."""
    x = weft.placeholder((4097,))
    array = np.full(4097, 0.1, "f")
    array[0] = 1e6
    expected = array.astype(float).sum()
    assert abs(webgpu.computation(weft.sum(x), x)(array) - expected) < 0.1


def test_states_stay_on_the_device(webgpu: Any):
    state = weft.variable((3,), initial_value=0.0)
    step = webgpu.computation(weft.assign(state, state + 1))
    value = webgpu.computation(state)  # after what is assigned to it, so it is one more
    for _ in range(3):
        step()
    assert value().tolist() == [4, 4, 4]


def test_an_index_out_of_range_is_an_error_of_the_call(webgpu: Any):
    x, i = weft.placeholder((3,)), weft.placeholder((2,), dtype="int32")
    taken = webgpu.computation(weft.take(x, i), x, i)
    with pytest.raises(IndexOutOfRange):
        taken(np.arange(3, dtype="f"), np.array([0, 3], "int32"))
    assert taken(np.arange(3, dtype="f"), np.array([0, -1], "int32")).tolist() == [0, 2]


def test_float64_is_refused(webgpu: Any):
    x = weft.placeholder((3,), dtype="float64")
    with pytest.raises(BackendError, match="float64"):
        webgpu.computation(x * 2, x)(np.ones(3))


def test_an_adapter_that_is_not_there_is_an_error_that_lists_them(webgpu: Any):
    with pytest.raises(ArgumentError, match="no such GPU"):
        weft.make_transformer("webgpu", device="no such GPU")


def test_without_an_adapter_it_says_what_to_install(webgpu: Any, monkeypatch: pytest.MonkeyPatch):
    from weft_webgpu import devices

    monkeypatch.setattr(devices, "adapters", tuple)
    assert devices.summary() == (None, f"WebGPU finds no adapter: {devices.HOW_TO_GET_A_DRIVER}")
    with pytest.raises(BackendError, match="mesa-vulkan-drivers"):
        devices.choose(None)


def test_a_buffer_above_the_limit_is_refused_before_the_driver_sees_it(webgpu: Any):
    limit = webgpu.device.limits["max-storage-buffer-binding-size"]
    with pytest.raises(MemoryError, match="a buffer has at most"):
        webgpu.device.memory(limit + 4, "a test")


@pytest.mark.needs("posix")
def test_a_forked_child_is_refused(webgpu: Any):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            weft.make_transformer("webgpu")
            said = "no error"
        except BackendError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "forked" in os.read(read, 1000).decode()


def test_long_rows_are_reduced_in_parts(webgpu: Any) -> None:
    """Two launches, whatever is fused around the sum."""
    random = np.random.default_rng(0)
    for rows, length in ((1, 50_001), (3, 9_000)):
        x = weft.placeholder((rows, length))
        array = random.normal(size=(rows, length)).astype("f")
        total, largest = weft.sum(x * x, axis=1) + 1, weft.max(x, axis=1)
        computation = webgpu.computation([total, largest], x)
        found = computation(array)
        np.testing.assert_allclose(found[0], (array.astype(float) ** 2).sum(1) + 1, rtol=1e-6)
        np.testing.assert_array_equal(found[1], array.max(1))
        assert "_of_parts" in computation.source


def test_random_bits_are_those_of_every_backend(webgpu: Any) -> None:
    bits = weft.random.bits(weft.random.key(7), (3, 5))
    expected = weft.make_transformer("numpy").computation(bits)()
    computation = webgpu.computation(bits)
    assert np.array_equal(computation(), expected)


def test_positions_have_32_bits_where_there_are_no_others(webgpu: Any) -> None:
    """As in browsers: int64 is stored, and what it is computed from has 32 bits."""
    x = weft.placeholder((3, 7))
    array = np.random.default_rng(0).permutation(21).reshape(3, 7).astype("f")
    with weft.make_transformer("webgpu", int64=False, cache=False) as made:
        order, first, rows = made.computation(
            [weft.argsort(x, axis=1), weft.argmax(x, axis=1), x[[2, 0]]], x
        )(array)
    assert order.dtype == first.dtype == np.int64
    assert np.array_equal(order, array.argsort(1))
    assert np.array_equal(first, array.argmax(1))
    assert np.array_equal(rows, array[[2, 0]])


def test_a_lost_device_is_an_error_and_another_is_opened() -> None:
    """The last test: the process has one device, and so does the fixture."""
    skip_without("webgpu")
    lost = weft.make_transformer("webgpu", cache=False)
    x = weft.placeholder((3,))
    computation = lost.computation(x + 1, x)
    computation(np.ones(3, "f"))
    lost.device.handle.destroy()
    with pytest.raises(BackendError, match="does not answer any more"):
        computation(np.ones(3, "f"))
    with weft.make_transformer("webgpu", cache=False) as other:
        assert other.computation(x + 1, x)(np.ones(3, "f")).tolist() == [2, 2, 2]
