"""A rank that is interrupted in a collective goes on, and all ranks have right numbers.

The others come later. They get what it gave, although it has computed with other numbers in the
same memory since. Arguments: the backend, and a folder for marks.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.errors import CheckFailed
from weft.ops.control.effects import EffectOp
from weft.ranks.collectives import started, waited

backend, folder = sys.argv[1], Path(sys.argv[2])
ranks = connected()
mine, last = ranks.rank, ranks.size - 1
LENGTH = 200_000


class Interrupt(Exception):
    """What a handler raises that is not the one of Ctrl-C."""


def raising(*_: Any) -> None:
    """Raise where the program is."""
    raise Interrupt


def as_ctrl_c(*_: Any) -> None:
    """Do what Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


signal.signal(signal.SIGINT, signal.default_int_handler)
HANDLERS = {"signal": raising, "Ctrl-C": as_ctrl_c, "error": None}
armed: list[Any] = []


class ArmingOp(EffectOp):
    """Has a signal come when the rank waits for the others."""

    def perform(self, *values: Any) -> None:
        """Set the alarm, if there is a handler for it."""
        if armed:
            signal.signal(signal.SIGALRM, armed[-1])
            signal.setitimer(signal.ITIMER_REAL, 0.1)


def given(number: float) -> Any:
    """Return an array of a number."""
    return np.full(LENGTH, number, "float32")


transformer = weft.make_transformer(backend)
x, ok = weft.placeholder((LENGTH,)), weft.placeholder((), "bool")
summed = transformer.computation(weft.all_reduce(ArmingOp(x * 2)) + 1, x)
start = started("all_reduce", x * 3)
checked = weft.assert_op(x, ok, "only here")
later = transformer.computation(waited(start) + 0 * checked, x, ok)
local = transformer.computation(weft.exp(x * 2) * 3 + weft.exp(x), x)
total = sum(range(1, ranks.size + 1))
wanted = {"error": 3 * total}
transformer.initialize()  # all ranks compile at once

for number, (kind, handler) in enumerate([*HANDLERS.items()] * 2):
    call = later if kind == "error" else summed
    arguments = [given(mine + 1)] + ([mine != last] if kind == "error" else [])
    mark = folder / str(number)
    if mine == last:
        armed[:] = [handler] if handler else []
        with suppress(Interrupt, KeyboardInterrupt, CheckFailed):
            call(*arguments)
            raise SystemExit(f"{kind}: nothing was raised")
        armed.clear()
        for _ in range(20):
            local(given(7))
        mark.touch()
    else:
        while not mark.exists():
            time.sleep(0.01)
        assert (call(*arguments) == wanted.get(kind, 2 * total + 1)).all(), kind
    assert (summed(given(mine + 1)) == 2 * total + 1).all()
print(f"rank {mine} goes on", flush=True)
