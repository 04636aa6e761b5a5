"""Functions with many options against their definitions in float64, on random arguments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from popxl_programs import results

import weft_popxl as popxl
from weft_popxl import ops

Array = np.ndarray[Any, Any]
Case = tuple[Callable[[popxl.Tensor], popxl.Tensor], Array, Array]
"""What to build from a variable, its value, and what it is to give."""

FACTORS = (0.2, 0.25, 1 / 3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0)
HALF = Fraction(1, 2)
ROUNDED: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda c: math.ceil(c - HALF),
    "round_prefer_ceil": lambda c: math.floor(c + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
}
PLACES: dict[str, Callable[[int, Fraction, int, int], Fraction]] = {
    "half_pixel": lambda i, f, n, m: (i + HALF) / f - HALF,
    "pytorch_half_pixel": lambda i, f, n, m: (i + HALF) / f - HALF if m > 1 else Fraction(0),
    "align_corners": lambda i, f, n, m: Fraction(i * (n - 1), m - 1) if m > 1 else Fraction(0),
    "asymmetric": lambda i, f, n, m: i / f,
}
"""Exact, since a coordinate that is rounded before it is rounded to an element is another one."""


def keys(distance: float, a: float = -0.75) -> float:
    """Return the weight of the cubic kernel (Keys, 1981)."""
    d = abs(distance)
    if d < 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def weights(n: int, factor: float, mode: str, rounding: str, place: str) -> Array:
    """Return the matrix that interpolates n elements; the edges are repeated."""
    m = math.floor(n * factor)
    matrix = np.zeros((m, n))
    for i in range(m):
        c = PLACES[place](i, Fraction(factor), n, m)
        below = math.floor(c)
        past = float(c - below)
        taps: dict[int, float]
        if mode == "nearest":
            taps = {ROUNDED[rounding](c): 1.0}
        elif mode == "linear":
            taps = {below: 1 - past, below + 1: past}
        else:
            taps = {below + k: keys(past - k) for k in (-1, 0, 1, 2)}
        for index, weight in taps.items():
            matrix[i, min(max(index, 0), n - 1)] += weight
    return matrix


def interpolation(rng: np.random.Generator) -> Case:
    """Return an interpolation of one or two axes, smaller or larger."""
    shape = rng.integers(1, 10, rng.integers(1, 4))
    factors = [float(rng.choice([f for f in FACTORS if n * f >= 1])) for n in shape]
    mode = str(rng.choice(["nearest", "linear", "cubic"]))
    rounding, place = str(rng.choice(list(ROUNDED))), str(rng.choice(list(PLACES)))
    x = rng.normal(size=shape)
    expected = x
    for axis, factor in enumerate(factors):
        if factor != 1:
            matrix = weights(x.shape[axis], factor, mode, rounding, place)
            expected = np.moveaxis(np.tensordot(matrix, expected, (1, axis)), 0, axis)
    return lambda t: ops.interpolate(t, factors, mode, rounding, place), x, expected


def spread(x: Array, w: Array, stride: Sequence[int], gaps: Sequence[int], groups: int) -> Array:
    """Return the transposed convolution without padding: each element adds its filter."""
    lengths = [
        (n - 1) * step + (k - 1) * gap + 1
        for n, k, step, gap in zip(x.shape[2:], w.shape[2:], stride, gaps, strict=True)
    ]
    each = x.shape[1] // groups
    made = np.zeros((x.shape[0], groups * w.shape[1], *lengths))
    for place in itertools.product(*map(range, x.shape[2:])):
        for tap in itertools.product(*map(range, w.shape[2:])):
            at = [p * s + k * g for p, s, k, g in zip(place, stride, tap, gaps, strict=True)]
            for group in range(groups):
                rows = slice(group * each, (group + 1) * each)
                filled = slice(group * w.shape[1], (group + 1) * w.shape[1])
                share = x[(slice(None), rows, *place)] @ w[(rows, slice(None), *tap)]
                made[(slice(None), filled, *at)] += share
    return made


def transposed_convolution(rng: np.random.Generator) -> Case:
    """Return a transposed convolution to a shape, of all axes or the spatial ones, or ``same``."""
    rank, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    x = rng.normal(size=(rng.integers(1, 3), 2 * groups, *rng.integers(1, 5, rank)))
    w = rng.normal(size=(2 * groups, rng.integers(1, 3), *rng.integers(1, 4, rank)))
    stride, gaps = rng.integers(1, 4, rank).tolist(), rng.integers(1, 3, rank).tolist()
    pad_type = str(rng.choice(["not_set", "same_upper", "same_lower", "valid"]))
    extra = rng.integers(0, stride).tolist() if rng.random() < 0.5 else []
    full = spread(x, w, stride, gaps, groups)
    beyond = [(0, step - 1) for step in stride]
    full = np.pad(full, [(0, 0), (0, 0), *beyond])
    if pad_type.startswith("same") and rng.random() < 0.5:
        wanted, shape = [n * step for n, step in zip(x.shape[2:], stride, strict=True)], []
    else:
        wanted = [int(rng.integers(1, n + 1)) for n in full.shape[2:]]
        shape = [*full.shape[:2], *wanted] if rng.random() < 0.5 else wanted
    cut = [slice(None), slice(None)]
    for most, step, more, n in zip(
        full.shape[2:], stride, extra or [0] * rank, wanted, strict=True
    ):
        total = max(most - (step - 1) + more - n, 0)
        first = total // 2 if pad_type == "same_upper" else total - total // 2
        cut.append(slice(first, first + n))

    def build(t: popxl.Tensor) -> popxl.Tensor:
        filters = popxl.constant(w)
        return ops.conv_transpose(
            t, filters, stride, [0] * 2 * rank, gaps, groups, pad_type, extra, shape
        )

    return build, x, full[tuple(cut)]


def subsample(rng: np.random.Generator) -> Case:
    """Return every n-th element, with strides for some of the axes."""
    x = rng.normal(size=rng.integers(1, 7, rng.integers(1, 5)))
    strides = rng.integers(1, 5, rng.integers(0, x.ndim + 1)).tolist()
    given = strides[0] if len(strides) == 1 and rng.random() < 0.5 else strides
    return lambda t: ops.subsample(t, given), x, x[tuple(slice(None, None, s) for s in strides)]


def squares(rng: np.random.Generator) -> Case:
    """Return the sum of all squares."""
    x = rng.normal(size=rng.integers(1, 5, rng.integers(0, 4)))
    return ops.lamb_square, x, np.sum(np.square(x))


MAKERS = {
    each.__name__: each for each in (interpolation, transposed_convolution, subsample, squares)
}


def check(
    maker: Callable[[np.random.Generator], Case], seed: int, backend: str, count: int
) -> None:
    """Compute some cases in one program."""
    rng = np.random.default_rng(seed)
    cases = [maker(rng) for _ in range(count)]
    found = results(backend, lambda ir: [build(popxl.variable(x)) for build, x, _ in cases])
    for number, (value, (_, _, expected)) in enumerate(zip(found, cases, strict=True)):
        scale = max(np.abs(expected).max(initial=0), 1)
        np.testing.assert_allclose(
            value, expected, rtol=2e-5, atol=2e-5 * scale, err_msg=f"seed {seed}, case {number}"
        )


@pytest.mark.parametrize("name", MAKERS)
def test_a_function_is_what_its_definition_says(name: str, backend: str) -> None:
    check(MAKERS[name], 0, backend, 12)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 26))
@pytest.mark.parametrize("name", MAKERS)
def test_many_random_arguments(name: str, seed: int) -> None:
    check(MAKERS[name], seed, "cpu", 40)
