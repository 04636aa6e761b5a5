"""An interrupt at each point of an action where Python may look at signals, one after the other.

CPython looks after calls, at the beginning of a function and where a loop jumps back. The handler
that is set then runs, as it does in earnest, so what holds interrupts back is tried with the rest.
"""

from __future__ import annotations

import dis
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from types import CodeType, FrameType
from typing import Any

Entries = list[tuple[int, int, int]]


def interrupted(action: Callable[[], Any], stride: int = 1) -> Iterator[str]:
    """Yield where an action was interrupted, for every point of it, or for one in `stride`."""
    for number in count():
        point = _Point(number * stride)
        point.run(action)
        if point.left >= 0:
            return
        yield point.place


class _Point:
    """One of the points, counted from 0."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.place = ""
        self.previous: dict[FrameType, int] = {}

    def run(self, action: Callable[[], Any]) -> None:
        """Run an action, and let the interrupt end it or come to nothing."""
        before = sys.gettrace()
        sys.settrace(self.trace)
        try:
            action()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
            self.previous.clear()

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.left < 0:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "return":
            self.previous.pop(frame, None)
        if event == "opcode":
            before = self.previous.get(frame)
            self.previous[frame] = frame.f_lasti
            if before is not None and _looks(frame.f_code, before, frame.f_lasti):
                self.left -= 1
                if self.left < 0:
                    self.place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
                    signal.raise_signal(signal.SIGINT)
        return self.trace


@cache
def _table(code: CodeType) -> tuple[dict[int, str], Entries]:
    """Return the instructions of a function by their places, and its handlers of exceptions."""
    names = {each.offset: each.opname for each in dis.get_instructions(code)}
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]
    return names, [(each.start, each.end, each.target) for each in parse(code)]


def _looks(code: CodeType, place: int, following: int) -> bool:
    """Whether Python looks at signals at the end of an instruction.

    Not where the one that follows has other handlers, since the interrupt is raised there.
    """
    names, entries = _table(code)
    name = names.get(place, "")
    if not name.startswith("CALL") and name not in ("RESUME", "JUMP_BACKWARD"):
        return False
    handlers = [
        [target for start, end, target in entries if start <= each < end]
        for each in (place, following)
    ]
    return handlers[0] == handlers[1]
