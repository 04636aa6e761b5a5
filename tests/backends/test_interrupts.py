"""A call that is interrupted leaves all states old or all new, and nothing of the process behind.

At each point where Python may look at signals, and by real signals at random moments.
"""

from __future__ import annotations

import gc
import inspect
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest
from interrupting import interrupted
from needs import skip_without_backend
from threadpoolctl import threadpool_info

import weft
import weft_array_api
from weft.ops.control.effects import EffectOp
from weft.runtime.compile_cache import MemoryCache
from weft.runtime.transformer import Transformer
from weft.support.gc_pause import gc_paused
from weft.support.interrupts import held, holding, interruptible, raise_pending

pytestmark = [pytest.mark.slow, pytest.mark.share(6)]

ROUNDS = 12


class Array(weft_array_api.ArrayTransformer):
    """The array backend on NumPy."""

    transformer_name = "array"

    @classmethod
    def namespace(cls) -> Any:
        return np


def made(backend: str) -> Transformer:
    if backend == "array":
        return Array()
    skip_without_backend(backend)
    return weft.make_transformer(backend, **{"threads": 3} if backend == "numpy" else {})


class Step:
    """A computation that writes states, each of which grows by its number where x is 1."""

    def __init__(self, backend: str, build: Callable[..., Any], size: int) -> None:
        x = weft.placeholder((size, 100))
        self.states = [weft.variable((size, 100), initial_value=0) for _ in range(4)]
        self.transformer = made(backend)
        self.call = self.transformer.computation(build(x, self.states), x)
        self.x = np.ones((size, 100), np.float32)
        self.calls = 1
        self.call(self.x)

    def run(self) -> None:
        self.call(self.x)

    def check(self) -> None:
        """Whether states are all as they were, or all new; then another call works."""
        values = {self.value(place) / (place + 1) for place in range(len(self.states))}
        assert values in ({self.calls}, {self.calls + 1})
        self.calls += int(values == {self.calls + 1}) + 1
        self.run()
        assert self.value(0) == self.calls
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def value(self, place: int) -> float:
        value = self.transformer.get_value(self.states[place])
        assert (value == value[0, 0]).all()
        return float(value[0, 0])


def together(x: Any, states: list[Any]) -> Any:
    """Return the states, whose new values are copied at the end."""
    for place, state in enumerate(states):
        weft.assign(state, state + x * (place + 1))
    return states


def in_place(x: Any, states: list[Any]) -> Any:
    """Return nothing: states are written as soon as their new values are known."""
    return [weft.assign(state, state + x * (place + 1)) for place, state in enumerate(states)]


def after_a_loop(x: Any, states: list[Any]) -> Any:
    """Carry the states through a loop."""
    carried = [weft.placeholder(x.axes) for _ in states]
    part = weft.placeholder(x.axes)
    sums = [each + part * (place + 1) for place, each in enumerate(carried)]
    found = weft.loop(weft.capture(sums, [*carried, part]), 50, *states, x / 50)
    news = [weft.round(each) for each in found]
    return [weft.assign(state, new) for state, new in zip(states, news, strict=True)]


def with_an_effect(x: Any, states: list[Any]) -> Any:
    """Look at a value on the host between writes."""
    first = weft.assign(states[0], states[0] + weft.check_finite(x))
    return [first, *in_place(x, states)[1:]]


BUILDS = {together: 20, in_place: 20, after_a_loop: 200, with_an_effect: 30}
"""With the points that a call has at least, on each backend and in each version of Python."""
BACKENDS = ["numpy", "array", "opencl"]


