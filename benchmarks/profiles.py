"""Profiles: whether they add up to the time of a call, and what their time stamps cost.

The sum of a profile is compared with calls of the ordinary program that are timed from outside, in
the same minute: the digits example, a step of a convolutional network, and a token of a LLaMA.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from measure import Row, interleaved, main
from models import cnn, decoder, digits_step

import weft

EXACTNESS = 0.05
"""How far the sum of a profile may be from the time of a call."""


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


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare the sums of profiles with calls that are timed from outside."""
    for what, made in WORK.items():
        step, arguments = made()
        found = step.profile(*arguments, repeat=10 * rounds)
        timed = interleaved({"call": lambda step=step, of=arguments: step(*of)}, rounds)
        # Profiles are means over the faster half of the calls.
        call = statistics.fmean(sorted(timed.seconds["call"])[: (rounds + 1) // 2])
        total = sum(row.seconds for row in found.rows) + found.overhead
        note = f"the sum is {total / call:.3f} of a call"
        off = abs(total / call - 1)
        yield Row(f"profile against a call, {what}", off, "of the call", EXACTNESS, note)
        inside = found.device_time / found.wall
        yield Row(f"kernels, {what}", inside, "of the call")


if __name__ == "__main__":
    main(benchmark, rounds=11)
