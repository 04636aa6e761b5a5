"""States begin with their initial values, once; constants without a program, and without a copy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
import weft_array_api
from weft.cache.structure import SMALL

SIZES = [SMALL // 8, SMALL // 4, SMALL // 4 + 1, 10_000]


def values_of(size: int) -> np.ndarray[Any, Any]:
    return np.arange(size, dtype=np.float32)


@pytest.fixture(params=SIZES)
def size(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_states_begin_with_their_initial_values(transformer: Any, size: int) -> None:
    values = values_of(size)
    w = weft.variable((size,), initial_value=values)
    doubled = weft.variable((size,), initial_value=w * 2)
    unused = weft.variable((size,), initial_value=values + 1)
    whole = weft.variable((2, size), initial_value=np.stack([values, -values]))
    x = weft.placeholder((size,))
    c = transformer.computation([w + x, doubled, weft.transpose(whole)], x)
    for _ in range(2):
        got = c(values)
        assert (got[0] == 2 * values).all()
        assert (got[1] == 2 * values).all()
        assert np.array_equal(got[2].T, [values, -values])
    assert (transformer.get_value(unused) == values + 1).all()


def test_only_what_is_computed_takes_a_program(
    transformer: Any, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    real = transformer.transform_ordered_ops

    def noted(program: Any, steps: Any, name: str) -> Any:
        names.append(name.partition("_")[0])
        return real(program, steps, name)

    monkeypatch.setattr(transformer, "transform_ordered_ops", noted)
    w = weft.variable((size,), initial_value=values_of(size))
    n = weft.variable((), initial_value=3)
    assert (transformer.computation(w * n)() == values_of(size) * 3).all()
    assert names == ["computation"]
    doubled = weft.variable((size,), initial_value=w * 2)
    assert (transformer.computation(doubled + n)() == values_of(size) * 2 + 3).all()
    assert names == ["computation", "computation", "init"]


def test_writing_changes_neither_the_constant_nor_other_transformers(
    backend: str, size: int
) -> None:
    values = values_of(size)
    w = weft.variable((size,), initial_value=values)
    with weft.saved_user_deps():
        write = weft.assign(w, w + 1)
    first, second = weft.make_transformer(backend), weft.make_transformer(backend)
    read, increase, other = (
        first.computation(w * 1), first.computation(write), second.computation(w * 1)
    )  # fmt: skip
    assert (read() == values).all()
    assert (other() == values).all()
    for count in (1, 2):
        increase()
        assert (read() == values + count).all()
        assert (first.get_value(w) == values + count).all()
    first.set_value(w, values * 3)
    assert (read() == values * 3).all()
    assert (other() == values).all()
    second.set_value(w, values - 1)
    assert (other() == values - 1).all()
    assert (weft.make_transformer(backend).computation(w)() == values).all()


def test_the_computation_of_initial_values_can_be_called_again(backend: str, size: int) -> None:
    values = values_of(size)
    w = weft.variable((size,), initial_value=values)
    n = weft.variable((), initial_value=1)
    transformer = weft.make_transformer(backend)
    both = [weft.assign(w, w * 2 + 1), weft.assign(n, n + 1)]
    transformer.computation([w, n, *both])()
    assert transformer.init_computation is not None
    transformer.init_computation()
    assert (transformer.get_value(w) == values).all()
    assert transformer.get_value(n) == 1


def test_a_computation_that_comes_later_may_write(transformer: Any, size: int) -> None:
    values = values_of(size)
    w = weft.variable((size,), initial_value=values)
    with weft.saved_user_deps():
        write = weft.assign(w, weft.sort(-w))
    read = transformer.computation(weft.sum(w * 2))
    before = read()
    transformer.computation(write)()
    assert read() == -before
    got = transformer.get_value(w)
    got[:] = 0
    assert (transformer.get_value(w) == np.sort(-values)).all()


def test_an_allocation_that_fails_is_tried_again(
    transformer: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    values = values_of(size)
    w = weft.variable((size,), initial_value=values)
    c = transformer.computation(w + 1)
    with monkeypatch.context() as patch:
        patch.setattr(transformer, "allocate_storage", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            c()
    assert (c() == values + 1).all()


def test_numpy_shares_the_memory_of_a_constant_until_it_is_written() -> None:
    values = values_of(10_000)
    w, v = (weft.variable((10_000,), initial_value=values) for _ in range(2))
    transformer = weft.make_transformer("numpy")
    x = weft.placeholder((10_000,))
    transformer.computation(w + v + x, x)(values)

    def constant(state: Any) -> Any:
        (write,) = state.initializers
        return write.args[1].const

    def shares(state: Any) -> bool:
        tensor: Any = transformer.state_tensors[state]
        return np.shares_memory(tensor.array, constant(state))

    assert (shares(w), shares(v)) == (True, True)
    with weft.saved_user_deps():
        transformer.computation(weft.assign(w, w + 1))()
    assert (shares(w), shares(v)) == (False, True)
    transformer.set_value(v, values)
    assert not shares(v)
    assert (constant(w) == values).all()


def test_threads_see_a_state_that_moves() -> None:
    w = weft.variable((5_000,), initial_value=np.zeros(5_000))
    with weft.saved_user_deps():
        write = weft.assign(w, w + 1)
    transformer = weft.make_transformer("numpy")
    x = weft.placeholder((5_000,))
    read, pure = transformer.computation(w + x, x), transformer.computation(weft.sort(-x), x)
    increase = transformer.computation(write)
    wrong: list[Any] = []
    ones = np.ones(5_000, np.float32)

    def work() -> None:
        last = 0
        for _ in range(100):
            got = read(ones)
            if (got != got[0]).any() or got[0] - 1 < last or (pure(ones) != -1).any():
                wrong.append(got)
            last = got[0] - 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        increase()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (read(ones) == 21).all()


def test_a_backend_that_knows_nothing_of_this_copies() -> None:
    values = values_of(5_000)
    w = weft.variable((5_000,), initial_value=values)
    transformer = weft_array_api.ArrayTransformer(np)
    with weft.saved_user_deps():
        c = transformer.computation([weft.assign(w, w * 2), w])
    assert (c()[1] == values * 2).all()
    assert (c()[1] == values * 4).all()
    assert (weft_array_api.ArrayTransformer(np).computation(w)() == values).all()


def test_initializers_run_once(transformer: weft.Transformer):
    calls = []

    def first_value():
        calls.append(1)
        return 10

    w = weft.variable((), initial_value=first_value)
    weft.assign(w, w + 1)
    first, second = transformer.computation(w), transformer.computation(w * 2)
    assert first().item() == 11
    assert second().item() == 24
    assert first().item() == 13
    transformer.initialize()
    assert first().item() == 14
    assert calls == [1]
    assert transformer.init_computation.name.startswith("init")


def test_a_later_computation_brings_only_its_own_initializers(transformer: weft.Transformer):
    w = weft.variable((), initial_value=3)
    with weft.saved_user_deps():
        up = weft.assign(w, w + 1)
    transformer.computation(up)()
    v = weft.variable((), initial_value=w * 2)
    later = transformer.computation(v)
    later()
    assert transformer.get_value(w).item() == 4


def test_an_initial_value_may_depend_on_another_variable(transformer: weft.Transformer):
    w = weft.variable((), initial_value=3)
    v = weft.variable((), initial_value=w * 2)
    u = weft.variable((), initial_value=v + w)
    assert transformer.computation(u)().item() == 9