@pytest.fixture(autouse=True)
def _nothing_lost() -> Iterator[None]:
    """Have Python's handler, which shells take from what runs behind, and lose nothing."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = threads_of_blas()
    yield
    assert threads_of_blas() == before
    assert gc.isenabled()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, handler)


def threads_of_blas() -> list[int]:
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_anywhere_in_a_step(backend: str, build: Any) -> None:
    step = Step(backend, build, 3)
    buffers = len(step.transformer.device_buffers)
    stride = 41 if backend == "array" and build is after_a_loop else 1
    for _ in interrupted(step.run, BUILDS[build], stride):
        step.check()
    assert len(step.transformer.device_buffers) == buffers


@pytest.mark.parametrize("build", [together, in_place])
def test_an_interrupt_anywhere_in_a_step_of_several_threads(tiny: None, build: Any) -> None:
    step = Step("numpy", build, 64)
    assert "parallel_for" in step.call.source
    for _ in interrupted(step.run, 60, stride=5):
        step.check()
        assert len(step.transformer.idle_arenas) == 1  # type: ignore[attr-defined]


def test_an_interrupt_anywhere_in_a_call_without_states(tiny: None) -> None:
    x = weft.placeholder((16, 100))
    transformer: Any = weft.make_transformer("numpy", threads=3)
    call = transformer.computation(weft.softmax(weft.tanh(x)) @ weft.exp(x).T, x)
    values = np.random.default_rng(0).standard_normal((16, 100)).astype(np.float32)
    wanted = call(values)
    buffers = len(transformer.device_buffers)
    for _ in interrupted(lambda: call(values), 100, stride=7):
        np.testing.assert_array_equal(call(values), wanted)
        assert len(transformer.idle_arenas) == 1
        assert len(transformer.device_buffers) == buffers


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_anywhere_in_a_first_call(backend: str) -> None:
    """Memory, arenas and bindings are made there; the compiled program is found in the cache."""
    steps: list[Step] = []

    def first() -> None:
        again = object.__new__(Step)
        steps.append(again)
        again.calls = 0
        again.__dict__.update(states=step.states, x=step.x)
        again.transformer = made(backend)
        again.call = again.transformer.computation(step.call.graph)
        again.run()

    step = Step(backend, in_place, 3)
    for _ in islice(interrupted(first, ROUNDS * 211, stride=211), ROUNDS):
        if steps and "call" in vars(again := steps.pop()):
            again.check()


def test_an_interrupt_anywhere_in_a_pause_of_the_garbage_collector() -> None:
    def paused() -> None:
        with gc_paused(), gc_paused():
            assert not gc.isenabled()

    for place in interrupted(paused, 15):
        assert gc.isenabled(), place


def test_an_interrupt_anywhere_in_a_lock_does_not_lock_its_thread_out() -> None:
    """Since Python 3.14 one may come between the lock and the block that it guards."""
    memory = MemoryCache()
    for place in interrupted(lambda: memory.write("key", b"content"), 5):
        assert memory.lock.acquire(blocking=False), place
        memory.lock.release()


def interrupts(step: Any, count: int, seconds: float) -> int:
    """Interrupt a step at random moments, and return how often that ended a call."""
    chance = random.Random(0)
    ended = 0
    for _ in range(count):
        timer = threading.Timer(chance.uniform(0, seconds), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                step.run()
                step.calls += 1
            timer.join()
        except KeyboardInterrupt:
            ended += 1
        with suppress(KeyboardInterrupt):
            timer.join()
        values = {step.value(place) / (place + 1) for place in range(len(step.states))}
        assert len(values) == 1
        step.calls = values.pop()
        step.check()
    return ended


RANDOM = [(each, size) for each in BACKENDS for size in (3, 3000)]


@pytest.mark.parametrize(("backend", "size"), RANDOM)
def test_interrupts_at_random_moments(backend: str, size: int) -> None:
    assert interrupts(Step(backend, in_place, size), 15, 0.01) > 5


@pytest.mark.long
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize(("backend", "size"), RANDOM)
def test_a_thousand_interrupts(backend: str, size: int, build: Any) -> None:
    assert interrupts(Step(backend, build, size), 1000, 0.02) > 500


@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_long_loop_is_interrupted_between_rounds(backend: str, has_state: bool) -> None:
    count, x = weft.placeholder((8,), weft.int32), weft.placeholder((8,), weft.int32)
    limit = weft.placeholder((), weft.int32)
    condition = weft.capture([weft.max(count) < limit], [count, limit])
    body = weft.capture([count + 1], [count, limit])
    (found,) = weft.while_loop(condition, body, x, limit)
    state = weft.variable((8,), weft.int32, initial_value=7)
    results = [weft.assign(state, found)] if has_state else [found]
    with made(backend) as transformer:
        call = transformer.computation(results, x, limit)
        zeros = np.zeros(8, np.int32)
        call(zeros, np.int32(3))
        transformer.set_value(state, np.full(8, 7))
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(zeros, np.int32(2**31 - 1))
        assert time.monotonic() - began < 30
        assert (transformer.get_value(state) == 7).all()
        call(zeros, np.int32(3))


class WaitingOp(EffectOp):
    """An effect that is interrupted."""

    def perform(self, x: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the interrupt lands in code of the user")


@pytest.mark.parametrize("backend", BACKENDS)
def test_code_of_the_user_in_a_call_is_interrupted(backend: str) -> None:
    with made(backend) as transformer:
        x = weft.placeholder((3,))
        states = [weft.variable((3,), initial_value=1) for _ in range(3)]
        waited = WaitingOp(x)
        writes = [weft.assign(state, state + waited) for state in states]
        call = transformer.computation(writes, x)
        with pytest.raises(KeyboardInterrupt):
            call(np.ones(3, np.float32))
        assert all((transformer.get_value(state) == 1).all() for state in states)


# The harness


def callee() -> int:
    return 1


def calling() -> None:
    callee()
    left = 3
    while left > 0:
        left -= 1
    len(())


def line_of(text: str) -> int:
    """Return the number of a line of `calling`."""
    lines, first = inspect.getsourcelines(calling)
    return first + next(place for place, line in enumerate(lines) if text in line)


def test_functions_loops_and_calls_are_interrupted() -> None:
    places = Counter(interrupted(calling, 5))
    lines = Counter({int(place.rpartition(" ")[2]): count for place, count in places.items()})
    assert all(place.startswith(__file__) for place in places)
    assert lines[callee.__code__.co_firstlineno] or lines[callee.__code__.co_firstlineno + 1]
    assert lines[line_of("while")] + lines[line_of("-= 1")] >= 2
    assert lines[line_of("len(")] == 1


def test_points_that_were_not_reached_are_missed() -> None:
    with pytest.raises(AssertionError, match="points were reached, and not 1000"):
        list(interrupted(calling, 1000))
    assert len(list(interrupted(calling, 5, stride=2))) >= 3


# The handler


def test_what_is_held_is_raised_at_the_end() -> None:
    done = []

    def work() -> None:
        signal.raise_signal(signal.SIGINT)
        held(signal.raise_signal, signal.SIGINT)
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        held(work)
    assert done == [1]
    held(raise_pending)


def test_inside_of_what_is_held_a_part_may_be_interruptible_and_a_part_of_that_held() -> None:
    done = []

    def inner() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("held")

    def outer() -> None:
        with pytest.raises(KeyboardInterrupt):
            interruptible(held, inner)
        done.append("still held")
        inner()

    with pytest.raises(KeyboardInterrupt):
        held(outer)
    assert done == ["held", "still held", "held"]
    assert not holding.is_open


def test_a_handler_that_does_not_raise() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        held(signal.raise_signal, signal.SIGINT)
        assert seen == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        held(signal.raise_signal, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    def handler(number: int, frame: Any) -> None:
        raise AssertionError

    before = signal.getsignal(signal.SIGINT)
    try:
        held(interruptible, signal.signal, signal.SIGINT, handler)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_hold_nothing() -> None:
    found: list[Any] = []
    thread = threading.Thread(target=held, args=(lambda: found.append(signal.getsignal(2)),))
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
