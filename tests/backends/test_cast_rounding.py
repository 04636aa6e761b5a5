"""A cast rounds once, to nearest with ties to even, from whatever dtype, and at every door."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.ir import dtypes

NARROW = ("float16", "bfloat16")
EIGHT_BITS = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3", "float8_e3m4", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e4m3b11fnuz",
)  # fmt: skip


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def numbers_of(dtype: Any) -> Any:
    """Return all finite numbers of a dtype as float64, in order, 0 once."""
    bits = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}")
    with np.errstate(all="ignore"):
        found = bits.view(dtype).astype(np.float64)
    return np.unique(found[np.isfinite(found)] + 0.0)


def is_even(numbers: Any, dtype: Any) -> Any:
    """Whether the last bit of numbers of a dtype is 0; that of infinities is."""
    with np.errstate(over="ignore"):
        return numbers.astype(dtype).view(f"u{dtype.itemsize}") & 1 == 0


def midpoints(dtype: Any) -> tuple[Any, Any]:
    """Return the numbers halfway between neighbors with their own neighbors, and what they give.

    Beyond the largest number there is an infinity, if the dtype has any.
    """
    numbers = numbers_of(dtype)
    if np.isinf(np.array(np.inf).astype(dtype).astype(np.float64)):
        step = numbers[-1] - numbers[-2]
        numbers = np.concatenate([[numbers[0] - step], numbers, [numbers[-1] + step]])
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    ties = np.where(is_even(low, dtype), low, high)
    x = np.concatenate([middle, np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)])
    with np.errstate(all="ignore"):
        return x, np.copysign(np.concatenate([ties, low, high]), x).astype(dtype)


@pytest.mark.parametrize("name", NARROW)
def test_float64_is_rounded_once_around_every_midpoint(backend: str, name: str) -> None:
    x, want = midpoints(dtype_of(name))
    parameter = weft.placeholder(x.shape, "float64")
    with weft.make_transformer(backend) as transformer:
        got = transformer.computation(weft.cast(parameter, name), parameter)(x)
        product = weft.cast(parameter * 3, name)  # in one kernel
        thirds = transformer.computation(product, parameter)(x / 3)
    np.testing.assert_array_equal(got.view("u2"), want.view("u2"))
    exact = dtypes.converted(x / 3 * 3, dtype_of(name))
    np.testing.assert_array_equal(thirds.view("u2"), exact.view("u2"))


@pytest.mark.parametrize("name", EIGHT_BITS)
def test_arrays_of_8_bits_are_rounded_once(name: str) -> None:
    x, want = midpoints(dtype_of(name))
    got = dtypes.converted(x, dtype_of(name))
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def integers(dtype: str) -> list[int]:
    """Return integers of all sizes: random ones, and neighbors of sums of two powers of 2."""
    limits = np.iinfo(dtype)
    random = np.random.default_rng(0)
    bits = limits.max.bit_length()
    found = [0, limits.min, limits.max, limits.max - 1, limits.min + 1]
    for power in range(bits):
        found += [int(n) for n in random.integers(1 << power, 2 << power, 10, dtype=np.uint64)]
        sums = ((1 << power) + (1 << other) for other in range(power))
        found += [n + step for n in sums for step in (-1, 0, 1)]
    found += [-n for n in found]
    return sorted({n for n in found if limits.min <= n <= limits.max})


def nearest(number: int, numbers: list[Fraction], bits: list[int]) -> Fraction:
    """Return the nearest of some numbers; of two, the one whose last bit is 0."""
    place = bisect_right(numbers, number) - 1
    if place + 1 == len(numbers):
        return numbers[place]
    below, above = number - numbers[place], numbers[place + 1] - number
    is_low = below < above or (below == above and not bits[place] & 1)
    return numbers[place] if is_low else numbers[place + 1]


@pytest.mark.share(6)
@pytest.mark.parametrize("target", [*NARROW, "float32", "float64"])
@pytest.mark.parametrize("source", ["int32", "uint32", "int64", "uint64"])
def test_integers_are_rounded_once(backend: str, source: str, target: str) -> None:
    x = integers(source)
    parameter = weft.placeholder((len(x),), source)
    with weft.make_transformer(backend) as transformer:
        got = transformer.computation(weft.cast(parameter, target), parameter)(np.array(x, source))
    if target not in NARROW:  # which Python converts to correctly
        want = np.array([float(n) for n in x]) if target == "float64" else singles(x)
    else:
        dtype = dtype_of(target)
        numbers = numbers_of(dtype)
        limit = float(numbers[-1]) + float(numbers[-1] - numbers[-2]) / 2
        exact, last = list(map(Fraction, numbers)), list(map(int, numbers.astype(dtype).view("u2")))
        want = np.array([
            np.copysign(np.inf, n) if abs(n) >= limit else float(nearest(n, exact, last))
            for n in x
        ])  # fmt: skip
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


def singles(x: list[int]) -> Any:
    """Return integers rounded to 24 bits."""
    found = []
    for n in x:
        drop = max(abs(n).bit_length() - 24, 0)
        kept, rest = abs(n) >> drop, abs(n) & ((1 << drop) - 1)
        half = (1 << drop) >> 1
        kept += drop > 0 and (rest > half or (rest == half and kept & 1 == 1))
        found.append(float(kept << drop) * (1 if n >= 0 else -1))
    return np.array(found)


ODD = 1 + 2**-8 + 2**-40
"""Just above the middle of two bfloat16; as float32, the middle, whose even neighbor is 1."""


def test_every_door_rounds_once(backend: str) -> None:
    up = 1 + 2**-7
    x = weft.placeholder((1,), "bfloat16", name="x")
    state = weft.variable((), dtype="bfloat16", initial_value=ODD)
    assert float(weft.constant(ODD, dtype="bfloat16").const) == up
    assert float(weft.constant(np.array([ODD]), dtype="bfloat16").const[0]) == up
    cast = weft.cast(weft.constant(ODD, dtype="float64"), "bfloat16")
    with weft.make_transformer(backend) as transformer:
        call = transformer.computation((x, x + (ODD - 1), cast, state), x)
        found = [float(np.ravel(each)[0]) for each in call(np.array([ODD]))]
        assert found == [up, 1 + 2**-6, up, up]
        assert float(np.ravel(call([ODD])[0])[0]) == up
        transformer.set_value(state, 0)
        transformer.set_value(state, ODD)
        assert float(call([1])[3]) == up
