"""Bound parameters: read where they are, tested once, held as long as what binds them."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import skip_without_backend

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, StateError

HERE = Path(__file__).name


def dense(transformer: weft.Transformer, rows: Any = 2):
    x, w = weft.placeholder((rows, 2), name="x"), weft.placeholder((2, 3), name="w")
    b = weft.placeholder((3,), name="b")
    return transformer.computation({"y": x @ w + b, "w": w * 1}, x, w, b), (x, w, b)


def floats(*shape: int):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [2, "unknown"])
def test_calls_take_the_other_arguments_and_see_what_is_written(
    transformer: weft.Transformer, rows: Any
):
    c, (x, w, b) = dense(transformer, weft.symbol("n") if rows == "unknown" else rows)
    values = {w: floats(2, 3), b: floats(3)}
    bound = c.bind(values)
    assert bound.parameters == (x,)
    for shift, size in enumerate((2, 2, 5, 2, 5) if rows == "unknown" else (2, 2, 2)):
        values[b] += shift
        image = floats(size, 2)
        for argument in (image, image.tolist(), np.asfortranarray(image)):
            np.testing.assert_array_equal(bound(argument)["y"], c(image, values[w], values[b])["y"])
    out = np.empty((2, 3), np.float32), np.empty((2, 3), np.float32)
    bound(floats(2, 2), out=out)
    np.testing.assert_array_equal(out[0], bound(floats(2, 2))["y"])
    np.testing.assert_array_equal(out[1], values[w])


def test_all_parameters_states_and_one_array_twice(transformer: weft.Transformer):
    count = weft.persistent_tensor((), np.float32, initial_value=0, name="count")
    x, y = weft.placeholder((2,)), weft.placeholder((2,))
    c = transformer.computation(
        weft.sequential([weft.assign(count, count + 1), x * y + count]), x, y
    )
    both = np.float32([2, 3])
    bound = c.bind({x: both, y: both})
    assert bound().tolist() == [5, 10]
    both += 1
    assert bound().tolist() == [11, 18]
    assert c(both, both).tolist() == [12, 19]


def test_a_file_in_memory_is_read_where_it_is(tmp_path: Path):
    weights = np.memmap(tmp_path / "weights", np.float32, "w+", shape=(2, 3))
    with weft.make_transformer("numpy") as transformer:
        c, (_, w, b) = dense(transformer)
        bound = c.bind({w: weights, b: np.zeros(3, np.float32)})
        bound(np.ones((2, 2)))
        weights[:] = 2
        assert bound(np.ones((2, 2)))["y"].tolist() == [[4, 4, 4]] * 2


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (floats(2, 4), AxesError, r"argument 1 of computation_0, for w.*shape \(2, 4\)"),
        (np.zeros((2, 3)), DTypeError, "float64 is not float32: cast it"),
        ([[1, 2, 3]] * 2, ArgumentError, r"calls read a numpy.ndarray, and this is \[\["),
        (floats(3, 2).T, ArgumentError, "cannot bind w.*C-contiguous"),
        (floats(2, 6)[:, ::2], ArgumentError, "C-contiguous"),
    ],
    ids=["shape", "dtype", "list", "transposed", "strided"],
)
def test_what_would_need_a_copy_is_refused(value: Any, error: type[Exception], message: str):
    c, (_, w, _b) = dense(weft.make_transformer("numpy"))
    with pytest.raises(error, match=message) as raised:
        c.bind({w: value})
    assert HERE in str(raised.value)


def test_other_misuse_is_refused():
    transformer = weft.make_transformer("numpy")
    c, (_, w, _b) = dense(transformer)
    with pytest.raises(ArgumentError, match=r"has no parameters .*stranger"):
        c.bind({weft.placeholder((2,), name="stranger"): floats(2)})
    with pytest.raises(ArgumentError, match=r"takes x\S*, b\S* besides what is bound, .* 3 arg"):
        c.bind({w: floats(2, 3)})(1, 2, 3)
    bound = c.bind({w: floats(2, 3)})
    bound(floats(2, 2), floats(3))
    transformer.close()
    with pytest.raises(StateError, match="closed"):
        bound(floats(2, 2), floats(3))


def test_a_donated_argument_is_refused():
    with weft.make_transformer("numpy") as transformer:
        x = weft.placeholder((2,), name="x")
        c = transformer.computation(x + 1, x)
        c.donate({0: 0})
        with pytest.raises(ArgumentError, match=r"cannot bind x.*donated"):
            c.bind({x: floats(2)})


def test_arrays_live_as_long_as_what_binds_them():
    with weft.make_transformer("numpy") as transformer:
        c, (_, w, b) = dense(transformer)
        weights = floats(2, 3)
        alive = weakref.ref(weights)
        bound = c.bind({w: weights, b: floats(3)})
        del weights
        bound(floats(2, 2))
        gc.collect()
        assert alive() is not None
        del bound
        gc.collect()
        assert alive() is None
        assert c(floats(2, 2), floats(2, 3), floats(3))["y"].shape == (2, 3)


def test_threads_call_it_at_once(transformer: weft.Transformer):
    c, (_, w, b) = dense(transformer)
    bound, results = c.bind({w: np.ones((2, 3), np.float32), b: np.zeros(3, np.float32)}), []

    def work(number: int):
        image = np.full((2, 2), number, np.float32)
        results.extend((number, float(bound(image)["y"].max())) for _ in range(20))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(results) == 80
    assert all(found == 2 * number for number, found in results)


def test_arrays_of_a_device_are_bound_there():
    skip_without_backend("opencl")
    with weft.make_transformer("opencl") as transformer:
        c, (_, w, b) = dense(transformer)
        c.keep_on_device()
        weights = c.arrays.from_host(floats(2, 3))
        bound = c.bind({w: weights, b: c.arrays.from_host(floats(3))})
        found = bound(floats(2, 2))["y"]
        expected = floats(2, 2) @ floats(2, 3) + floats(3)
        np.testing.assert_allclose(c.arrays.to_host(found), expected, rtol=1e-5)
        with pytest.raises(ArgumentError, match=r"calls read a pyopencl"):
            c.bind({w: floats(2, 3)})
