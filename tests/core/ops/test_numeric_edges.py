"""Values at the edges of dtypes and domains, where formulas that look right go wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("reduce", [weft.mean, weft.variance])
def test_means_of_16_bit_floats_do_not_overflow(
    transformer: weft.Transformer, dtype: str, reduce: Callable[..., Any]
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    x = weft.placeholder((70_000,), dtype=dtype)
    y = reduce(x)
    values = np.tile(np.array([99, 101], np.float32), 35_000)
    found, gradient = transformer.computation([y, weft.deriv(y, x)], x)(values)
    expected = 100 if reduce is weft.mean else 1
    assert abs(float(found) - expected) <= 0.01 * expected
    assert np.isfinite(gradient.astype(np.float32)).all()


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 300, 70_000])
def test_a_number_that_is_repeated_by_a_view_can_be_summed(
    transformer: weft.Transformer, count: int
):
    x = weft.placeholder((), "float64")
    line, table = weft.broadcast(x, (count,)), weft.broadcast(x, (2, count, 3))
    results = [weft.sum(line), weft.sum(table, 1), weft.sum(table, (0, 2))]
    found, columns, rows = transformer.computation(results, x)(0.5)
    assert found == count / 2
    assert columns.tolist() == [[count / 2] * 3] * 2
    assert rows.tolist() == [3] * count


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_random_numbers_of_every_float_dtype_are_in_range(
    transformer: weft.Transformer, dtype: str
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    ops = [weft.uniform((5000,), dtype=dtype), weft.normal((5000,), dtype=dtype)]
    even, bell = (value.astype(np.float64) for value in transformer.computation(ops)())
    assert 0 <= even.min() < 0.01
    assert 0.99 < even.max() < 1
    assert np.isfinite(bell).all()
    assert abs(bell.std() - 1) < 0.05


def test_products_have_second_derivatives_at_zero(transformer: weft.Transformer):
    x = weft.placeholder((3,), dtype="float64")
    first = weft.deriv(weft.prod(x), x)
    second = weft.deriv(first[1], x)
    gradient, row = transformer.computation([first, second], x)([0, 2, 3])
    assert gradient.tolist() == [6, 0, 0]
    assert row.tolist() == [3, 0, 0]


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (1, 100_000), (5000, 3), (300, 40)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_product_keeps_the_sign_of_zero(
    transformer: weft.Transformer, dtype: str, shape: tuple[int, ...]
):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"the backend has no {dtype}")
    values = np.ones(shape, dtype)
    values[0, 0] = -0.0
    x = weft.placeholder(shape, dtype)
    products = [1 / weft.prod(x, axis) for axis in (None, 0, 1)]
    assert [found.flat[0] for found in transformer.computation(products, x)(values)] == [
        -np.inf
    ] * 3


def test_a_product_over_several_axes_has_the_gradient_of_numpy(transformer: weft.Transformer):
    values = np.random.default_rng(0).uniform(-1, 1, (2, 3, 4))
    x = weft.placeholder((2, 3, 4), dtype="float64")
    gradient = transformer.computation(weft.deriv(weft.sum(weft.prod(x, (0, 2))), x), x)(values)
    expected = np.prod(values, axis=(0, 2), keepdims=True) / values
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


@pytest.mark.parametrize(("power", "order"), [(0, 1), (1, 2), (2, 3), (3, 1)])
def test_derivatives_of_powers_at_zero_are_zero(
    transformer: weft.Transformer, power: int, order: int
):
    x = weft.placeholder((), dtype="float64")
    y = x**power
    for _ in range(order):
        y = weft.deriv(y, x)
    assert transformer.computation(y, x)(0.0) == 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
def test_one_hot_of_small_integers_has_a_single_one(transformer: weft.Transformer, dtype: str):
    x = weft.placeholder((3,), dtype=dtype)
    found = transformer.computation(weft.one_hot(x, 300), x)(np.array([0, 1, 100], dtype))
    assert found.sum(axis=0).tolist() == [1, 1, 1]
    assert found.argmax(axis=0).tolist() == [0, 1, 100]


def test_signs_of_zero_survive_merging(transformer: weft.Transformer):
    x = weft.placeholder((1,))
    plus, minus = weft.pad(x, [1], 0.0), weft.pad(x, [1], -0.0)
    values = transformer.computation([plus, minus], x)([5.0])
    assert [bool(np.signbit(value[0])) for value in values] == [False, True]


def test_an_integer_argument_that_does_not_fit_is_refused(transformer: weft.Transformer):
    x = weft.placeholder((1,), dtype="int32")
    same = transformer.computation(x * 1, x)
    assert same(np.array([7], np.int64)).tolist() == [7]
    with pytest.raises(weft.errors.DTypeError, match="does not fit int32"):
        same(np.array([2**40 + 7]))


def test_results_need_memory_of_their_own(transformer: weft.Transformer):
    x = weft.placeholder((2,))
    both = transformer.computation([x + 1, x * 2], x)
    shared = np.empty(2, np.float32)
    with pytest.raises(weft.errors.ArgumentError, match="share memory"):
        both([1, 2], out=(shared, shared))


def test_a_derivative_by_the_result_of_a_softmax_is_not_silently_zero():
    x, t = weft.placeholder((3,)), weft.placeholder((3,))
    chances = weft.softmax(x)
    with pytest.raises(weft.errors.GradientError, match="from the logits"):
        weft.deriv(weft.cross_entropy_multi(chances, t), chances)
    assert weft.deriv(weft.sum(chances * t), chances) is not None


def test_a_derivative_by_the_result_of_a_sigmoid_is_not_silently_zero():
    x, t = weft.placeholder((3,)), weft.placeholder((3,))
    chances = weft.sigmoid(x)
    with pytest.raises(weft.errors.GradientError, match="from the logits"):
        weft.deriv(weft.cross_entropy_binary(chances, t), chances)
    assert weft.deriv(weft.sum(chances * t), chances) is not None


def test_an_adjoint_of_another_shape_is_refused():
    x = weft.placeholder((2, 3))
    with pytest.raises(weft.errors.AxesError, match="must have the axes"):
        weft.deriv(weft.exp(x), x, error=weft.placeholder((3, 2)))


@pytest.mark.parametrize("build", [weft.floordivide, weft.mod])
def test_complex_numbers_have_no_rounded_quotient(build: Callable[..., Any]):
    x = weft.placeholder((2,), dtype="complex64")
    with pytest.raises(weft.errors.DTypeError, match="complex64"):
        build(x, 2)
    with pytest.raises(weft.errors.DTypeError, match="do not fit float32"):
        weft.cast(x, "float32")


def test_a_target_whose_logarithm_is_infinite_adds_nothing_to_a_divergence(
    transformer: weft.Transformer,
):
    x, t = weft.placeholder((3,), "float64"), weft.placeholder((3,), "float64")
    loss = weft.kl_div(x, t, log_target=True, reduction="sum")
    results = [loss, weft.deriv(loss, x), weft.deriv(loss, t)]
    step = transformer.computation(results, x, t)
    found, dx, dt = step([-1, 0, -np.inf], [-np.inf, 0, -np.inf])
    assert found == 0
    assert dx.tolist() == [0, -1, 0]
    assert dt.tolist() == [0, 1, 0]


ALONG_NOTHING = {
    **{
        function.__name__: lambda x, function=function: function(x, -1)
        for function in (
            weft.softmax, weft.log_softmax, weft.softmin, weft.cumsum, weft.cumprod, weft.cummax,
            weft.cummin, weft.logcumsumexp, weft.sort, weft.argsort, weft.flip,
        )
    },
    **{
        function.__name__: lambda x, function=function: function(x, axes=-1)
        for function in (weft.layer_norm, weft.rms_norm, weft.standardize, weft.normalize)
    },
    "masked_softmax": lambda x: weft.masked_softmax(x, x > 0, -1),
    "softmax of all axes": lambda x: weft.softmax(x, (0, 1)),
    "exclusive": lambda x: weft.cumsum(x, -1, exclusive=True, reverse=True),
    "topk": lambda x: weft.topk(x, 0, -1)[0],
    "roll": lambda x: weft.roll(x, 1, -1),
    "shuffle": lambda x: weft.shuffle(x, 1),
    "glu": weft.glu,
    "clip_by_norm": lambda x: weft.clip_by_norm(x, 1.0),
}  # fmt: skip


def test_what_is_computed_along_an_empty_axis_is_empty(transformer: weft.Transformer):
    x = weft.placeholder((2, 0))
    results = [build(x) for build in ALONG_NOTHING.values()]
    floats = [y for y in results if y.dtype == np.float32]
    results += [weft.deriv(weft.sum(y), x) for y in floats]
    found = transformer.computation(results, x)(np.zeros((2, 0)))
    assert {value.shape for value in found} == {(2, 0)}


def test_a_softmax_of_unknown_length_takes_length_0(transformer: weft.Transformer):
    x = weft.placeholder((2, weft.symbol("n")))
    y = weft.softmax(x)
    results = [y, weft.log_softmax(x), weft.deriv(weft.sum(y * y), x)]
    run = transformer.computation(results, x)
    assert {value.shape for value in run(np.zeros((2, 0)))} == {(2, 0)}
    np.testing.assert_allclose(run(np.zeros((2, 4)))[0], 0.25)


def test_losses_and_attention_without_classes_or_keys_are_0(transformer: weft.Transformer):
    logits = weft.placeholder((3, 0))
    query, keys = weft.placeholder((2, 3, 4)), weft.placeholder((2, 0, 4))
    results = [weft.cross_entropy(logits, logits + 0.0), weft.attention(query, keys, keys)]
    loss, heads = transformer.computation(results, logits, query, keys)(
        np.zeros((3, 0)), np.ones((2, 3, 4)), np.zeros((2, 0, 4))
    )
    assert loss == 0
    assert heads.tolist() == np.zeros((2, 3, 4)).tolist()


def test_uniform_numbers_fill_an_interval_wider_than_the_largest_number(
    transformer: weft.Transformer,
):
    low = weft.placeholder(())
    ops = [
        weft.uniform((1000,), -3e38, 3e38),
        weft.uniform((1000,), low, -low),
        weft.uniform((1000,), -1.7e308, 1.7e308, dtype="float64"),
        weft.uniform((1000,), -6e4, 6e4, dtype="float16"),
        weft.uniform((1000,), 3e38, -3e38),
    ]
    kept = [op for op in ops if op.dtype.name in transformer.target.dtypes]
    for value in transformer.computation(kept, low)(-3e38):
        value = value.astype(np.float64)
        end = 1.7e308 if np.abs(value).max() > 1e300 else 3e38 if value.max() > 1e30 else 6e4
        assert np.isfinite(value).all()
        assert -1.001 * end <= value.min() < -0.98 * end
        assert 0.98 * end < value.max() <= 1.001 * end
        assert abs((value / end).mean()) < 0.1


TAILS = [(15.0, 16.0), (30.0, 40.0), (-37.0, -36.0), (-np.inf, -20.0), (1.0, np.inf), (0.0, 1e-9)]


@pytest.mark.parametrize(("low", "high"), TAILS)
def test_a_truncated_normal_distribution_has_its_tails(
    transformer: weft.Transformer, low: float, high: float
):
    found = transformer.computation(weft.truncated_normal((2000,), low=low, high=high))()
    assert ((low <= found) & (found <= high)).all()
    side = -1 if low + high > 0 else 1
    first, last = sorted((side * low, side * high))
    cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))
    chances = (cdf(np.sort(side * found.astype(np.float64))) - cdf(first)) / (
        cdf(last) - cdf(first)
    )
    # The test of Kolmogorov and Smirnov, which fails by chance once in a million.
    assert np.abs(chances - (np.arange(2000) + 0.5) / 2000).max() < 2.7 / math.sqrt(2000)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_parameters_of_distributions_are_finite(value: float):
    for draw in (
        lambda: weft.uniform((3,), 0.0, value),
        lambda: weft.normal((3,), loc=value),
        lambda: weft.laplace((3,), loc=value),
    ):
        with pytest.raises(weft.errors.ArgumentError, match="finite"):
            draw()
    with pytest.raises(weft.errors.ArgumentError, match="no probability"):
        weft.truncated_normal((3,), low=40.0, high=50.0)


@pytest.mark.parametrize("axis", [True, int, np.zeros((2, 2)), 1.5])
@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("SumOp", weft.sum),
        ("layer_norm", lambda x, axis: weft.layer_norm(x, axes=axis)),
        ("softmax", weft.log_softmax),
        ("cosine_similarity", lambda x, axis: weft.cosine_similarity(x, x, axis)),
        ("glu", weft.glu),
        ("sort", weft.sort),
    ],
)
def test_what_is_no_axis_is_refused_by_name(name: str, build: Callable[..., Any], axis: Any):
    with pytest.raises(weft.errors.AxesError, match=f"^{name}: "):
        build(weft.placeholder((3, 4)), axis)


@pytest.mark.parametrize("inputs", [1.5, [[1]], [np.zeros(2)], ["x"]])
def test_a_checkpoint_starts_at_ops(inputs: float | list[Any]):
    y = weft.exp(weft.placeholder((3,)))
    with pytest.raises(weft.errors.ArgumentError, match="checkpoint"):
        weft.checkpoint(y, inputs)


@pytest.mark.parametrize("number", [np.float32(0.5), np.int64(1), 2])
def test_numbers_of_numpy_are_numbers_and_those_too_large_are_refused(number: int | np.number):
    x = weft.placeholder((3,))
    assert weft.layer_norm(x, epsilon=number).epsilon == number
    assert weft.norm(x, number).shape == ()
    with pytest.raises(weft.errors.ArgumentError, match="epsilon must be a finite number"):
        weft.layer_norm(x, epsilon=10**400)
