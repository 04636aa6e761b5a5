"""Pauses the garbage collector while graphs are built and compiled."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 50_000
"""The number of new objects from which on it pays to spare the collector a look at them."""

_lock = threading.Lock()
_pauses = 0
_was_enabled = False
_aged = (-1, 0)
"""When objects were last moved, counted in full collections, and how many these were."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Turn the cyclic garbage collector off until the last of nested or parallel pauses ends."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses = max(_pauses - 1, 0)  # a fork in the pause has reset it
            if not _pauses and _was_enabled:
                try:
                    _age(gc.get_count()[0])
                finally:
                    gc.enable()


def _forget() -> None:
    """Begin without pauses, as after a fork, in which no other thread ends its own."""
    global _lock, _pauses
    _lock = threading.Lock()
    if _pauses and _was_enabled:
        gc.enable()
    _pauses = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _age(young: int) -> None:
    """Move all objects to the oldest generation, which takes no time.

    Left among the young, those of a large graph would be walked three times in a row, once for each
    generation. Without a full collection in between it takes twice as many objects as the last
    time, so that no garbage piles up. Not if the user has frozen objects: that would be undone.
    """
    global _aged
    now = gc.get_stats()[2]["collections"]
    before, least = _aged
    if young > (2 * least if now == before else MANY) and not gc.get_freeze_count():
        _aged = (now, young)
        gc.freeze()
        gc.unfreeze()
