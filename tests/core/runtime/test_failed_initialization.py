"""An error while a transformer compiles or allocates leaves it usable."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import (
    StateError,
    UnknownPluginError,
    UnsupportedOpError,
)


def x(*shape: Any, dtype: Any = "float32") -> Any:
    return weft.placeholder(shape, dtype=dtype)


def test_an_unknown_backend_or_pass():
    with pytest.raises(ValueError, match="numpi") as caught:
        weft.make_transformer("numpi")
    assert isinstance(caught.value, UnknownPluginError)
    assert "'numpy'" in str(caught.value)
    with pytest.raises(UnknownPluginError, match=r"simple-prun.*'simple-prune'"):
        weft.make_transformer("numpy", passes=["simple-prun"])
    with pytest.raises(weft.errors.ArgumentError, match="color"):
        weft.make_transformer("numpy", color=3)


class UnruledOp(weft.TensorOp):
    """An op without a rule in any backend."""

    def infer(self):
        return self.args[0].axes, self.args[0].dtype


def test_ops_without_a_rule_are_all_listed_and_stop_nobody_else(transformer: weft.Transformer):
    a = x(2)
    first, second = UnruledOp(a), UnruledOp(a * 2)
    bad = transformer.computation([first, second], a)
    good = transformer.computation(a + 1, a)
    for _ in range(2):
        with pytest.raises(UnsupportedOpError) as caught:
            bad([1, 2])
        assert str(caught.value).count("UnruledOp on") == 2
        assert first.file_info in str(caught.value)
        assert second.file_info in str(caught.value)
        assert good([1, 2]).tolist() == [2, 3]
    assert transformer.computation(a * 3, a)([1, 2]).tolist() == [3, 6]


def test_a_second_try_has_memory_of_its_own(
    transformer: weft.Transformer, monkeypatch: pytest.MonkeyPatch
):
    a = x(300)
    twice = transformer.computation(a * np.arange(300, dtype="float32"), a)
    program = twice.programs[()]
    with monkeypatch.context() as patch:
        patch.setattr(transformer, "finish_transform", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            twice(np.ones(300, "f4"))
        assert not program.storages
    assert twice(np.ones(300, "f4"))[299] == 299
    assert set(program.storages) <= set(program.buffers)


STEPS = [
    "run_registered_graph_passes", "initialize_tensor_descriptions", "start_transform_allocate",
    "finish_transform_allocate", "transform_ordered_ops", "finish_transform", "allocate_storage",
    "allocate",
]  # fmt: skip


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("warm", [False, True], ids=["first", "later"])
def test_an_exception_in_the_middle_of_initialization(
    transformer: weft.Transformer,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Any],
    step: str,
    after: bool,
    warm: bool,
):
    a = x(64)
    state = weft.variable((64,), initial_value=1)
    weft.assign(state, state + 1)
    if warm:
        transformer.computation(weft.sum(state))()
    y = weft.tanh(a * state)
    c = transformer.computation([weft.sum(y) + weft.exp(y), state], a)
    real = getattr(transformer, step)

    def fails(*arguments: Any) -> Any:
        if after:
            real(*arguments)
        raise error("once")

    value = np.linspace(0, 1, 64, dtype=np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(transformer, step, fails)
        for _ in range(2):
            with pytest.raises(error, match="once"):
                c(value)
    got, updated = c(value)
    expected = np.tanh(value * (2 + warm))
    np.testing.assert_allclose(got, expected.sum() + np.exp(expected), rtol=1e-4)
    assert updated.tolist() == [2 + warm] * 64
    assert c(value)[1][0] == 3 + warm
    assert all(storage.allocated for storage in transformer.device_buffers)


class Lost(Exception):
    """An error that can be referred to weakly."""


LENGTH = weft.symbol("length")
ATTEMPTS = {
    "a call": (3, lambda made, computation: computation([1, 2, 3])),
    "a call of any length": (LENGTH, lambda made, computation: computation([1, 2, 3])),
    "a result that is given": (
        3,
        lambda made, computation: computation([1, 2, 3], out=np.ones(3, "f4")),
    ),
    "a program": (3, lambda made, computation: computation.program),
    "initialization": (3, lambda made, computation: made.initialize()),
}


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("name", ATTEMPTS)
def test_nobody_keeps_an_error(
    name: str, others: int, transformer: weft.Transformer, monkeypatch: pytest.MonkeyPatch
):
    """Its traceback holds the frames of all who called; the collector need not run to free them."""
    length, attempt = ATTEMPTS[name]
    a = x(length)
    computation = transformer.computation(a * 2, a)
    for _ in range(others):
        transformer.computation(a * 3, a, axes={length: 4} if length is LENGTH else None)

    def fails() -> None:
        raise Lost

    def failed() -> Any:
        try:
            attempt(transformer, computation)
        except Lost as error:
            return weakref.ref(error)

    monkeypatch.setattr(transformer, "finish_transform", fails)
    gc.disable()
    try:
        errors = [failed()]
        if name != "initialization":
            errors.append(failed())
        assert [error() for error in errors] == [None] * len(errors)
    finally:
        gc.enable()


def test_an_initializer_that_fails_runs_again(
    transformer: weft.Transformer, monkeypatch: pytest.MonkeyPatch
):
    state = weft.variable((2,), initial_value=weft.constant([1.0, 2.0]) + 0)
    c = transformer.computation(state * 2)
    real = transformer.transform_ordered_ops

    def broken(program: Any, steps: Any, name: str) -> Any:
        run = real(program, steps, name)
        if not name.startswith("init"):
            return run

        def fails(*arrays: Any) -> None:
            raise OSError("lost the device")

        return fails

    with monkeypatch.context() as patch:
        patch.setattr(transformer, "transform_ordered_ops", broken)
        for _ in range(2):
            with pytest.raises(OSError, match="lost the device"):
                c()
    assert c().tolist() == [2, 4]


def test_strict_finalize():
    strict = weft.make_transformer("numpy", strict_finalize=True)
    a = x()
    c = strict.computation(a + 1, a)
    assert c(1).item() == 2
    with pytest.raises(StateError, match="finalized") as caught:
        strict.computation(a + 2, a)
    assert f'File "{__file__}", line' in str(caught.value)
    assert c(2).item() == 3
    assert len(strict.computations) == 1
