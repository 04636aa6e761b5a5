"""An interrupt at each point of an action where Python may look at signals, one after the other.

CPython looks after calls of C functions, at the beginning of a function and where a loop jumps
back. The handler that is set then runs, as it does in earnest, so what holds interrupts back is
tried with the rest.
"""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any

Entries = list[tuple[int, int, int]]
Look = Callable[[FrameType], None]


def interrupted(action: Callable[[], Any], least: int, stride: int = 1) -> Iterator[str]:
    """Yield where an action was interrupted, for every point of it, or for one in `stride`.

    At the end raises AssertionError if the action had fewer points than `least`.
    """
    number = 0
    while (point := _Point(number)).run(action):
        yield point.place
        number += stride
    reached = number - point.left
    assert reached >= least, f"{reached} points were reached, and not {least}"


class _Point:
    """One of the points, counted from 0."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.place = ""

    def run(self, action: Callable[[], Any]) -> bool:
        """Run an action, and let the interrupt end it or come to nothing; whether there was one."""
        stop = _watch(self.look)
        try:
            action()
        except KeyboardInterrupt:
            pass
        finally:
            stop()
        return self.left < 0

    def look(self, frame: FrameType) -> None:
        """Interrupt, if this is the point."""
        if self.left < 0 or frame.f_code.co_filename == __file__:
            return
        self.left -= 1
        if self.left < 0:
            self.place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
            signal.raise_signal(signal.SIGINT)


def _watch_events(look: Look) -> Callable[[], None]:
    """Call a function wherever this thread looks at signals, as Python 3.12 and later tell.

    What the function raises is raised there. Returns the function that ends it.
    """
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    tool, events, thread = monitoring.DEBUGGER_ID, monitoring.events, threading.get_ident()

    def here(*_: Any) -> None:
        if threading.get_ident() == thread:
            look(sys._getframe(1))

    def jumped(code: CodeType, place: int, target: int) -> None:
        if target < place and threading.get_ident() == thread:
            look(sys._getframe(1))

    callbacks = {
        events.PY_START: here, events.PY_RESUME: here, events.C_RETURN: here, events.JUMP: jumped,
    }  # fmt: skip
    monitoring.use_tool_id(tool, __name__)
    for event, callback in callbacks.items():
        monitoring.register_callback(tool, event, callback)
    # Those of calls bring their returns along.
    monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.CALL | events.JUMP)

    def stop() -> None:
        monitoring.set_events(tool, 0)
        for event in callbacks:
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    return stop


def _watch_instructions(look: Look) -> Callable[[], None]:
    """Call a function at the instruction after each where this thread of Python 3.11 looks."""
    before = sys.gettrace()
    previous: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "return":
            previous.pop(frame, None)
        if event == "opcode":
            # RESUME, which stands before the first instruction, is not traced.
            place = previous.get(frame, frame.f_lasti - _WIDTH)
            previous[frame] = frame.f_lasti
            if _looks(frame.f_code, place, frame.f_lasti):
                look(frame)
        return trace

    def stop() -> None:
        sys.settrace(before)
        previous.clear()

    sys.settrace(trace)
    return stop


_WIDTH = 2
"""The bytes of an instruction."""

_watch = _watch_events if sys.version_info >= (3, 12) else _watch_instructions


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
    is_turn = name.startswith("POP_JUMP_BACKWARD") and following < place
    if not (name.startswith("CALL") or name in ("RESUME", "JUMP_BACKWARD") or is_turn):
        return False
    handlers = [
        [target for start, end, target in entries if start <= each < end]
        for each in (place, following)
    ]
    return handlers[0] == handlers[1]
