"""The thread pool of the process, whose threads share the work of calls.

Work is divided into numbered parts, which the caller and the workers take from one iterator. The
caller does not wait for workers that have not begun when no part is left, so on a busy machine a
call takes no longer than with a single thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import numpy as np

from weft.support.interrupts import held

Work = Callable[..., None]


class _Job:
    """A piece of work in parts.

    Attributes
    ----------
    tickets
        The scratch memory of each worker that may still begin; a worker begins by taking one.
    errors
        The outcome of each worker that began: an error or None.
    ended
        As many items, to wait for; an interrupt may take one and lose it.
    """

    __slots__ = ("arrays", "ended", "errors", "lanes", "parts", "tickets", "work")

    def __init__(
        self, work: Work, parts: Iterator[int], lanes: Sequence[Any], arrays: tuple[Any, ...]
    ) -> None:
        self.work = work
        self.parts = parts
        self.lanes = lanes
        self.arrays = arrays
        self.tickets: list[int] = []
        self.errors: list[BaseException | None] = []
        self.ended: SimpleQueue[None] = SimpleQueue()

    def run(self, lane: int) -> BaseException | None:
        """Compute parts until none is left; after an error no thread takes another part."""
        try:
            self.work(self.parts, self.lanes[lane], *self.arrays)
        except BaseException as error:
            for _ in self.parts:
                pass
            return error
        return None

    def join(self) -> None:
        """Join as a worker, unless the work is done."""
        with suppress(IndexError):
            lane = self.tickets.pop()
            self.errors.append(self.run(lane))
            self.ended.put(None)

    def end(self, helpers: int) -> list[BaseException]:
        """Admit no more workers, wait for those that began, and return their errors."""
        with suppress(IndexError):
            while True:
                self.tickets.pop()
                helpers -= 1
        interrupts: list[BaseException] = []
        while len(self.errors) < helpers:
            try:
                self.ended.get()
            except KeyboardInterrupt as interrupt:  # workers still use the memory of this call
                interrupts.append(interrupt)
        return [each for each in (*interrupts, *self.errors) if each is not None]


class Pool:
    """Worker threads: as many as the work with the most lanes could use."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Reset after a fork, which does not copy the worker threads."""
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._growing = threading.RLock()
        self._count = 0

    def run(self, work: Work, count: int, lanes: Sequence[Any], *arrays: Any) -> None:
        """Call ``work(parts, lane, *arrays)`` in this thread and in up to ``len(lanes) - 1`` more.

        The iterators `parts` give each number below `count` to one of them. Returns when all parts
        are done. An error in any thread is raised here, after the others have ended.
        """
        helpers = max(min(len(lanes), count) - 1, 0)
        if helpers > self._count:
            self._grow(helpers)
        job = _Job(work, iter(range(count)), lanes, arrays)
        job.tickets.extend(range(helpers, 0, -1))
        for _ in range(helpers):
            self._jobs.put(job)
        error = job.run(0)
        errors = job.end(helpers)
        if error is None and not errors:
            return
        try:
            raise error or errors[0]
        finally:
            del error, errors

    def _grow(self, count: int) -> None:
        with self._growing, suppress(RuntimeError):  # at interpreter exit no thread can start
            while self._count < count:
                name = f"weft-numpy-{self._count + 1}"
                threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()
                self._count += 1


def _serve(jobs: SimpleQueue[_Job]) -> None:
    """Serve jobs, without floating-point warnings, as in the caller."""
    np.seterr(all="ignore")
    while True:
        jobs.get().join()


pool = Pool()
"""The pool of this process."""


def parallel_for(work: Work, count: int, lanes: Sequence[Any], *arrays: Any) -> None:
    """Run work in the pool of this process by `Pool.run`, with interrupts deferred."""
    held(pool.run, work, count, lanes, *arrays)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool._forget)
