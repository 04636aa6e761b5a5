"""Two threads, of which the second begins while the first is at a line, one line after another."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from types import FrameType, ModuleType
from typing import Any

TURN = 0.02
"""Seconds that the second thread has to come to its end, or to where it waits for the first."""
PATIENCE = 60
"""Seconds after which threads are taken to wait for each other."""

Action = Callable[[], Any]
Place = ModuleType | Callable[..., Any]
Outcome = Future[Any]


def interleavings(
    make: Callable[[], tuple[Action, Action, Any]], *where: Place
) -> Iterator[tuple[Outcome, Outcome, Any]]:
    """Yield what came of two actions in two threads, for each line at which the second one begins.

    `make` gives the actions, anew each time, and what else the caller wants back. `where` are
    functions, or modules: the first action pauses at a line of them.
    """
    for lines in itertools.count():
        first, second, rest = make()
        pausing = _Pausing(lines, where, second)
        found = _outcome(lambda run=pausing.run, action=first: run(action))
        if pausing.second is None:
            found.result()
            return
        assert not wait([pausing.second], PATIENCE).not_done, f"stuck since {pausing.line}"
        yield found, pausing.second, rest


class _Pausing:
    """Runs an action; at a line, lets another one run in a thread of its own first."""

    def __init__(self, lines: int, where: tuple[Place, ...], other: Action) -> None:
        self.lines = lines
        self.files = {each.__file__ for each in where if isinstance(each, ModuleType)}
        self.codes = {each.__code__ for each in where if not isinstance(each, ModuleType)}
        self.other = other
        self.second: Outcome | None = None
        self.line = ""

    def run(self, action: Action) -> Any:
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            return action()
        finally:
            sys.settrace(before)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if self.second or not (code in self.codes or code.co_filename in self.files):
            return None
        if event == "line":
            if not self.lines:
                self.line = f"{code.co_filename}, line {frame.f_lineno}"
                self.pause()
            self.lines -= 1
        return self.trace

    def pause(self) -> None:
        self.second = Future()
        thread = threading.Thread(target=_outcome, args=(self.other, self.second), daemon=True)
        thread.start()
        thread.join(TURN)


def _outcome(action: Action, found: Outcome | None = None) -> Outcome:
    """Return what came of an action."""
    found = Future() if found is None else found
    try:
        found.set_result(action())
    except Exception as error:
        found.set_exception(error)
    return found
