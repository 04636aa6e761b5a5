"""A process that is forked while other threads work computes, or says why not; it never waits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
from needs import skip_without_backend

from weft.support.locks import cached_property, renew, renewed

pytestmark = [pytest.mark.slow, pytest.mark.needs("posix")]

HEAD = """
import faulthandler, gc, os, signal, sys, threading, time, warnings
import numpy as np
import weft
from weft.ops.control.effects import EffectOp
warnings.simplefilter("ignore")
signal.signal(signal.SIGINT, signal.default_int_handler)
ones = np.ones((3,), "f4")

def step(transformer, value=lambda x: x):
    x, state = weft.placeholder((3,)), weft.variable((3,), initial_value=0)
    weft.assign(state, state + value(x))
    call = transformer.computation(state, x)
    call(ones)
    return call, state

def forked(child):
    pid = os.fork()
    if pid == 0:
        faulthandler.dump_traceback_later(60, exit=True)
        child()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def refused(kind, action):
    try:
        action()
    except kind as error:
        print(error.problem)
    else:
        raise AssertionError("no error")
"""

WAITING = """
inside, go = threading.Event(), threading.Event()

class WaitingOp(EffectOp):
    def perform(self, x):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go.wait(60)

"""


def run(text: str) -> list[str]:
    """Return the lines that a script prints, none of which `os._exit` may lose."""
    command = [sys.executable, "-u", "-c", HEAD + text]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not found.stderr, found.stderr
    assert found.returncode == 0
    return found.stdout.splitlines()


STRICT = """
import array_api_strict, weft_array_api
from weft import plugins

class StrictTransformer(weft_array_api.ArrayTransformer):
    transformer_name = "array-api-strict"

    @classmethod
    def namespace(cls):
        return array_api_strict

class StrictPlugin:
    @plugins.hookimpl
    def weft_register_backends(self, register):
        register(StrictTransformer.transformer_name, StrictTransformer)

plugins.register(StrictPlugin())
"""

IN_MEMORY = ("numpy", "native", "array-api-strict")
"""The backends whose memory a fork copies."""


def with_backend(name: str, text: str) -> str:
    """Return a script for a backend, which it calls `backend`; skips the test without it."""
    if name == "array-api-strict":
        return f"{STRICT}\nbackend = {name!r}\n{text}"
    skip_without_backend(name)
    return f"backend = {name!r}\n{text}"


@pytest.mark.parametrize("backend", IN_MEMORY)
def test_while_another_thread_is_in_a_stateful_call(backend: str) -> None:
    found = run(
        WAITING
        + with_backend(
            backend,
            """
made = weft.make_transformer(backend)
call, state = step(made, WaitingOp)
thread = threading.Thread(target=call, args=(ones,))
thread.start()
assert inside.wait(60)

def child():
    for action in (lambda: call(ones), lambda: made.get_value(state), made.initialize):
        refused(weft.errors.StateError, action)
    made.close()
    other, _ = step(weft.make_transformer(backend))
    print(other(ones))

assert forked(child) == 0
go.set()
thread.join()
print(call(ones))
""",
        )
    )
    assert len(found) == 5
    assert len(set(found[:3])) == 1
    assert "another thread used this transformer when the process was forked" in found[0]
    assert found[3:] == ["[2. 2. 2.]", "[3. 3. 3.]"]


TORN = """
made = weft.make_transformer(backend)
states = [weft.variable((20_000,), initial_value=0) for _ in range(8)]
step = made.computation([weft.assign(state, state + 1) for state in states])
step()

def calling():
    while True:
        step()

threading.Thread(target=calling, daemon=True).start()

def child():
    try:
        rows = np.stack([made.get_value(state) for state in states])
    except weft.errors.StateError:
        os._exit(1)
    os._exit(0 if (rows == rows[0, 0]).all() else 2)

codes = []
for number in range(FORKS):
    time.sleep(number % 10 * 0.0003)
    codes.append(forked(child))
