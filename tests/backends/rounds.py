"""Transformers that are made and closed again and again, and what the process holds meanwhile."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft_c.runtime.device import OpenDevice

PROCESS = Path("/proc/self")


class Held(NamedTuple):
    """What the process holds."""

    files: int
    threads: int
    mappings: int
    kilobytes: int
    live: int


def held(device: OpenDevice) -> Held:
    gc.collect()
    with (PROCESS / "maps").open() as lines:
        mappings = sum(1 for _ in lines)
    pages = int((PROCESS / "statm").read_text().split()[1])
    files, threads = (len(os.listdir(PROCESS / each)) for each in ("fd", "task"))
    return Held(files, threads, mappings, pages * 4, device.live_bytes)


def rounds(make: Callable[[], Any], first: int, count: int) -> None:
    """Create, compile, call and close, with a state, an index that is checked and a constant.

    Nothing may be left behind of the rounds after the first ones.
    """
    x, at = weft.placeholder((300, 40)), weft.placeholder((7,), "int32")
    state = weft.variable((300, 40), initial_value=0)
    weft.assign(state, state + weft.tanh(x * weft.constant(np.full((40,), 0.5, "f4"))))
    results = [weft.softmax(state + x), weft.take(state, at, 0), state]
    values, places = np.ones((300, 40), np.float32), np.arange(7, dtype=np.int32)
    before = None
    for number in range(first + count):
        with make() as made:
            call = made.computation(results, x, at)
            _, taken, new = call(values, places)
            np.testing.assert_array_equal(taken, new[:7])
            with pytest.raises(weft.errors.IndexOutOfRange):
                call(values, places + 295)
            device = made.device
        del made, call
        if number == first:
            before = held(device)
    after = held(device)
    assert before is not None
    assert after.files == before.files
    assert after.threads == before.threads
    assert after.live == before.live
    assert after.mappings - before.mappings < 20
    assert after.kilobytes - before.kilobytes < 16_000  # 500 rounds that lost an array: 24,000
