"""CallQueue: runs calls away from the event loop that awaits them.

A call runs in a thread, where it may block. Where the system has no threads, as in a browser, it
runs when the event loop comes to it; there a device waits by giving the loop its turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from weft.errors import ArgumentError
from weft.support import source
from weft.support.backports import after_fork

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

HAS_THREADS = sys.platform not in ("emscripten", "wasi")
"""Whether the system can start threads."""
IDLE = 0.05
"""The seconds for which a thread waits for the next call, with the memory that is its own."""

_queues: WeakSet[CallQueue] = WeakSet()


class CallQueue:
    """Runs calls one after the other, in the order in which they were started."""

    def __init__(self) -> None:
        self._turns: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()
        self.forget_thread()
        _queues.add(self)

    def forget_thread(self) -> None:
        """Forget the thread and its calls, which a forked process lacks."""
        self._calls: SimpleQueue[tuple[Any, concurrent.futures.Future[Any], Any]] = SimpleQueue()
        self._starting = Lock()
        self._has_thread = False

    def start(self, call: Callable[[], Any], in_order: bool) -> asyncio.Future[Any]:
        """Start a call, and return the future of its result in the running event loop.

        A call that is not `in_order` may overtake others. Errors name the line that started it.
        Raises ArgumentError if no event loop runs.
        """
        import asyncio  # few programs need it

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            problem = "call_async returns what a coroutine awaits, and no event loop of asyncio"
            raise ArgumentError(f"{problem} is running: make an ordinary call here") from None
        context = copy_context()
        context.run(source.started_at.set, source.user_location())
        if not HAS_THREADS:
            turns = self._turns.setdefault(loop, asyncio.Lock())
            return loop.create_task(_in_turn(turns, call), context=context)
        if not in_order:
            return loop.run_in_executor(None, context.run, call)
        from concurrent.futures import Future

        future: Future[Any] = Future()
        awaited = asyncio.wrap_future(future)
        with self._starting:
            self._calls.put((awaited, future, lambda: context.run(call)))
            if not self._has_thread:
                Thread(target=self._run, name="weft calls").start()
                self._has_thread = True
        return awaited

    def _run(self) -> None:
        """Run calls until there are none."""
        while True:
            try:
                awaited, future, call = self._calls.get(timeout=IDLE)
            except Empty:
                with self._starting:
                    if self._calls.empty():
                        self._has_thread = False
                        return
                continue
            # The event loop cancels the inner future some time after the one that is awaited.
            if not awaited.cancelled() and future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del awaited, future, call


async def _in_turn(turns: asyncio.Lock, call: Callable[[], Any]) -> Any:
    async with turns:
        return call()


def _after_fork() -> None:
    for each in list(_queues):
        each.forget_thread()


after_fork(_after_fork)
