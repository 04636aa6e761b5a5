"""Running statistics of batch_norm that several results share: each is written in its turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import StateError

MOMENTUM = 0.25


@pytest.fixture(name="statistics")
def make_statistics():
    mean = weft.persistent_tensor((2,), "float64", name="mean", initial_value=0)
    return mean, weft.persistent_tensor((2,), "float64", initial_value=1.0, name="variance")


def chained(
    x: weft.TensorOp,
    statistics: tuple[Any, ...],
    links: int = 3,
    between: Callable[..., Any] = lambda h: h,
):
    mean, variance = statistics
    for number in range(links):
        shifted = between(x * (number + 1) + 10 * number)
        x = weft.batch_norm(shifted, mean=mean, variance=variance, training=True, momentum=MOMENTUM)
    return x


def chained_arrays(x: np.ndarray, mean: np.ndarray, variance: np.ndarray, links: int = 3):
    for number in range(links):
        x = x * (number + 1) + 10 * number
        mean = (1 - MOMENTUM) * mean + MOMENTUM * x.mean(axis=0)
        variance = (1 - MOMENTUM) * variance + MOMENTUM * x.var(axis=0, ddof=1)
        x = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)
    return x, mean, variance


def batches(*lengths: Any):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, 2)) * 2 + 3 for length in lengths]


def check_states(
    transformer: weft.Transformer, statistics: tuple[Any, ...], expected: Sequence[Any]
):
    for state, value in zip(statistics, expected, strict=True):
        np.testing.assert_allclose(transformer.get_value(state), value, rtol=1e-10)


@pytest.mark.parametrize("is_known", [True, False])
def test_each_link_of_a_chain_writes_once(
    transformer: weft.Transformer, statistics: tuple[Any, ...], is_known: bool
):
    x = weft.placeholder((5 if is_known else weft.symbol("n"), 2), "float64")
    step = transformer.computation(chained(x, statistics), x)
    expected = np.zeros(2), np.ones(2)
    for batch in batches(5, 5 if is_known else 8):
        result, *expected = chained_arrays(batch, *expected)
        np.testing.assert_allclose(step(batch), result, rtol=1e-8)
        check_states(transformer, statistics, expected)


def test_gradients_of_a_chain_write_once_and_are_exact(
    transformer: weft.Transformer, statistics: tuple[Any, ...]
):
    x = weft.placeholder((5, 2), "float64")
    loss = weft.sum(weft.tanh(chained(x, statistics)) * np.arange(10.0).reshape(5, 2))
    slope = weft.deriv(loss, x)
    curvature = weft.deriv(weft.sum(weft.square(slope)), x)
    plain = weft.sum(weft.tanh(chained(x, (None, None))) * np.arange(10.0).reshape(5, 2))
    plain_slope = weft.deriv(plain, x)
    plain_curvature = weft.deriv(weft.sum(weft.square(plain_slope)), x)
    (batch,) = batches(5)
    expected = transformer.computation([plain, plain_slope, plain_curvature], x)(batch)
    for results in ([loss, slope, curvature], [curvature, slope], [slope]):
        with weft.make_transformer("numpy") as other:
            found = other.computation(results, x)(batch)
            by_result = dict(zip((loss, slope, curvature), expected, strict=True))
            for result, value in zip(results, found, strict=True):
                np.testing.assert_allclose(value, by_result[result], rtol=1e-7, atol=1e-10)
            check_states(other, statistics, chained_arrays(batch, np.zeros(2), np.ones(2))[1:])


def test_transformers_keep_statistics_of_their_own(statistics: tuple[Any, ...]):
    x = weft.placeholder((5, 2), "float64")
    result = chained(x, statistics)
    first, second = (weft.make_transformer("numpy") for _ in range(2))
    with first, second:
        (batch,) = batches(5)
        steps = [each.computation(result, x) for each in (first, second)]
        expected = chained_arrays(batch, np.zeros(2), np.ones(2))[1:]
        steps[0](batch)
        check_states(first, statistics, expected)
        steps[1](batch)
        check_states(second, statistics, expected)


def test_dropout_and_training_between_links(
    transformer: weft.Transformer, statistics: tuple[Any, ...]
):
    w = weft.variable((2,), "float64", initial_value=1.0)
    x = weft.placeholder((5, 2), "float64")
    loss = weft.mean(
        weft.square(chained(x * w, statistics, 3, lambda h: h + 0 * weft.dropout(h, 0.5)) - 1)
    )
    step = transformer.computation([loss, weft.adam(loss)], x)
    (batch,) = batches(5)
    step(batch)
    check_states(transformer, statistics, chained_arrays(batch, np.zeros(2), np.ones(2))[1:])


def test_results_side_by_side_need_a_sequence(
    transformer: weft.Transformer, statistics: tuple[Any, ...]
):
    x, y = weft.placeholder((5, 2), "float64"), weft.placeholder((5, 2), "float64")
    first, second = (chained(each, statistics, 1) for each in (x, y))
    with pytest.raises(StateError, match="written twice"):
        transformer.computation(first + second, x, y)
    both = weft.sequential([first, second, first + second])
    one, two = batches(5, 5)
    transformer.computation(both, x, y)(one, two)
    _, *expected = chained_arrays(one, np.zeros(2), np.ones(2), 1)
    check_states(transformer, statistics, chained_arrays(two, *expected, 1)[1:])
