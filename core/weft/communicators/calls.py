"""Calls: what a rank is doing when it exchanges an array, for the comparison with other ranks.

Two ranks may start equal collectives that do not belong together: of two computations, or of two
calls of one. So a collective carries the call that it is a part of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(eq=False)
class Call:
    """A call of a computation, or other work, in which a rank exchanges arrays.

    Attributes
    ----------
    text
        What it is, as messages say it; it may differ between ranks.
    key
        What of it has to be the same on all ranks.
    abandon
        What gives up the collectives that it has started, unless they were waited for.
    """

    text: str = ""
    key: str = ""
    abandon: list[Callable[[], None]] = field(default_factory=list)

    def started(self, abandon: Callable[[], None]) -> None:
        """Take note of a collective that is to be waited for later, and what gives it up."""
        if self is not _NONE:
            self.abandon.append(abandon)


_NONE = Call()


class _Current(threading.local):
    """The call that a thread is in; programs may run in contexts of their own."""

    call = _NONE


_current = _Current()


def current_call() -> Call:
    """Return the call that this thread is in; an empty one if it is in none."""
    return _current.call


@contextmanager
def within(call: Call) -> Iterator[None]:
    """Have the collectives of the ``with`` block belong to a call.

    If it raises, those that were started and not waited for are abandoned.
    """
    before, _current.call = _current.call, call
    try:
        yield
    except BaseException:
        for abandon in call.abandon:
            abandon()
        raise
    finally:
        _current.call = before
