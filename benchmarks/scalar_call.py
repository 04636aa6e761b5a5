"""The price of a call: ``(q + 1) * 2`` on one number.

The limit is the two NumPy calls themselves, written out with positional outputs; what is above them
is checking the argument, making the result and finding memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from measure import Row, interleaved, main

import weft


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare a compiled call with bare calls of NumPy and with eager NumPy."""
    q = weft.placeholder(())
    call = weft.make_transformer("numpy").computation((q + 1) * 2, q)
    value, one, two = (np.array(number, "f4") for number in (3, 1, 2))
    assert call(value) == 8
    names = {
        "call": call, "value": value, "one": one, "two": two, "out": np.empty((), "f4"),
        "add": np.add, "multiply": np.multiply,
    }  # fmt: skip
    samples = interleaved(
        {
            "weft": "call(value)",
            "bare": "add(value, one, out); multiply(out, two, out)",
            "eager": "(value + 1) * 2",
        },
        rounds,
        names,
    )
    above = samples.difference("weft", "bare")
    yield Row("call over bare NumPy calls", above * 1e6, "us", 2.0, samples.noise())
    for name in ("weft", "bare", "eager"):
        yield Row(f"time of a call, {name}", samples.median(name) * 1e6, "us")


if __name__ == "__main__":
    main(benchmark)
