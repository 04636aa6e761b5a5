"""Decoding of one token of a LLaMA-2-style decoder: weft against NumPy by hand.

The limit is bytes: each weight is used once, so a token takes at least as long as reading them all,
and all keys and values. How fast memory can be read is measured in the same rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from environment import cores
from limits import bytes_limit
from measure import Row, interleaved, main, ratios
from models import decoder

GOAL = 1.2
MOST_OVER_READING = 1.5
WHAT = "a token"
TOKEN = 3


def reading(nbytes: int) -> Callable[[], object]:
    """Return what reads so many bytes once, each core its part, as fast as NumPy can."""
    numbers = np.ones(nbytes // 8, np.int64)
    parts = np.array_split(numbers, cores())
    pool = ThreadPoolExecutor(len(parts))
    return lambda: list(pool.map(np.bitwise_or.reduce, parts))


def against_reading(decode: Callable[[], object], rounds: int) -> Iterator[Row]:
    """Compare with reading all weights; the threads of a BLAS, which spin, have not begun yet."""
    backend, nbytes = os.environ.get("WEFT_BACKEND", "numpy"), decoder.read_bytes()
    samples = interleaved({"weft": decode, "reading": reading(nbytes)}, rounds)
    rate = nbytes / samples.median("reading")
    goal = None if backend == "numpy" else MOST_OVER_READING
    note = "; ".join(filter(None, [f"read at {rate / 1e9:.0f} GB/s", samples.noise()]))
    yield Row(f"weft over reading, {WHAT}", samples.ratio("weft", "reading"), "x", goal, note)


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare times with reading all weights once, and with NumPy by hand."""
    weights = decoder.parameters()
    ours = decoder.Decoder(decoder.CONFIG, weights, os.environ.get("WEFT_BACKEND", "numpy"))
    found = [ours.decode(place, place).copy() for place in range(decoder.LAST)][-1]
    yield from against_reading(lambda: ours.decode(TOKEN, decoder.LAST), rounds)
    rivals = {
        "by hand": decoder.ByHand(weights),
        "by hand, joined": decoder.ByHand(weights, joined=True),
    }
    for rival in rivals.values():
        expected = [rival(place, place) for place in range(decoder.LAST)][-1]
        np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    samples = interleaved(
        {"weft": lambda: ours.decode(TOKEN, decoder.LAST)}
        | {name: partial(rival, TOKEN, decoder.LAST) for name, rival in rivals.items()},
        rounds,
    )
    goals = {"by hand": GOAL, "by hand, joined": None}
    yield from ratios(samples, goals, WHAT, bytes_limit(decoder.read_bytes()))
    yield Row(f"tokens a second, {WHAT}", 1 / samples.median("weft"), "")
    plan = ours.step.plan
    yield Row("arena over the most that is alive", plan.arena_size / plan.peak_live, "x", 1.05)


if __name__ == "__main__":
    main(benchmark, rounds=15)
