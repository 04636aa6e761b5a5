"""Defers Ctrl-C until a call that writes states or shares work has ended.

Python runs the handlers of signals in the main thread, after any call and at any turn of a loop.
The one of Ctrl-C raises there, which would leave some states of a step new and others old, or a
thread without the one that waits for it. So such calls run with a handler that only takes note,
and the user's handler runs when they end, or earlier at a place where nothing has been written.
"""

from __future__ import annotations

import sys
import threading

# Those of `signal` turn numbers into enums, which takes ten times as long.
from _signal import getsignal, signal  # type: ignore[import-not-found]
from _thread import get_ident
from collections.abc import Callable
from signal import SIGINT as _SIGINT
from typing import Any, TypeVar

from weft.support.backports import after_fork

Result = TypeVar("Result")

SIGINT = int(_SIGINT)


class Holding:
    """The handler of a call that holds interrupts back.

    Attributes
    ----------
    handler
        The handler that the call found.
    is_open
        Whether interrupts are let through, to that handler.
    is_pending
        Whether there was one when they were not.
    main
        The thread that runs handlers.
    """

    handler: Any = None
    is_open = False
    is_pending = False

    def __init__(self) -> None:
        self.main = threading.main_thread().ident

    def __call__(self, number: int, frame: Any) -> None:
        """Let an interrupt through, or take note of it."""
        if self.is_open:
            self.handler(number, frame)
        else:
            self.is_pending = True

    def let_through(self) -> None:
        """Run the handler that the call found, which need not raise."""
        self.is_pending = False
        self.handler(SIGINT, sys._getframe(1))

    def renew(self) -> None:
        """Begin anew in a forked process, whose only thread is the main one.

        If another thread held interrupts back it will not end that.
        """
        if self.main != get_ident() and getsignal(SIGINT) is self:
            signal(SIGINT, self.handler)
        self.main = get_ident()


holding = Holding()
"""That of this process, which has one main thread."""

after_fork(holding.renew)


def held(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function; an interrupt that comes meanwhile is raised when it ends.

    Or earlier: by `raise_pending`, or in what `interruptible` calls. In other threads than the main
    one there is nothing to hold back, nor where a process handles interrupts other than in Python.
    """
    if get_ident() != holding.main:
        return function(*args)
    handler = getsignal(SIGINT)
    if handler is holding:
        return _held_again(function, *args)
    if not callable(handler):
        return function(*args)
    holding.handler, holding.is_pending, holding.is_open = handler, False, False
    signal(SIGINT, holding)
    try:
        return function(*args)
    finally:  # nothing lands before the handler is back
        if getsignal(SIGINT) is holding:  # the user may have set another one
            signal(SIGINT, handler)
        if holding.is_pending:
            holding.let_through()


def _held_again(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function inside of another one that is held."""
    if not holding.is_open:
        return function(*args)
    holding.is_open = False
    try:
        return function(*args)
    finally:
        holding.is_open = True
        if holding.is_pending:
            holding.let_through()


def interruptible(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function inside of one that is held; where this one is, interrupts land at once."""
    if get_ident() != holding.main or holding.is_open or getsignal(SIGINT) is not holding:
        return function(*args)
    holding.is_open = True
    try:
        if holding.is_pending:
            holding.let_through()
        return function(*args)
    finally:
        holding.is_open = False


def raise_pending() -> None:
    """Let an interrupt through that is held back, where a call may end: no state is written yet."""
    if holding.is_pending and get_ident() == holding.main and getsignal(SIGINT) is holding:
        holding.let_through()
