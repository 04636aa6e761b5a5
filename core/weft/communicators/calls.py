"""Calls: what a rank is doing when it exchanges an array, for the comparison with other ranks.

Two ranks may start equal collectives that do not belong together: of two computations, or of two
calls of one. So a collective carries the call that it is a part of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

RECENT = 12
"""The choices that a message shows, the last ones."""


@dataclass(eq=False, slots=True)
class RankCall:
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
    _chosen: str = ""
    _digest: int = 0

    @property
    def shown(self) -> str:
        """What it is, and what it has chosen last, as messages say it."""
        return f"{self.text} after the choices {self._chosen}" if self._chosen else self.text

    @property
    def compared(self) -> str:
        """What has to be the same on all ranks, with all that it has chosen."""
        return f"{self.key} {self._digest:x}" if self._chosen else self.key

    def decided(self, which: bool) -> None:
        """Take note of a choice between graphs with collectives, which all ranks have to make."""
        if self is not _NONE:
            self._digest = crc32(b"\1" if which else b"\0", self._digest)
            self._chosen = f"{self._chosen}{which:d}"[-RECENT:]

    def started(self, abandon: Callable[[], None]) -> None:
        """Take note of a collective that is to be waited for later, and what gives it up."""
        if self is not _NONE:
            self.abandon.append(abandon)


_NONE = RankCall()


class _Current(threading.local):
    """The call that a thread is in; programs may run in contexts of their own."""

    call = _NONE


_current = _Current()


def current_call() -> RankCall:
    """Return the call that this thread is in; an empty one if it is in none."""
    return _current.call


class within:  # noqa: N801
    """Have the collectives of a ``with`` block belong to a call.

    If it raises, those that were started and not waited for are abandoned.
    """

    __slots__ = ("_before", "call")

    def __init__(self, call: RankCall) -> None:
        self.call = call

    def __enter__(self) -> None:
        self._before, _current.call = _current.call, self.call

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _current.call = self._before
        if kind is not None:
            for abandon in self.call.abandon:
                abandon()
