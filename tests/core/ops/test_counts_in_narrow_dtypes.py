"""Counts, positions, divisors and means of 16-bit floats are not held in 16 bits.

float16 ends at 65,504 and has no odd integers above 2,048, bfloat16 none above 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import dtypes

MANY = 140_000
"""More elements than float16 can count."""

SOME = 257
"""The first number that bfloat16 cannot hold."""


def slope(function: Callable[..., Any]):
    return lambda x: weft.deriv(weft.sum(function(x)), x)


def pooled(pool: Callable[..., Any], count: int):
    return lambda x: pool(weft.reshape(x, (1, 1, count)))


TIES = {
    "max": lambda count: weft.max,
    "min": lambda count: weft.min,
    "nanmax": lambda count: weft.nanmax,
    "nanmin": lambda count: weft.nanmin,
    "norm of order inf": lambda count: lambda x: weft.norm(x, math.inf),
    "norm of order -inf": lambda count: lambda x: weft.norm(x, -math.inf),
    "global_max_pool": lambda count: pooled(weft.global_max_pool, count),
    "mean": lambda count: weft.mean,
    "nanmean": lambda count: weft.nanmean,
    "global_avg_pool": lambda count: pooled(weft.global_avg_pool, count),
    "logsumexp": lambda count: weft.logsumexp,
    "l1_loss": lambda count: lambda x: weft.l1_loss(x, 0.0),
}
"""By name, a function from a count to one whose gradient is 1 / count for that many ones."""

WINDOWS = {
    "max_pool": lambda count: pooled(lambda x: weft.max_pool(x, count), count),
    "avg_pool": lambda count: pooled(lambda x: weft.avg_pool(x, count), count),
    "adaptive_avg_pool": lambda count: pooled(lambda x: weft.adaptive_avg_pool(x, 1), count),
}
"""The same for windows, which are slow where they are large."""


@pytest.mark.parametrize("count", [SOME, MANY])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_gradient_is_shared_by_any_number_of_elements(
    transformer: weft.Transformer, dtype: str, count: int
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((count,), dtype)
    functions = TIES if count == MANY else TIES | WINDOWS
    results = [slope(build(count))(x) for build in functions.values()]
    found = transformer.computation(results, x)(np.ones(count))
    digits, lowest = {"float16": (10, -24), "bfloat16": (7, -133)}[dtype]
    unit = 2.0 ** max(math.floor(-math.log2(count)) - digits, lowest)
    for name, value in zip(functions, found, strict=True):
        wide = value.astype(np.float64)
        assert np.abs(wide - 1 / count).max() <= 0.51 * unit, (name, wide[0] * count)


LINE = np.zeros(1000)
LINE[0] = 300.0
SMOOTH = weft.constant(np.full((1, MANY), 1 / MANY))

MEANS = {
    "mse_loss": (lambda x: weft.mse_loss(x, 0.0), LINE, 90),
    "sum of huber_loss": (lambda x: weft.huber_loss(x * 0.9, 0.0, 400.0), LINE, 36.45),
    "smooth_l1_loss": (lambda x: weft.smooth_l1_loss(x, 0.0, 0.25), LINE, 0.299875),
    "l1_loss": (lambda x: weft.l1_loss(x, -x), LINE * 200, 120),
    "gaussian_nll_loss": (lambda x: weft.gaussian_nll_loss(x, 0.0, 1.0), LINE, 45),
    "poisson_nll_loss": (lambda x: weft.poisson_nll_loss(x, 0.0), LINE / 25, 163.75279),
    "hinge_loss": (lambda x: weft.hinge_loss(x, -300.0), LINE, 91),
    "multi_margin_loss": (
        lambda x: weft.multi_margin_loss(weft.reshape(x, (1, 1000)), np.array([999]), p=2),
        LINE,
        91.599,
    ),
    "triplet_loss": (
        lambda x: weft.triplet_loss(weft.reshape(x, (100, 10)), x[0] * 0 + 0.0, x[1] * 0 + 0.0),
        LINE,
        1,
    ),
    "triplet_loss of norms out of range": (
        lambda x: weft.triplet_loss(
            weft.reshape(x, (1, 1000)), weft.reshape(-x, (1, 1000)), weft.reshape(-x, (1, 1000))
        ),
        LINE * 200,
        1,
    ),
    "label smoothing": (
        lambda x: weft.cross_entropy(
            weft.broadcast(x[0] * 0.0, (1, MANY)), SMOOTH, label_smoothing=0.5
        ),
        LINE,
        math.log(MANY),
    ),
    "a window of 257": (
        lambda x: weft.local_response_norm(weft.reshape(x * 0 + 1, (1, 1000, 1)), 257)[0, 500, 0],
        LINE,
        0.99992505,
    ),
}
"""By name, a function of a vector, its values, and what it is."""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_in_range_is_found_where_its_terms_are_out_of_range(
    transformer: weft.Transformer, dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    arguments = [weft.placeholder(values.shape, dtype) for _, values, _ in MEANS.values()]
    results = [row[0](x) for row, x in zip(MEANS.values(), arguments, strict=True)]
    found = transformer.computation(results, *arguments)(*(row[1] for row in MEANS.values()))
    for (name, (_, _, expected)), value in zip(MEANS.items(), found, strict=True):
        error = abs(float(value) - expected) / abs(expected)
        assert error <= {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype], (name, float(value))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_bins_and_coordinates_between_narrow_numbers_exist(
    transformer: weft.Transformer, dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((8,), dtype)
    counts, edges = weft.histogram(x, 4096, (0, 4096))
    line = weft.adaptive_avg_pool(weft.reshape(weft.broadcast(x[0], (1, 1, SOME)), (1, 1, SOME)), 2)
    found, ends, means = transformer.computation([counts, edges, line], x)(
        [2048, 2050, 2050, 256, 258, 0, 4096, -1]
    )
    assert np.flatnonzero(found).tolist() == [0, 256, 258, 2048, 2050, 4095] or dtype == "bfloat16"
    assert found.sum() == 7
    assert ends.dtype == np.float32
    assert np.diff(ends).tolist() == [1] * 4096
    assert means.astype(np.float64).tolist() == [[[2048, 2048]]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dropout_keeps_the_mean_of_narrow_floats(transformer: weft.Transformer, dtype: str):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((1000,), dtype)
    values = np.linspace(1, 2, 1000).astype(dtypes.as_dtype(dtype))
    kept = transformer.computation(weft.dropout(x, 0.3), x)(values)
    rounded = (values.astype(np.float32) * np.float32(1 / 0.7)).astype(kept.dtype)
    assert np.array_equal(kept, np.where(kept == 0, kept, rounded))
    assert 500 < np.count_nonzero(kept) < 900


def test_a_boundary_of_a_schedule_is_exact_above_the_integers_of_float32(
    transformer: weft.Transformer,
):
    step = weft.placeholder((), "int32")
    rate = weft.piecewise_constant(step, [2**24 + 1, 2**25 + 0.5, 1e30], [1.0, 2.0, 3.0, 4.0])
    run = transformer.computation(rate, step)
    assert [float(run(n)) for n in (2**24, 2**24 + 1, 2**25, 2**25 + 1)] == [1, 2, 2, 3]


def used_in_a_row(x: weft.TensorOp):
    total = x
    for _ in range(299):
        total = total + x
    return total


def used_in_a_loop(x: weft.TensorOp):
    carried, added = (weft.placeholder(x.axes, x.dtype) for _ in range(2))
    graph = weft.capture([carried + added], [carried, added])
    return weft.loop(graph, 300, weft.zeros_like(x), x)[0]


@pytest.mark.parametrize("function", [used_in_a_row, used_in_a_loop])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_contributions_to_a_gradient_are_not_lost(
    transformer: weft.Transformer, dtype: str, function: Callable[..., Any]
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((2,), dtype)
    gradient = slope(function)(x)
    assert gradient.dtype == x.dtype
    assert transformer.computation(gradient, x)([0, 0]).tolist() == [300, 300]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("count", [SOME, 70_000])
def test_a_scatter_of_extrema_splits_its_gradient_among_any_number(
    transformer: weft.Transformer, dtype: str, count: int
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x, updates = weft.placeholder((2,), dtype), weft.placeholder((count,), dtype)
    places = weft.constant(np.zeros(count, np.int64))
    y = weft.scatter(x, places, updates, reduction="max")
    found = transformer.computation(weft.deriv(weft.sum(y), updates), x, updates)(
        np.zeros(2), np.ones(count)
    )
    near = found.astype(np.float64) * count
    assert np.abs(near - 1).max() < (0.003 if count == SOME else 0.01)
