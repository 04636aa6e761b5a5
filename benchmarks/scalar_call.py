"""The price of a call on one number: of ``x + 1``, and of ``(x + 1) * 2`` above what it calls.

The limit is the NumPy calls themselves, written out with positional outputs; what is above them
is checking the argument, making the result and finding memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from goals import of_numpy
from measure import Row, interleaved, main

import weft


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare compiled calls with bare calls of NumPy and with eager NumPy."""
    x = weft.placeholder((1,))
    transformer = weft.make_transformer()
    one_op, two_ops = (transformer.computation(y, x) for y in (x + 1, (x + 1) * 2))
    value, one, two = (np.array([number], "f4") for number in (3, 1, 2))
    assert one_op(value) == 4
    assert two_ops(value) == 8
    names = {
        "one_op": one_op, "two_ops": two_ops, "value": value, "one": one, "two": two,
        "out": np.empty(1, "f4"), "add": np.add, "multiply": np.multiply,
    }  # fmt: skip
    samples = interleaved(
        {
            "x + 1, weft": "one_op(value)",
            "x + 1, bare": "add(value, one, out)",
            "x + 1, eager": "value + 1",
            "(x + 1) * 2, weft": "two_ops(value)",
            "(x + 1) * 2, bare": "add(value, one, out); multiply(out, two, out)",
            "(x + 1) * 2, eager": "(value + 1) * 2",
        },
        rounds,
        names,
    )
    call = samples.median("x + 1, weft")
    yield Row("call of x + 1, weft", call * 1e6, "us", of_numpy(2.0), samples.noise())
    above = samples.difference("(x + 1) * 2, weft", "(x + 1) * 2, bare")
    yield Row("call of (x + 1) * 2 above bare NumPy calls", above * 1e6, "us", of_numpy(2.0))
    for name in list(samples.seconds)[1:]:
        yield Row(f"call of {name}", samples.median(name) * 1e6, "us")


if __name__ == "__main__":
    main(benchmark)
