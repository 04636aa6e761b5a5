"""Profiles: whether they add up to the time of a call, and what their time stamps cost.

The sum of a profile is compared with calls of the ordinary program that are timed from outside, in
turns: the digits example, a step of a convolutional network, and a token of a LLaMA.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
from measure import Row, busy, main
from models import cnn, decoder, digits_step

import weft

EXACTNESS = 0.05
"""How far the sum of a profile may be from the time of a call."""

CALLS = 20
"""The calls of a profile, and those that are timed beside it."""


def training(model: Any, *values: Any) -> tuple[weft.Computation, Sequence[Any]]:
    """Return a training step of a model, and a batch."""
    _, step = model.program(*values).compiled()
    return step, model.data()


def token() -> tuple[weft.Computation, Sequence[Any]]:
    """Return the step that decodes a token, and a token at the last position."""
    backend = os.environ.get("WEFT_BACKEND", "numpy")
    ours = decoder.Decoder(decoder.CONFIG, decoder.parameters(), backend)
    for place in range(decoder.LAST):
        ours.decode(place, place)
    return ours.step, [np.int32([3]), np.int32(decoder.LAST)]


WORK = {
    "a step, digits": lambda: training(digits_step),
    "a step, CNN": lambda: training(cnn, cnn.parameters()),
    "a token": token,
}


def seconds(step: weft.Computation, arguments: Sequence[Any], repeat: int) -> float:
    """Return the mean time of the faster half of some calls, which is what a profile takes."""
    found = []
    for _ in range(repeat):
        start = perf_counter()
        step(*arguments)
        found.append(perf_counter() - start)
    return statistics.fmean(sorted(found)[: (repeat + 1) // 2])


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare the sums of profiles with calls that are timed from outside, round by round."""
    for what, made in WORK.items():
        step, arguments = made()
        ratios, inside = [], []
        for _ in range(max(rounds, 2)):
            call = seconds(step, arguments, CALLS)
            found = step.profile(*arguments, repeat=CALLS)
            ratios.append((sum(row.seconds for row in found.rows) + found.overhead) / call)
            inside.append(found.device_time / found.wall)
        ratio = statistics.median(ratios)
        note = "; ".join(filter(None, [f"the sum is {ratio:.3f} of a call", busy(ratios)]))
        off = abs(ratio - 1)
        yield Row(f"profile against a call, {what}", off, "of the call", EXACTNESS, note)
        yield Row(f"kernels, {what}", statistics.median(inside), "of the call")


if __name__ == "__main__":
    main(benchmark, rounds=11)
