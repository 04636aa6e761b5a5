"""Limits NumPy's BLAS to one thread while calls use weft's own threads.

BLAS's threads spin for a while after a matrix product, which takes the cores from the other work of
a call.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any


class SingleThreadedBlas:
    """Limits NumPy's BLAS to one thread while any call needs that."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._libraries: list[Any] | None = None
        self._before: list[tuple[Any, int]] = []

    def during(self, function: Callable[..., None], *args: Any) -> None:
        """Call a function while BLAS has one thread; the last concurrent call restores it."""
        with self._lock:
            if not self._users:
                self._limit()
            self._users += 1
        try:
            function(*args)
        finally:
            with self._lock:
                if self._users == 1:
                    self._restore()
                self._users = max(self._users - 1, 0)  # a fork in the call has reset it

    def _limit(self) -> None:
        if self._libraries is None:
            from threadpoolctl import ThreadpoolController

            libraries = ThreadpoolController().select(user_api="blas").lib_controllers
            self._libraries = list(libraries)
        counts = [(library, library.num_threads) for library in self._libraries]
        self._before = [(library, count) for library, count in counts if count > 1]
        for library, _ in self._before:
            _set(library, 1)

    def _restore(self) -> None:
        for library, count in self._before:
            _set(library, count)
        self._before = []

    def _forget(self) -> None:
        """Reset after a fork, in which the calls of other threads do not continue."""
        self._lock = threading.RLock()
        self._users = 0
        self._restore()


def _set(library: Any, count: int) -> None:
    """Set the number of BLAS threads, in any thread.

    Others are ignored where it is that of the process, as in OpenBLAS. Here the last call
    to end may be in another thread than the first to begin.
    """
    getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


blas = SingleThreadedBlas()
"""The limit on the BLAS of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=blas._forget)
