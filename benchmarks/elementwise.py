"""Chains of elementwise ops: weft, eager NumPy, and numexpr if that is installed.

The limit of large arrays is bytes: one read and one write, the time of a copy, if a chain is fused;
twenty times that if each of ten ops goes through memory. The limit of small ones is the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numexpr_rival
import numpy as np
from limits import bytes_limit, calls_limit
from measure import Row, interleaved, main, ratios
from memory import program_memory, working_memory
from models.program import Program

import weft

SIZES = {1_000: 0.9, 100_000: 2.4, 10_000_000: 8.0}
"""The least ratio of eager NumPy over weft for ten ops, by the number of elements."""

LONG_SIZE, LONG_GOAL = 10_000_000, 5.0
LONG_MEMORY = 4.0
"""The most megabytes beyond argument and result for twenty ops."""

# numexpr computes equal parts once; its maximum is one of float64.
_LINEAR = "(where(x > zero, exp(tanh(x * a + b) * c), tanh(x * a + b)) * d + e)"
EXPRESSION = f"where({_LINEAR} > f, {_LINEAR}, f)"
NUMBERS = {"a": 0.8, "b": 0.3, "c": 0.5, "d": 1.1, "e": 0.2, "f": -0.5, "zero": 0.0}

Array = np.ndarray[Any, Any]


def ten(x: Any, namespace: Any) -> Any:
    """Apply ten ops, of weft or of NumPy; the condition cannot be predicted."""
    y = namespace.tanh(x * 0.8 + 0.3)
    z = namespace.where(x > 0, namespace.exp(y * 0.5), y)
    return namespace.maximum(z * 1.1 + 0.2, -0.5)


def twenty(x: Any, namespace: Any) -> Any:
    """Apply the ten ops twice."""
    return ten(ten(x, namespace), namespace)


def program(chain: Callable[[Any, Any], Any], size: int) -> Program:
    """Return a chain as a program of one vector."""
    x = weft.placeholder((size,))
    return Program(chain(x, weft), [x], [])


def normal(size: int) -> Array:
    """Return normal numbers."""
    return np.random.default_rng(0).standard_normal(size, "f4")


def candidates(chain: Callable[[Any, Any], Any], values: Array) -> dict[str, Callable[[], Any]]:
    """Return calls of weft and of eager NumPy, whose results have been compared."""
    _, call = program(chain, values.size).compiled()
    np.testing.assert_allclose(call(values), chain(values, np), rtol=1e-5, atol=1e-6)
    return {"weft": lambda: call(values), "eager": lambda: chain(values, np)}


def compare(size: int, goal: float, rounds: int) -> Iterator[Row]:
    """Compare all candidates for ten ops at one size."""
    values = normal(size)
    calls = candidates(ten, values)
    goals: dict[str, float | None] = {"eager": goal}
    rival = numexpr_rival.compiled(EXPRESSION, "x", NUMBERS)
    if rival is not None:
        np.testing.assert_allclose(rival(values), ten(values, np), rtol=1e-5, atol=1e-6)
        calls["numexpr"] = lambda: rival(values)
        goals["numexpr"] = 1.0
    samples = interleaved(calls, rounds)
    limit = max(bytes_limit(2 * values.nbytes), calls_limit(10))
    yield from ratios(samples, goals, f"10 ops, {size:.0e} floats", limit)


def compare_long(rounds: int) -> Iterator[Row]:
    """Compare time and memory of weft and of eager NumPy for twenty ops."""
    values = normal(LONG_SIZE)
    what = f"20 ops, {LONG_SIZE:.0e} floats"
    samples = interleaved(candidates(twenty, values), rounds)
    yield from ratios(samples, {"eager": LONG_GOAL}, what, bytes_limit(2 * values.nbytes))
    nbytes = program_memory(program(twenty, LONG_SIZE), [values])
    yield Row(f"memory of weft, {what}", nbytes / 1e6, "MB", LONG_MEMORY)
    nbytes = working_memory(lambda: lambda: twenty(values, np))
    yield Row(f"memory of eager, {what}", nbytes / 1e6, "MB")


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare ten ops at each size, and twenty at the largest."""
    for size, goal in SIZES.items():
        yield from compare(size, goal, rounds)
    yield from compare_long(rounds)


if __name__ == "__main__":
    main(benchmark, rounds=11)
