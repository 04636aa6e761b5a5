"""The thread pool of the process, whose threads share the work of calls.

Work is divided into numbered parts, which the caller and the workers take from one iterator. The
caller does not wait for workers that have not begun when no part is left, so on a busy machine a
call takes no longer than with a single thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from weft.support.interrupts import held

Work = Callable[[Iterator[int], Any], None]


class Pool:
    """Worker threads: as many as the work with the most lanes could use."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Reset, as after a fork, which does not copy the worker threads."""
        self._count = 0
        self._executor: ThreadPoolExecutor | None = None

    def run(self, work: Work, count: int, lanes: Sequence[Any]) -> None:
        """Call ``work(parts, lane)`` in this thread and in up to ``len(lanes) - 1`` more.

        The iterators `parts` give each number below `count` to one of them. Returns when all parts
        are done. An error in any thread is raised here, after the others have ended.
        """
        parts, helpers = iter(range(count)), lanes[1:count]
        if len(helpers) > self._count:
            self._count = len(helpers)
            quiet = partial(np.seterr, all="ignore")  # as in the callers
            self._executor = ThreadPoolExecutor(self._count, "weft-numpy", quiet)
        begun: list[Future[None]] = []
        with suppress(RuntimeError):  # at interpreter exit no thread can start
            for lane in helpers:
                assert self._executor is not None, "there are helpers"
                begun.append(self._executor.submit(_take, work, parts, lane))
        try:
            _take(work, parts, lanes[0])
        finally:
            errors = [each.exception() for each in begun if not each.cancel()]
        for error in errors:
            if error is not None:
                raise error


def _take(work: Work, parts: Iterator[int], lane: Any) -> None:
    """Compute parts until none is left; after an error no thread takes another part."""
    try:
        work(parts, lane)
    except BaseException:
        for _ in parts:
            pass
        raise


pool = Pool()
"""The pool of this process."""


def parallel_for(work: Work, count: int, lanes: Sequence[Any]) -> None:
    """Run work in the pool of this process by `Pool.run`, with interrupts deferred."""
    held(pool.run, work, count, lanes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool._forget)
