"""A chain of ten elementwise ops at several sizes: weft, eager NumPy, and numexpr if installed.

The limit of large arrays is bytes: one read and one write, the time of a copy, if the chain is
fused; ten times that if each op goes through memory. The limit of small ones is ten calls.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Row, interleaved, main

import weft

SIZES = (1_000, 100_000, 10_000_000)
EXPRESSION = "sqrt(abs(((x * 2 + 1) * x - 3) * 0.5 + x) + 1) - x"

Array = np.ndarray[Any, Any]


def chained(x: Any, namespace: Any) -> Any:
    """Write the chain with the functions of a namespace."""
    return namespace.sqrt(namespace.absolute(((x * 2 + 1) * x - 3) * 0.5 + x) + 1) - x


def numexpr_call(x: Array) -> Callable[[], Any] | None:
    """Return the chain in numexpr, or None where that is not installed."""
    try:
        numexpr = importlib.import_module("numexpr")
    except ImportError:
        return None
    names = {"x": x}
    return lambda: numexpr.evaluate(EXPRESSION, names)


def compare(size: int, rounds: int) -> Iterator[Row]:
    """Compare all candidates at one size."""
    values = np.random.default_rng(0).random(size, "f4")
    x = weft.placeholder((size,))
    call = weft.make_transformer("numpy").computation(chained(x, weft), x)
    np.testing.assert_allclose(call(values), chained(values, np), rtol=1e-5, atol=1e-6)
    other = np.empty_like(values)
    candidates: dict[str, Callable[[], Any]] = {
        "weft": lambda: call(values),
        "eager": lambda: chained(values, np),
        "copy": lambda: np.copyto(other, values),
    }
    if (rival := numexpr_call(values)) is not None:
        candidates["numexpr"] = rival
    samples = interleaved(candidates, rounds)
    noise = samples.noise()
    ratio = samples.ratio("eager", "weft")
    yield Row(f"eager over weft, {size} floats", ratio, "x", note=noise, by_allocator=True)
    if rival is not None:
        ratio = samples.ratio("numexpr", "weft")
        yield Row(f"numexpr over weft, {size} floats", ratio, "x", by_allocator=True)
    yield Row(f"weft over one copy, {size} floats", samples.ratio("weft", "copy"), "x")


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare at each size."""
    for size in SIZES:
        yield from compare(size, rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)
