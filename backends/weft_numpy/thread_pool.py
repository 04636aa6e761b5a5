"""Worker threads of the process, which share the work of calls.

Work is divided into numbered parts, which the caller and the workers take from one iterator. The
caller does not wait for workers that have not begun when no part is left, so on a busy machine a
call takes no longer than with a single thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from weft.support.interrupts import held

Work = Callable[[Iterator[int], Any], None]


def parallel_for(work: Work, count: int, lanes: Sequence[Any]) -> None:
    """Call ``work(parts, lane)`` in this thread and in up to ``len(lanes) - 1`` more.

    The iterators `parts` give each number below `count` to one of them. Returns when all parts are
    done, with interrupts deferred. An error in any thread is raised after the others have ended.
    """
    held(_run, work, count, lanes)


def _run(work: Work, count: int, lanes: Sequence[Any]) -> None:
    parts, helpers = iter(range(count)), lanes[1:count]
    begun: list[Future[None]] = []
    with suppress(RuntimeError):  # at interpreter exit no thread can start
        begun.extend(workers(len(helpers)).submit(_take, work, parts, lane) for lane in helpers)
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


@cache
def workers(count: int) -> ThreadPoolExecutor:
    """Return the threads that help with work, without floating-point warnings, as in the caller."""
    return ThreadPoolExecutor(count, "weft-numpy", partial(np.seterr, all="ignore"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=workers.cache_clear)  # a fork does not copy the threads
