"""A loop on a device is queued a bounded time ahead, so that an interrupt ends it soon."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft_c.runtime import queue_limit
from weft_c.runtime.queue_limit import BATCH_SECONDS, QueueLimit


class Device:
    """A device with a queue and a clock, on which an iteration takes some seconds.

    The host queues an iteration in no time, so the device alone moves the clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.ends = self.most_ahead = 0.0
        self.waits = 0
        monkeypatch.setattr(queue_limit, "perf_counter", lambda: self.now)

    def marker(self) -> Callable[[], None]:
        ends = self.ends

        def wait() -> None:
            self.waits += 1
            assert ends < self.ends, "the device runs out of work while the host waits"
            self.now = max(self.now, ends)

        return wait

    def run(self, limit: QueueLimit, iterations: int, seconds: float) -> None:
        limit.begin()
        for _ in range(iterations):
            self.ends = max(self.ends, self.now) + seconds
            self.most_ahead = max(self.most_ahead, self.ends - self.now)
            limit.iteration_queued()


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 3e-3, 0.04])
def test_a_loop_is_queued_at_most_two_batches_ahead(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    limit: Any = QueueLimit(device)  # type: ignore[arg-type]
    iterations = int(5 / seconds)
    device.run(limit, iterations, seconds)
    assert device.most_ahead <= 2 * BATCH_SECONDS + seconds
    assert device.waits < 5 / (BATCH_SECONDS / 2) + 25
    before = device.waits
    device.run(limit, iterations, seconds)
    assert device.waits - before <= 5 / (BATCH_SECONDS / 2), "a later run knows the size"


def test_iterations_that_take_longer_than_a_batch_are_queued_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Device(monkeypatch)
    limit: Any = QueueLimit(device)  # type: ignore[arg-type]
    device.run(limit, 1000, 1e-4)
    assert limit.batch > 100
    device.run(limit, 2000, 1.0)
    assert limit.batch == 1


@pytest.mark.needs("opencl")
def test_an_interrupt_ends_a_long_loop_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop takes a minute or more; on a busy machine the rest of a call may take seconds."""
    x, value = weft.placeholder((512, 512)), weft.placeholder((512, 512))
    body = weft.capture([weft.tanh(value) + 0.5 * weft.sin(value)], [value])
    begin = QueueLimit.begin
    interrupted = []

    def interrupt() -> None:
        interrupted.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def begin_and_interrupt(limit: QueueLimit) -> None:
        threading.Timer(0.5, interrupt).start()
        begin(limit)

    monkeypatch.setattr(QueueLimit, "begin", begin_and_interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with weft.make_transformer("opencl") as transformer:
            computation = transformer.computation(weft.loop(body, 200_000, x)[0], x)
            with pytest.raises(KeyboardInterrupt):
                computation(np.ones((512, 512), np.float32))
        assert time.monotonic() - interrupted[0] < 8
    finally:
        signal.signal(signal.SIGINT, handler)
