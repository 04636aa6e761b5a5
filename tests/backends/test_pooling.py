"""Pooling in blocks gives what the references of its ops give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sliding_work import BLOCKS, check, geometries, numbers, placeholder

import weft
from weft.errors import AxesError
from weft.nn.spatial.geometry import Sliding
from weft.nn.spatial.pooling import AvgPoolOp, MaxPoolInputOp, MaxPoolOp
from weft.testing.reference import evaluate

pytestmark = pytest.mark.slow

SPECIAL = (-np.inf, np.inf, np.nan, 0.0)


def with_ties(shape: Any, dtype: str) -> Any:
    """Return few different numbers, so that many windows have several largest elements."""
    return np.random.default_rng(0).integers(-2, 2, shape).astype(dtype)


def pools(kind: Any, x: Any, sliding: Sliding, **more: Any) -> Any:
    """Return a pooling of an array; windows that may hold none of its elements are left out."""
    try:
        return kind(placeholder(x), **sliding._asdict(), **more)
    except AxesError:
        assume(False)


@given(
    geometries(), st.sampled_from((0, 1, 3)), st.sampled_from((1, 3)),
    st.sampled_from(("float64", "float32", "float16", "int32")), st.fixed_dictionaries(BLOCKS),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_pooling_gives_what_the_references_give(
    geometry: Any, batch: int, channels: int, dtype: str, options: Any
) -> None:
    sliding, lengths = geometry
    x = with_ties((batch, channels, *lengths), dtype)
    maxima = pools(MaxPoolOp, x, sliding)
    check(maxima, (x,), **options)
    if dtype == "int32":
        return
    none = ((0, 0),) * len(lengths)
    check(pools(AvgPoolOp, x, sliding, counted=none), (x,), **options)
    check(pools(AvgPoolOp, x, sliding, counted=sliding.padding), (x,), **options)
    delta, found = numbers(1, maxima.axes.shape, dtype), maxima.reference(x)
    args = (placeholder(each) for each in (delta, x, found))
    check(MaxPoolInputOp(*args, **sliding._asdict()), (delta, x, found), **options)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_maxima_of_special_values(padding: int, stride: int) -> None:
    random = np.random.default_rng(0)
    x = random.choice(np.array((*SPECIAL, 1.0), "float32"), (2, 3, 6, 6))
    sliding = Sliding((2, 2), (stride,) * 2, ((padding,) * 2,) * 2, (1, 1))
    op = MaxPoolOp(placeholder(x), **sliding._asdict())
    check(op, (x,))
    delta, maxima = numbers(1, op.axes.shape, "float32"), op.reference(x)
    args = (placeholder(each) for each in (delta, x, maxima))
    check(MaxPoolInputOp(*args, **sliding._asdict()), (delta, x, maxima))


@given(geometries())
@settings(max_examples=30, deadline=None)
def test_the_adjoint_of_maxima_is_its_decomposition(geometry: Any) -> None:
    sliding, lengths = geometry
    x = with_ties((2, 2, *lengths), "float64")
    x[0, 0] = -np.inf
    maxima = pools(MaxPoolOp, x, sliding)
    delta, found = numbers(1, maxima.axes.shape, "float64"), maxima.reference(x)
    args = [placeholder(each) for each in (delta, x, found)]
    op = MaxPoolInputOp(*args, **sliding._asdict())
    graph = weft.capture([op.decompose(*args)], args)
    (decomposed,), _ = evaluate(graph, (delta, x, found))
    np.testing.assert_allclose(decomposed, op.reference(delta, x, found), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("kernel", "lengths"),
    [
        ((3,), (9,)), ((2, 2), (6, 4)), ((1, 3), (5, 6)), ((2, 1, 3), (4, 3, 6)),
        ((2, 2), (5, 4)), ((16, 16), (16, 32)),
    ],
)  # fmt: skip
def test_the_adjoint_of_maxima_of_tiles(kernel: Any, lengths: Any, dtype: str) -> None:
    x = with_ties((3, 2, *lengths), dtype)
    form = Sliding(kernel, kernel, ((0, 0),) * len(kernel), (1,) * len(kernel))._asdict()
    maxima = MaxPoolOp(placeholder(x), **form)
    delta, found = numbers(1, maxima.axes.shape, dtype), maxima.reference(x)
    op = MaxPoolInputOp(*map(placeholder, (delta, x, found)), **form)
    check(op, (delta, x, found), cached=1 << 8)


def test_the_adjoint_of_maxima_refuses_other_axes() -> None:
    x, maxima = weft.placeholder((1, 2, 4, 4)), weft.placeholder((1, 2, 2, 2))
    other = weft.placeholder((1, 2, 2, 1))
    form = Sliding((2, 2), (2, 2), ((0, 0),) * 2, (1, 1))._asdict()
    with pytest.raises(AxesError, match="not the axes of windows over"):
        MaxPoolInputOp(other, x, maxima, **form)


def test_windows_as_large_as_the_images() -> None:
    x = numbers(0, (1, 2, 64, 64), "float32")
    sliding = Sliding((64, 64), (64, 64), ((0, 0),) * 2, (1, 1))
    check(MaxPoolOp(placeholder(x), **sliding._asdict()), (x,))
    check(AvgPoolOp(placeholder(x), **sliding._asdict(), counted=((0, 0),) * 2), (x,))
