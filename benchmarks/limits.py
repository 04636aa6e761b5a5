"""What is hard to beat on this machine: the rates of a copy and of a product, a call's time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from timeit import Timer

import numpy as np
from environment import cores

SPLIT_BYTES = 4_000_000
"""From how many bytes on a copy is split over all cores."""

PRODUCT_SIZE = 1024
REPEATS = 11


@dataclass(frozen=True, order=True)
class Limit:
    """The least time that some work takes, in seconds, and why."""

    seconds: float
    why: str

    def remark(self, taken: float) -> str:
        """Return the limit in words, and how near a time in seconds comes to it."""
        return f"limit {self.seconds * 1e6:.3g} us ({self.why}), {self.seconds / taken:.0%} reached"


def bytes_limit(nbytes: int) -> Limit:
    """Return the time of reading and writing so many bytes, by the rate of a copy of that size."""
    rate = copy_rate(nbytes)
    return Limit(nbytes / rate, f"{nbytes / 1e6:.3g} MB at {rate / 1e9:.0f} GB/s")


def flops_limit(flops: int) -> Limit:
    """Return the time of so many float32 operations, by the rate of a large matrix product."""
    rate = product_rate()
    return Limit(flops / rate, f"{flops / 1e6:.3g} MFLOP at {rate / 1e9:.0f} GFLOP/s")


def calls_limit(count: int) -> Limit:
    """Return the time of so many calls of NumPy, each on one number."""
    each = call_time()
    return Limit(count * each, f"{count} calls of {each * 1e6:.2g} us")


@cache
def call_time() -> float:
    """Return the seconds of a sum of two arrays of one number into a third."""
    one = np.ones(1, "f4")
    out = np.empty(1, "f4")
    return _seconds(Timer(lambda: np.add(one, one, out)))


@cache
def copy_rate(nbytes: int) -> float:
    """Return the bytes a second, read and written together, of a copy that moves so many."""
    source = np.ones(max(nbytes // 2, 1), np.uint8)
    target = np.empty_like(source)
    target.fill(0)
    if nbytes < SPLIT_BYTES:
        return nbytes / _seconds(Timer(lambda: np.copyto(target, source)))
    places = [len(source) * part // cores() for part in range(cores() + 1)]
    parts = [(target[start:end], source[start:end]) for start, end in pairwise(places)]
    with ThreadPoolExecutor(cores()) as pool:
        timer = Timer(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
        return nbytes / _seconds(timer)


@cache
def product_rate() -> float:
    """Return the operations a second of a product of large float32 matrices."""
    matrix = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), "f4")
    out = np.empty_like(matrix)
    return 2 * PRODUCT_SIZE**3 / _seconds(Timer(lambda: np.matmul(matrix, matrix, out)))


def _seconds(timer: Timer) -> float:
    """Return the fastest time of one execution."""
    timer.timeit(1)
    loops = max(1, int(0.005 / max(timer.timeit(1), 1e-9)))
    return min(timer.repeat(REPEATS, loops)) / loops
