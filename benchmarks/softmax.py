"""Softmax over the rows of a matrix at several sizes: weft, eager NumPy, and numexpr if installed.

The limit of large matrices is bytes: one read and one write, the time of a copy, where a row stays
in the nearest cache between its maximum, its exponentials and their sum.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Row, interleaved, main

import weft

SHAPES = ((32, 10), (128, 1000), (4096, 1024))

Array = np.ndarray[Any, Any]


def eager(x: Array) -> Array:
    """Compute it as it is written down."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def numexpr_call(x: Array) -> Callable[[], Any] | None:
    """Return softmax with its elementwise parts in numexpr, or None where that is missing."""
    try:
        numexpr = importlib.import_module("numexpr")
    except ImportError:
        return None

    def call() -> Any:
        powers = numexpr.evaluate("exp(x - top)", {"x": x, "top": x.max(axis=1, keepdims=True)})
        names = {"powers": powers, "total": powers.sum(axis=1, keepdims=True)}
        return numexpr.evaluate("powers / total", names)

    return call


def compare(shape: tuple[int, int], rounds: int) -> Iterator[Row]:
    """Compare all candidates at one shape."""
    values = np.random.default_rng(0).standard_normal(shape).astype("f4")
    x = weft.placeholder(shape)
    call = weft.make_transformer("numpy").computation(weft.softmax(x), x)
    np.testing.assert_allclose(call(values), eager(values), rtol=1e-5)
    other = np.empty_like(values)
    candidates: dict[str, Callable[[], Any]] = {
        "weft": lambda: call(values),
        "eager": lambda: eager(values),
        "copy": lambda: np.copyto(other, values),
    }
    if (rival := numexpr_call(values)) is not None:
        candidates["numexpr"] = rival
    samples = interleaved(candidates, rounds)
    size = "x".join(map(str, shape))
    ratio = samples.ratio("eager", "weft")
    yield Row(f"eager over weft, {size}", ratio, "x", note=samples.noise(), by_allocator=True)
    if rival is not None:
        ratio = samples.ratio("numexpr", "weft")
        yield Row(f"numexpr over weft, {size}", ratio, "x", by_allocator=True)
    yield Row(f"weft over one copy, {size}", samples.ratio("weft", "copy"), "x")


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare at each shape."""
    for shape in SHAPES:
        yield from compare(shape, rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)
