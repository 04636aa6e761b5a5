"""Threads do every part once, whatever happens around them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from operator import length_hint
from typing import Any

import numpy as np
import pytest

from weft_numpy.thread_pool import parallel_for, workers

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_every_part_is_done_once_and_each_lane_has_one_thread(lanes: int, count: int) -> None:
    done: list[int] = []
    used: list[str] = []

    def work(parts: Iterator[int], lane: str) -> None:
        used.append(lane)
        done.extend(parts)

    parallel_for(work, count, [f"lane {number}" for number in range(lanes)])
    assert sorted(done) == list(range(count))
    assert len(set(used)) == len(used)
    assert used.count("lane 0") == 1


def together(lanes: int) -> Any:
    """Return work whose threads wait for each other, each in its first part."""
    meeting = threading.Barrier(lanes)

    def work(parts: Iterator[int], lane: int) -> None:
        for _ in parts:
            meeting.wait(30)

    return work


def test_all_lanes_work_at_the_same_time() -> None:
    parallel_for(together(3), 3, [0, 1, 2])
    parallel_for(together(4), 4, [0, 1, 2, 3])
    assert len(workers(3)._threads) == 3


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_when_all_have_ended(failing: int) -> None:
    begun = threading.Barrier(3)
    running = []

    def work(parts: Iterator[int], lane: int) -> None:
        for _ in parts:
            running.append(lane)
            begun.wait(30)
            if lane == failing:
                raise ZeroDivisionError(f"lane {lane}")
            time.sleep(0.02)
            running.remove(lane)
            return

    with pytest.raises(ZeroDivisionError, match=f"lane {failing}"):
        parallel_for(work, 50, [0, 1, 2])
    assert running == [failing]


def test_after_an_error_no_further_part_is_begun() -> None:
    done = []
    begun = threading.Barrier(2)

    def work(parts: Iterator[int], lane: int) -> None:
        for part in parts:
            if not done:
                begun.wait(30)
            if lane == 0:
                raise KeyError(part)
            deadline = time.monotonic() + 30
            while length_hint(parts) and time.monotonic() < deadline:
                time.sleep(0.001)
            done.append(part)

    with pytest.raises(KeyError):
        parallel_for(work, 50, [0, 1])
    assert len(done) == 1


def test_a_busy_worker_is_not_waited_for() -> None:
    started, release = threading.Event(), threading.Event()

    def block(parts: Iterator[int], lane: int) -> None:
        for part in parts:
            if part:
                started.set()
                assert release.wait(30)
            else:
                assert started.wait(30)

    blocked = threading.Thread(target=parallel_for, args=(block, 2, [0, 1]))
    blocked.start()
    assert started.wait(30)
    done: list[int] = []
    parallel_for(lambda parts, lane: done.extend(parts), 5, [0, 1])
    assert done == [0, 1, 2, 3, 4]
    release.set()
    blocked.join(30)
    assert not blocked.is_alive()


def test_calls_from_several_threads() -> None:
    totals = [0] * 8

    def call(caller: int) -> None:
        for _ in range(50):
            sums = [0, 0, 0]

            def work(parts: Iterator[int], lane: int, sums: list[int] = sums) -> None:
                sums[lane] += sum(parts)

            parallel_for(work, 20, [0, 1, 2])
            totals[caller] += sum(sums)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(60)
    assert totals == [50 * 190] * 8
    assert 1 <= len(workers(2)._threads) <= 2


def test_workers_compute_without_warnings() -> None:
    meeting = threading.Barrier(2)

    def work(parts: Iterator[int], lane: int) -> None:
        for _ in parts:
            meeting.wait(30)
            if lane:
                np.divide(np.ones(9), np.zeros(9))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_for(work, 2, [0, 1])


LARGE = """
import sys
import numpy as np
import weft

x = weft.placeholder((400, 1000))
y = x
for _ in range(3):
    y = weft.softmax(weft.tanh(y))
call = weft.make_transformer("numpy", threads=3).computation(y, x)
values = np.random.default_rng(0).standard_normal((400, 1000)).astype("f4")
expected = call(values)
"""


def run_script(text: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LARGE + text]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.needs("posix")
def test_a_forked_process_has_workers_of_its_own() -> None:
    found = run_script(
        """
import os, warnings
from weft_numpy.thread_pool import workers
assert workers(2)._threads
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    assert len(workers(2)._threads) == 0
    np.testing.assert_array_equal(call(values), expected)
    assert 1 <= len(workers(2)._threads) <= 2
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
np.testing.assert_array_equal(call(values), expected)
print("both")
"""
    )
    assert (found.stdout, found.stderr, found.returncode) == ("both\n", "", 0)


def test_the_interpreter_ends_while_calls_run() -> None:
    found = run_script(
        """
import threading
def forever():
    while True:
        call(values)
for _ in range(2):
    threading.Thread(target=forever, daemon=True).start()
call(values)
print("end")
"""
    )
    assert (found.stdout, found.returncode) == ("end\n", 0)


def test_small_work_starts_no_thread() -> None:
    found = run_script(
        """
from weft_numpy.thread_pool import workers
workers.cache_clear()
z = weft.placeholder((100, 10))
small = weft.make_transformer("numpy", threads=3).computation(weft.softmax(weft.tanh(z)), z)
small(np.ones((100, 10), "f4"))
assert not workers(2)._threads
call(values)
assert workers(2)._threads
print("fine")
"""
    )
    assert (found.stdout, found.stderr, found.returncode) == ("fine\n", "", 0)
