"""Random choices: their frequencies, and what stays the same whatever computes them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

import weft
from weft import plugins
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp
from weft.ops.random.philox import philox
from weft.testing.reference import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.share(4)]

COUNT = 40_000

SIGMAS = 6.5
"""Deviations of a normal number that it exceeds with a chance of 1e-10."""


def decomposed(results: list[Any]):
    """Return results by the reference, from primitives alone."""
    target = Target("primitives", supports=lambda op: not isinstance(op, CompositeOp))
    graph = plugins.load(plugins.PASSES, "decompose")().do_pass(weft.capture(results), target)
    assert not any(isinstance(op, CompositeOp) for op in graph.ops)
    return evaluate(graph)[0]


def draw(transformer: weft.Transformer, op: weft.TensorOp):
    return transformer.computation(op)()


@pytest.mark.parametrize("shape", [(), (1,), (0,), (4,), (2, 3), (5, 1, 7), (70_001,)])
def test_primitives_make_the_same_bits(transformer: weft.Transformer, shape: tuple[int, ...]):
    bits = weft.random_bits(shape, seed=2**32 - 1, stream=2**31 - 1)
    (found,) = decomposed([bits])
    counter = np.zeros((4, -(-math.prod(shape) // 4)), np.uint32)
    counter[0] = np.arange(counter.shape[1])
    counter[2] = 1
    key = (2**32 - 1, 2**31 - 1)
    expected = philox(counter, key).T.reshape(-1)[: math.prod(shape)].reshape(shape)
    assert found.dtype == np.uint32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(draw(transformer, bits), expected)


EXACT = {
    "randint": lambda: weft.randint((50,), -7, 1000, seed=1),
    "permutation": lambda: weft.permutation(50, seed=1),
    "shuffle": lambda: weft.shuffle(np.arange(20.0), seed=1),
    "bernoulli": lambda: weft.bernoulli(0.3, (50,), seed=1),
    "dropout": lambda: weft.dropout(np.ones(50), 0.3, seed=1),
    "uniform": lambda: weft.uniform((50,), seed=1),
}


@pytest.mark.parametrize("name", EXACT)
def test_choices_are_the_same_to_the_bit(transformer: weft.Transformer, name: str):
    op = EXACT[name]()
    (expected,), _ = evaluate(weft.capture([op]))
    np.testing.assert_array_equal(decomposed([op])[0], expected)
    np.testing.assert_array_equal(draw(transformer, op), expected)


@pytest.mark.parametrize("name", EXACT)
def test_choices_are_fresh_at_every_call(transformer: weft.Transformer, name: str):
    run = transformer.computation(EXACT[name]())
    assert (run() != run()).any()


MOMENTS = {
    "exponential": (lambda axes: weft.exponential(axes, 3.0, seed=1), 3.0, 9.0),
    "gumbel": (lambda axes: weft.gumbel(axes, 1.0, 2.0, seed=1), 1 + 2 * 0.5772157,
               (2 * math.pi) ** 2 / 6),
    "laplace": (lambda axes: weft.laplace(axes, -1.0, 2.0, seed=1), -1.0, 8.0),
    "truncated_normal": (lambda axes: weft.truncated_normal(axes, 5.0, 2.0, seed=1), 5.0,
                         4 * 0.7737413),
    "truncated_tail": (lambda axes: weft.truncated_normal(axes, low=3, high=math.inf, seed=1),
                       3.2830987, 0.0706),
    "randint": (lambda axes: weft.cast(weft.randint(axes, 10, 20, seed=1), "float32"), 14.5, 8.25),
    "bernoulli": (lambda axes: weft.bernoulli(0.3, axes, "float32", seed=1), 0.3, 0.21),
    "dropout": (lambda axes: weft.dropout(np.ones(axes, "f4"), 0.8, seed=1), 1.0, 4.0),
}  # fmt: skip


@pytest.mark.parametrize("name", MOMENTS)
def test_mean_and_variance_are_those_of_the_distribution(transformer: weft.Transformer, name: str):
    build, mean, variance = MOMENTS[name]
    values = draw(transformer, build((COUNT,))).astype("f8")
    assert np.isfinite(values).all()
    assert abs(values.mean() - mean) < SIGMAS * math.sqrt(variance / COUNT)
    # Of the variance an exponential distribution has the least certain one, by 1.4 %.
    assert abs(values.var() - variance) < 0.1 * variance


def test_integers_are_equally_likely(transformer: weft.Transformer):
    values = draw(transformer, weft.randint((COUNT,), -3, 5, "int8", seed=3))
    counts = np.bincount(values + 3)
    assert len(counts) == 8
    assert abs(counts - COUNT / 8).max() < SIGMAS * math.sqrt(COUNT / 8)


def test_a_large_range_reaches_its_ends(transformer: weft.Transformer):
    values = draw(transformer, weft.randint((COUNT,), -(2**31), 2**31, seed=3)).astype("f8")
    assert abs(values.mean()) < SIGMAS * 2**32 / math.sqrt(12 * COUNT)
    assert values.min() < -(2**31) * 0.999
    assert values.max() > 2**31 * 0.999


@pytest.mark.long("opencl")
def test_all_orders_are_equally_likely(transformer: weft.Transformer):
    run = transformer.computation(weft.stack([weft.permutation(3) for _ in range(100)]))
    counts = Counter(tuple(row) for _ in range(12) for row in run().tolist())
    assert len(counts) == 6
    assert all(abs(count - 200) < SIGMAS * math.sqrt(200) for count in counts.values())


def test_classes_come_as_often_as_the_logits_say(transformer: weft.Transformer):
    shares = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = np.log(shares).astype("f4")
    values = draw(transformer, weft.categorical(np.tile(logits, (COUNT, 1)), seed=4))
    counts = np.bincount(values, minlength=4) / COUNT
    assert counts[1] == 0
    assert abs(counts - shares).max() < SIGMAS * math.sqrt(0.25 / COUNT)


def test_a_small_chance_is_drawn_now_and_then(transformer: weft.Transformer):
    likely = range(7, 90)  # but for a chance of 1e-10
    assert draw(transformer, weft.bernoulli(1e-3, (COUNT,), seed=1)).sum() in likely
    assert draw(transformer, weft.bernoulli(np.full(COUNT, 1e-3), seed=1)).sum() in likely
    assert not draw(transformer, weft.bernoulli(np.zeros(COUNT), seed=1)).any()
    assert draw(transformer, weft.bernoulli(np.ones(COUNT), seed=1)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["exponential", "gumbel", "laplace", "truncated_normal"])
def test_samples_of_every_float_are_finite(transformer: weft.Transformer, name: str, dtype: str):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"no {dtype}")
    values = draw(transformer, getattr(weft, name)((5000,), dtype=dtype, seed=1))
    assert values.dtype.name == dtype
    assert np.isfinite(values.astype("f8")).all()


def test_the_gradient_of_dropout_drops_the_same(transformer: weft.Transformer):
    x = weft.placeholder((200,))
    y = weft.dropout(x, 0.5)
    run = transformer.computation([y, weft.deriv(weft.sum(y), x)], x)
    for _ in range(3):
        value, gradient = run(np.ones(200))
        np.testing.assert_array_equal(value, gradient)
        assert set(value.tolist()) == {0.0, 2.0}


def test_samples_pass_the_gradient_on_to_their_parameters(transformer: weft.Transformer):
    loc, scale = weft.placeholder(()), weft.placeholder(())
    for name in ("normal", "gumbel", "laplace", "truncated_normal"):
        sample = weft.sum(getattr(weft, name)((5,), loc, scale, seed=1))
        gradients = [weft.deriv(sample, x) for x in (loc, scale)]
        value, by_loc, by_scale = transformer.computation([sample, *gradients], loc, scale)(2, 3)
        assert by_loc == 5
        assert value == pytest.approx(2 * 5 + 3 * by_scale, rel=1e-5)


def test_an_unknown_length_is_drawn_for_the_length_of_the_call(transformer: weft.Transformer):
    x = weft.placeholder((weft.symbol("n"), 2))
    results = [weft.randint(x, 0, 5), weft.shuffle(x), weft.dropout(x, 0.5), weft.categorical(x)]
    run = transformer.computation(results, x)
    for length in (3, 6):
        found = run(np.arange(2.0 * length).reshape(length, 2))
        assert [value.shape for value in found] == [(length, 2)] * 3 + [(length,)]
        assert sorted(found[1][:, 0].tolist()) == list(range(0, 2 * length, 2))


def test_streams_that_are_given_are_not_those_that_are_taken(transformer: weft.Transformer):
    given = [weft.random_bits((4,), stream=number) for number in range(3)]
    found = transformer.computation([*given, weft.random_bits((4,)), weft.random_bits((4,))])()
    assert len({tuple(bits.tolist()) for bits in found}) == 5
