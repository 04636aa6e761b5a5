"""Reductions, and what normalizes by them: weft, eager NumPy, and numexpr if that is installed.

The limit is bytes: one read, and one write where the result is as large, if what a reduction leaves
stays in the nearest cache. Each result is checked against float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numexpr_rival
import numpy as np
from limits import bytes_limit
from measure import Row, interleaved, main, ratios
from models.block import layer_norm, softmax
from models.program import Array, Program, normal

import weft


@dataclass(frozen=True)
class Case:
    """One reduction: its operands, the least ratio of eager NumPy over weft, and how to write it.

    `rival` makes the function for numexpr, or None where it is not installed.
    """

    name: str
    shapes: Sequence[tuple[int, ...]]
    goal: float | None
    weft: Callable[..., Any]
    eager: Callable[..., Array]
    rival: Callable[[], Callable[..., Array] | None] = lambda: None


def numexpr_softmax() -> Callable[..., Array] | None:
    """Return softmax with its elementwise parts in numexpr."""
    raised = numexpr_rival.compiled("exp(x - top)", "x top")
    divided = numexpr_rival.compiled("powers / total", "powers total")
    if raised is None or divided is None:
        return None

    def call(x: Array) -> Array:
        powers = raised(x, x.max(axis=-1, keepdims=True))
        return divided(powers, powers.sum(axis=-1, keepdims=True))

    return call


def numexpr_layer_norm() -> Callable[..., Array] | None:
    """Return layer normalization with its elementwise parts in numexpr."""
    squares = numexpr_rival.compiled("(x - mean) * (x - mean)", "x mean")
    scaled = numexpr_rival.compiled(
        "(x - mean) / sqrt(variance + epsilon) * scale + bias",
        "x mean variance scale bias",
        {"epsilon": 1e-5},
    )
    if squares is None or scaled is None:
        return None

    def call(x: Array, scale: Array, bias: Array) -> Array:
        mean = x.mean(axis=-1, keepdims=True)
        variance = squares(x, mean).mean(axis=-1, keepdims=True)
        return scaled(x, mean, variance, scale, bias)

    return call


def numexpr_sum(axis: int) -> Callable[..., Array] | None:
    """Return the sum over an axis in numexpr, which knows no pairwise summation."""
    return numexpr_rival.compiled(f"sum(x, axis={axis})", "x")


LARGE = (4096, 1024)
CASES = (
    Case("softmax, 32x10", [(32, 10)], None, weft.softmax, softmax),
    Case("softmax, 128x1000", [(128, 1000)], None, weft.softmax, softmax, numexpr_softmax),
    Case("softmax, 4096x1024", [LARGE], 2.0, weft.softmax, softmax, numexpr_softmax),
    Case(
        "layer norm, 4096x1024", [LARGE, LARGE[1:], LARGE[1:]], 2.1,
        weft.layer_norm, layer_norm, numexpr_layer_norm,
    ),
    Case("sum, 1e+07", [(10_000_000,)], None, weft.sum, np.sum),
    Case("variance, 1e+07", [(10_000_000,)], 2.5, weft.variance, np.var),
    Case(
        "row sums, 4096x4096", [(4096, 4096)], 2.5,
        lambda x: weft.sum(x, axis=1), lambda x: x.sum(axis=1), lambda: numexpr_sum(1),
    ),
    Case(
        "column sums, 4096x4096", [(4096, 4096)], 1.2,
        lambda x: weft.sum(x, axis=0), lambda x: x.sum(axis=0), lambda: numexpr_sum(0),
    ),
)  # fmt: skip


def check(case: Case, arrays: Sequence[Array], found: Array) -> None:
    """Raise AssertionError if a result differs from the one in float64."""
    expected = case.eager(*(array.astype("f8") for array in arrays))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * scale)


def compare(case: Case, rounds: int) -> Iterator[Row]:
    """Compare all candidates for one case."""
    random = np.random.default_rng(0)
    arrays = [normal(random, shape, 1) for shape in case.shapes]
    placeholders = [weft.placeholder(shape) for shape in case.shapes]
    _, call = Program(case.weft(*placeholders), placeholders, []).compiled()
    functions = {"weft": call, "eager": case.eager}
    goals: dict[str, float | None] = {"eager": case.goal}
    if (rival := case.rival()) is not None:
        functions["numexpr"] = rival
        goals["numexpr"] = None
    for name in ("weft", "eager"):
        check(case, arrays, functions[name](*arrays))
    nbytes = sum(array.nbytes for array in arrays) + call(*arrays).nbytes
    samples = interleaved(
        {name: partial(function, *arrays) for name, function in functions.items()}, rounds
    )
    yield from ratios(samples, goals, case.name, bytes_limit(nbytes))


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare in each case."""
    for case in CASES:
        yield from compare(case, rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)