print([codes.count(each) for each in range(3)])
os._exit(0)
"""


@pytest.mark.parametrize("backend", IN_MEMORY)
@pytest.mark.parametrize("forks", [40, pytest.param(450, marks=pytest.mark.long)])
def test_states_are_whole_or_refused_whenever_a_fork_comes(backend: str, forks: int) -> None:
    (line,) = run(with_backend(backend, TORN.replace("FORKS", str(forks))))
    whole, refused, torn = json.loads(line)
    assert not torn
    assert refused
    assert whole + refused == forks


@pytest.mark.parametrize("backend", IN_MEMORY)
def test_while_nothing_runs(backend: str) -> None:
    assert run(
        with_backend(
            backend,
            """
made = weft.make_transformer(backend)
call, state = step(made)
assert forked(lambda: print(call(ones), made.get_value(state))) == 0
print(call(ones))
""",
        )
    ) == ["[2. 2. 2.] [2. 2. 2.]", "[2. 2. 2.]"]


def test_in_a_call() -> None:
    """The thread that forks goes on in both processes."""
    found = run(
        """
calls, pids = [], []

class ForkingOp(EffectOp):
    def perform(self, x):
        calls.append(1)
        if len(calls) == 2:
            pids.append(os.fork())

call, state = step(weft.make_transformer("numpy"), ForkingOp)
found = call(ones), call(ones)
if pids[0]:
    os.waitpid(pids[0], 0)
print(*found)
"""
    )
    assert found == ["[2. 2. 2.] [3. 3. 3.]"] * 2


def test_while_another_thread_compiles() -> None:
    found = run(
        """
def compiling():
    for number in range(10**6):
        x = weft.placeholder((3,))
        y = x
        for _ in range(20):
            y = weft.tanh(y + number)
        weft.make_transformer("numpy", cache=False).computation(y, x)(ones)

step(weft.make_transformer("numpy", cache=False))  # what is imported stays locked in a fork
threading.Thread(target=compiling, daemon=True).start()

def child():
    step(weft.make_transformer("numpy", cache=False))

for number in range(25):
    time.sleep(number * 0.0007)
    assert forked(child) == 0, number
print("done")
os._exit(0)
"""
    )
    assert found == ["done"]


def test_by_another_thread_while_interrupts_are_held_back() -> None:
    found = run(
        """
from weft.support.interrupts import held

def child():
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)

codes = []
thread = threading.Thread(target=lambda: codes.append(forked(child)))
held(lambda: (thread.start(), thread.join()))
print(codes)
"""
    )
    assert found == ["True", "[0]"]


@pytest.mark.needs("opencl")
def test_after_a_device_was_used() -> None:
    found = run(
        WAITING
        + """
made = weft.make_transformer("opencl")
call, state = step(made, WaitingOp)
thread = threading.Thread(target=call, args=(ones,))
thread.start()
assert inside.wait(60)

def child():
    global made, call
    x = weft.placeholder((3,))
    for action in (
        lambda: call(ones), lambda: made.get_value(state), lambda: made.set_value(state, ones),
        lambda: made.computation(x + 1, x), lambda: weft.make_transformer("opencl"),
    ):
        refused(weft.errors.BackendError, action)
    made.close()
    del made, call
    gc.collect()
    sys.exit(0)

assert forked(child) == 0
go.set()
thread.join()
print(call(ones))
"""
    )
    assert len(found) == 6
    assert all("start processes by the method 'spawn'" in line for line in found[:5])
    assert found[5] == "[3. 3. 3.]"


def test_a_lock_that_another_thread_holds_is_renewed_and_one_of_ones_own_is_not() -> None:
    lock = renewed(threading.RLock())
    with lock:
        assert not renew(lock)
        lock.release()
        lock.acquire()
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert renew(lock)
    assert lock.acquire(blocking=False)
    assert not renew(renewed(threading.Lock()))


def test_a_cached_property_takes_no_lock() -> None:
    begun, end = threading.Event(), threading.Event()

    class Slow:
        """Computes as long as it is let."""

        @cached_property
        def value(self) -> list[int]:
            """A list."""
            begun.set()
            assert self is other or end.wait(60)
            return []

    slow, other = Slow(), Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert begun.wait(60)
    assert other.value is other.value
    end.set()
    thread.join()
    assert slow.value is slow.value
    assert (Slow.value.__doc__, Slow.value.func(other)) == ("A list.", [])
