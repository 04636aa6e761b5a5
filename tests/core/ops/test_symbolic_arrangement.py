"""Tensors arranged anew whose lengths are unknown, and ranges up to such a length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AxesError

N = weft.symbol("n")


def pads(mode: str):
    """Return a padding of weft and of NumPy."""
    names = {"replicate": "edge", "circular": "wrap"}
    return (
        lambda x: weft.pad(x, [(2, 1), 0], mode=mode),
        lambda x: np.pad(x, [(2, 1), (0, 0)], names.get(mode, mode)),
    )


CASES = {
    "flip": (lambda x: weft.flip(x, 0), np.flipud),
    "roll": (lambda x: weft.roll(x, 1, 0), lambda x: np.roll(x, 1, 0)),
    "roll back": (lambda x: weft.roll(x, -2, 0), lambda x: np.roll(x, -2, 0)),
    "roll all": (lambda x: weft.roll(x, 2), lambda x: np.roll(x, 2)),
    "tile": (lambda x: weft.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3))),
    "repeat": (lambda x: weft.repeat(x, 2, 0), lambda x: np.repeat(x, 2, 0)),
    "repeat all": (lambda x: weft.repeat(x, 2), lambda x: np.repeat(x, 2)),
    "moveaxis": (lambda x: weft.moveaxis(x, 0, 1), np.transpose),
    "unsqueeze": (lambda x: weft.unsqueeze(x, (0, -1)), lambda x: x[None, ..., None]),
    "split": (lambda x: weft.split(x, 3, 1)[2], lambda x: x[:, 2:]),
    "tril": (lambda x: weft.tril(x, 1), lambda x: np.tril(x, 1)),
    "triu": (weft.triu, np.triu),
    "meshgrid": (
        lambda x: weft.meshgrid(x[:, 0], x[0])[0],
        lambda x: np.meshgrid(x[:, 0], x[0])[0],
    ),
    "block": (lambda x: weft.dynamic_slice(x, (1, 1), (None, 2)), lambda x: x[:, 1:]),
    "update": (
        lambda x: weft.dynamic_update_slice(x, x[:1], (2, 0)),
        lambda x: np.concatenate([x[:2], x[:1], x[3:]]),
    ),
    "arange": (
        lambda x: x * weft.unsqueeze(weft.arange(x.axes[0].length), 1),
        lambda x: x * np.arange(len(x))[:, None],
    ),
    "arange from": (
        lambda x: x[1:, 0] * weft.arange(1, N),
        lambda x: x[1:, 0] * range(1, len(x)),
    ),
    "arange step": (
        lambda x: x[::2, 0] * weft.arange(0, N, 2),
        lambda x: x[::2, 0] * range(0, len(x), 2),
    ),
    **{f"pad {mode}": pads(mode) for mode in ("edge", "reflect", "symmetric", "circular")},
}


@pytest.mark.parametrize("case", CASES)
def test_lengths_may_be_unknown(case: str):
    build, expected = CASES[case]
    x = weft.placeholder((N, 3))
    value = build(x)
    total = weft.sum(weft.square(value), range(value.rank))
    step = weft.make_transformer("numpy").computation([value, weft.deriv(total, x)], x)
    for n in (4, 3):
        array = np.arange(1.0, 3 * n + 1, dtype=np.float32).reshape(n, 3)
        got, gradient = step(array)
        np.testing.assert_array_equal(got, expected(array).astype(np.float32))
        # The values are linear in x, so x times the gradient of half their squares gives these.
        assert np.vdot(gradient, array) == 2 * np.vdot(got, got)


@pytest.mark.parametrize(("case", "n"), [("pad reflect", 2), ("pad circular", 1), ("roll back", 1)])
def test_a_length_that_is_too_short_is_refused_at_the_call(case: str, n: int):
    x = weft.placeholder((N, 3))
    step = weft.make_transformer("numpy").computation(CASES[case][0](x), x)
    with pytest.raises(AxesError, match="reaches outside"):
        step(np.ones((n, 3)))


def test_ranges_count_in_int64_and_floats_in_float32():
    assert weft.arange(3).dtype == weft.int64
    assert weft.arange(3.0).dtype == weft.float32
    assert weft.linspace(0, 1).dtype == weft.float32
    assert weft.argmax(weft.ones(3)).dtype == weft.arange(3).dtype


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_both_ends_of_a_linspace_are_exact(dtype: str):
    start, stop = (np.asarray(end, dtype) for end in (0.1, 0.7))
    for num in (2, 3, 10, 49, 1000):
        points = weft.make_transformer("numpy").computation(
            weft.linspace(float(start), float(stop), num, dtype=dtype)
        )()
        assert (points[0], points[-1]) == (start, stop)
        assert (np.diff(points) >= 0).all()


def test_a_range_along_an_axis_has_its_name():
    c = weft.make_axis(4, "C")
    assert weft.arange(c).axes == weft.make_axes(c)
    assert weft.linspace(0, 1, c).axes == weft.make_axes(c)
    assert weft.arange(1, c).axes == weft.make_axes(weft.make_axis(3, "C"))


@pytest.mark.parametrize(
    "items",
    [
        (slice(None), None),
        (None,),
        (..., None),
        (0, None, slice(1, 3)),
        (None, ..., None, slice(None)),
        (slice(None), slice(None), None, 1),
    ],
)
def test_none_is_a_new_axis(items: tuple[Any, ...]):
    x = weft.placeholder((2, 3, 4))
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = weft.make_transformer("numpy").computation(x[items], x)(array)
    np.testing.assert_array_equal(got, array[items])


def test_none_needs_positional_axes():
    with pytest.raises(AxesError, match="see expand_dims"):
        weft.placeholder((weft.make_axis(3, "C"),))[None]


def test_a_method_that_is_a_function_is_named():
    x = weft.placeholder((2, 3))
    assert (x.ndim, x.size) == (2, 6)
    with pytest.raises(AttributeError, match=r"'exp': use weft\.exp\(x\)"):
        x.exp()
    with pytest.raises(AttributeError, match=r"has no attribute 'frobnicated'\.$"):
        x.frobnicated()


def test_softmax_takes_numpys_axis():
    x = weft.placeholder((2, 3))
    assert weft.softmax(x, axis=0).axes == x.axes
    with pytest.raises(ArgumentError, match="give normalization_axes or axis, not both"):
        weft.softmax(x, normalization_axes=1, axis=0)
