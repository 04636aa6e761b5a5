"""A rank that is interrupted in a collective goes on, and all ranks have right numbers.

The others get what it gave, although it has computed with other numbers in the same memory since.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.errors import CheckFailed
from weft.ops.collectives import started, waited

backend = sys.argv[1]
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
transformer = weft.make_transformer(backend)
x, ok = weft.placeholder((LENGTH,)), weft.placeholder((), "bool")
summed = transformer.computation(weft.all_reduce(x * 2) + 1, x)
start = started("all_reduce", x * 3)
checked = weft.assert_op(x, ok, "only here")
later = transformer.computation(waited(start) + 0 * checked, x, ok)
local = transformer.computation(weft.exp(x * 2) * 3 + weft.exp(x), x)


def given(number: float) -> Any:
    """Return an array of a number."""
    return np.full(LENGTH, number, "float32")


transformer.initialize()
expected = sum(range(1, ranks.size + 1))
for number in range(6):
    kind = ("signal", "SIGINT", "later")[number % 3]
    if kind == "later":
        if mine == last:
            try:
                later(given(mine + 1), False)
            except CheckFailed:
                pass
            else:
                raise SystemExit("no error")
        else:
            time.sleep(0.1)
            assert (later(given(mine + 1), True) == 3 * expected).all()
    elif mine == last:
        signal.signal(signal.SIGALRM, raising if kind == "signal" else as_ctrl_c)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            summed(given(mine + 1))
        except (Interrupt, KeyboardInterrupt):
            pass
        else:
            raise SystemExit("no interrupt")
    else:
        time.sleep(0.4)
        assert (summed(given(mine + 1)) == 2 * expected + 1).all()
    if mine == last:
        for _ in range(20):
            local(given(7))
    assert (summed(given(mine + 1)) == 2 * expected + 1).all()
print(f"rank {mine} goes on", flush=True)
