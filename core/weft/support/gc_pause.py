"""Pauses the garbage collector while graphs are built and compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from weft.support.backports import after_fork

MANY = 50_000
"""The number of new objects from which on it pays to spare the collector a look at them."""

FEW = 1_000
"""More frozen objects than the interpreter's own, which Python 3.12 freezes when it starts."""

_is_paused = False
"""Whether a pause has turned the collector off."""

_aged = (-1, 0)
"""When objects were last moved, counted in full collections, and how many these were."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Turn the cyclic garbage collector off; the pause that did so turns it on again at its end.

    Wherever an interrupt comes the collector is on afterwards: it is turned off where the end is
    already certain, and nothing that Python looks at signals after stands before it is turned on.
    Of the pauses of several threads, those that began later may go on with the collector on.
    """
    global _is_paused
    was_enabled = gc.isenabled()
    try:
        _is_paused = _is_paused or was_enabled
        gc.disable()
        yield
    finally:
        if was_enabled:
            try:
                _age(gc.get_count()[0])
            finally:
                _is_paused = False
                gc.enable()


def _forget() -> None:
    """End the pause in a forked process, in which no other thread ends its own."""
    global _is_paused
    if _is_paused:
        gc.enable()
    _is_paused = False


after_fork(_forget)


def _age(young: int) -> None:
    """Move all objects to the oldest generation, which takes no time.

    Left among the young, those of a large graph would be walked three times in a row, once for each
    generation. Without a full collection in between it takes twice as many objects as the last
    time, so that no garbage piles up. Not if the user has frozen objects: that would be undone.
    """
    global _aged
    now = gc.get_stats()[2]["collections"]
    before, least = _aged
    if young > (2 * least if now == before else MANY) and gc.get_freeze_count() < FEW:
        _aged = (now, young)
        gc.freeze()
        gc.unfreeze()
