"""Random numbers from keys: the same on every backend, independent, of the right distribution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import plugins
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp
from weft.ops.random.philox import FOLDED, KEYS, SAMPLES, RandomBitsOp, bits_of, philox
from weft.testing.reference import evaluate

pytestmark = [pytest.mark.slow, pytest.mark.share(4)]

random = weft.random
KEY = random.key(20261128)
COUNT = 40_000

SIGMAS = 6.5
"""Deviations of a normal number that it exceeds with a chance of 1e-10."""

WORDS = st.integers(0, 2**32 - 1)
LENGTHS = st.lists(st.integers(0, 5), max_size=3)


def published(key: Any, size: int, counter: int = 0, domain: int = SAMPLES) -> Any:
    """Return the words of the blocks for a key."""
    blocks = -(-size // 4)
    counters = np.zeros((4, blocks), np.uint32)
    counters[0], counters[2], counters[3] = np.arange(blocks), counter, domain
    return philox(counters, tuple(int(word) for word in key)).T.reshape(-1)[:size]


def decomposed(op: weft.TensorOp) -> Any:
    """Return an op's value by the reference, from primitives alone."""
    target = Target("primitives", supports=lambda each: not isinstance(each, CompositeOp))
    graph = plugins.load(plugins.PASSES, "decompose")().do_pass(weft.capture([op]), target)
    return evaluate(graph)[0][0]


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=3), LENGTHS, WORDS)
def test_bits_of_several_keys_are_those_of_each(
    several: list[tuple[int, int, int]], shape: list[int], domain: int
) -> None:
    given = np.array(several, np.uint32).reshape(-1, 3)
    op = RandomBitsOp(
        weft.constant(given[:, :2]),
        weft.constant(given[:, 2]),
        target_axes=weft.make_axes(shape),
        domain=domain,
    )
    size = math.prod(shape)
    rows = [published(key, size, counter, domain) for *key, counter in several]
    wanted = np.array(rows, np.uint32).reshape(len(several), *shape)
    for found in (op.reference(given[:, :2], given[:, 2]), decomposed(op)):
        assert found.dtype == np.uint32
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("first", [0, 1, 7])
def test_bits_go_on_from_a_block(first: int) -> None:
    whole = bits_of(50, KEY, 3, SAMPLES)
    np.testing.assert_array_equal(
        bits_of(50 - 4 * first, KEY, 3, SAMPLES, first), whole[4 * first :]
    )


EXTREMES = np.array([[0, 0], [2**32 - 1] * 2, [0, 1], [2**31, 2**32 - 5]], np.uint32)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 0), (33, 7)])
def test_bits_are_those_of_the_key_on_every_backend(backend: str, shape: tuple[int, ...]) -> None:
    traces = []

    @weft.jit(backend=backend)
    def draw(key: Any) -> Any:
        traces.append(key)
        return random.bits(key, shape)

    size = math.prod(shape)
    for key in EXTREMES:
        np.testing.assert_array_equal(draw(key), published(key, size).reshape(shape))
    assert len(traces) == 1


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_bits_of_a_width_use_all_of_it(backend: str, dtype: str) -> None:
    found = weft.jit(lambda key: random.bits(key, (COUNT,), dtype), backend=backend)(KEY)
    width = found.dtype.itemsize * 8
    assert found.dtype == dtype
    for place in range(width):
        ones = int((found >> np.array(place, found.dtype) & np.array(1, found.dtype)).sum())
        assert abs(ones - COUNT / 2) < SIGMAS * math.sqrt(COUNT / 4)


CHANCES = np.array([0.5, 0.0, 0.3, 0.2], np.float32)
with np.errstate(divide="ignore"):
    LOGITS = np.log(CHANCES)

EXACT: dict[str, Callable[[Any], Any]] = {
    "key": lambda key: random.key(weft.cast(key[0], "int64") * 2**31 + 5),
    "split": random.split,
    "split to a shape": lambda key: random.split(key, (2, 3)),
    "fold_in": lambda key: random.fold_in(key, 7),
    "fold_in of the traced": lambda key: random.fold_in(key, key[1]),
    "bits": lambda key: random.bits(key, (3, 5), "uint64"),
    "uniform": lambda key: random.uniform(key, (30,), minval=-1, maxval=3),
    "randint": lambda key: random.randint(key, (30,), -(2**31), 2**31),
    "bernoulli": lambda key: random.bernoulli(key, 0.3, (30,)),
    "permutation": lambda key: random.permutation(key, 30),
    "permutation of a tensor": lambda key: random.permutation(key, np.arange(12).reshape(3, 4), 1),
    "choice": lambda key: random.choice(key, 30, (4, 2)),
    "choice without replacement": lambda key: random.choice(key, 30, (4, 2), replace=False),
    "choice of rows": lambda key: random.choice(key, np.arange(12).reshape(3, 4), (5,), axis=1),
    "choice by chance": lambda key: random.choice(key, 4, (30,), p=CHANCES),
    "dropout": lambda key: weft.dropout(np.ones((4, 5), np.float32), 0.4, key=key),
}  # fmt: skip

ROUNDED: dict[str, Callable[[Any], Any]] = {
    "normal": lambda key: random.normal(key, (30,), loc=2, scale=3),
    "exponential": lambda key: random.exponential(key, (30,), scale=2),
    "gumbel": lambda key: random.gumbel(key, (30,), loc=1),
    "laplace": lambda key: random.laplace(key, (30,), scale=3),
    "truncated_normal": lambda key: random.truncated_normal(key, -1, 3, (30,)),
    "double precision": lambda key: random.normal(key, (30,), "float64"),
    "categorical": lambda key: random.categorical(key, np.tile(LOGITS, (30, 1))),
    "choice by chance without": lambda key: random.choice(key, 4, (2,), False, CHANCES),
}


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_a_key_gives_the_same_numbers_everywhere(backend: str, name: str) -> None:
    build = (EXACT | ROUNDED)[name]
    draw = weft.jit(build, backend=backend)
    for key in EXTREMES:
        (wanted,), _ = evaluate(weft.capture([weft.as_op(build(weft.constant(key)))]))
        found = draw(key)
        assert found.dtype == wanted.dtype
        if name in EXACT:
            np.testing.assert_array_equal(found, wanted)
        else:
            np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_seed_gives_its_words(seed: int) -> None:
    low, high = random.key(seed).tolist()
    assert low + high * 2**32 == seed % 2**64
    assert random.key(seed).dtype == np.uint32


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64", "uint64"])
def test_a_traced_seed_is_the_same_as_a_number(backend: str, dtype: str) -> None:
    limits, make = np.iinfo(dtype), weft.jit(random.key, backend=backend)
    for seed in (limits.min, limits.max, 0, 77):
        np.testing.assert_array_equal(make(np.array(seed, dtype)), random.key(seed))


@given(st.tuples(WORDS, WORDS), st.integers(0, 9), WORDS)
def test_keys_of_keys_are_arrays_for_arrays(key: tuple[int, int], num: int, data: int) -> None:
    words = np.array(key, np.uint32)
    several, one = random.split(words, num), random.fold_in(words, data)
    np.testing.assert_array_equal(several.reshape(-1), published(key, 2 * num, 0, KEYS))
    np.testing.assert_array_equal(one, published(key, 2, data, FOLDED))
    np.testing.assert_array_equal(random.split(words, 12)[:num], several)
    assert type(several) is type(one) is np.ndarray
    assert isinstance(random.split(weft.constant(words)), weft.TensorOp)
    assert isinstance(random.fold_in(words, weft.constant(3, dtype="int32")), weft.TensorOp)


def test_two_keys_of_a_split_are_taken_apart_in_a_trace(backend: str) -> None:
    def draw(key: Any) -> Any:
        first, second = random.split(key)
        return random.bits(first, (3,)), random.bits(second, (3,))

    for found, key in zip(weft.jit(draw, backend=backend)(KEY), random.split(KEY), strict=True):
        np.testing.assert_array_equal(found, published(key, 3))


def related_keys() -> Any:
    """Return keys that a program may have at once: similar seeds, and keys of one key."""
    made = [random.key(seed) for seed in (0, 1, 2, 2**32, 2**63)]
    return np.array(
        [
            *made,
            *random.split(made[0], 5),
            *random.split(made[1]),
            *random.split(random.split(made[0])[0]),
            *(random.fold_in(made[0], number) for number in range(5)),
        ]
    )


def test_numbers_of_different_keys_are_not_correlated() -> None:
    keys = related_keys()
    assert len(np.unique(keys, axis=0)) == len(keys)
    words = bits_of(COUNT, keys, 0, SAMPLES)
    found = np.corrcoef(words.astype(np.float64))
    assert abs(found - np.eye(len(keys))).max() < SIGMAS / math.sqrt(COUNT)
    for place in range(1, len(keys)):
        differing = np.unpackbits((words[place] ^ words[0]).view(np.uint8)).sum()
        assert abs(int(differing) - 16 * COUNT) < SIGMAS * math.sqrt(8 * COUNT)


def test_keys_split_from_a_key_are_none_of_its_numbers() -> None:
    drawn = set(published(KEY, COUNT).tolist())
    split = random.split(KEY, 1000).reshape(-1).tolist()
    # As many as chance makes of 2000 words among 40,000 of 2³².
    assert len(drawn.intersection(split)) < 3


def test_numbers_of_a_draw_are_not_correlated_with_each_other() -> None:
    for name in ("normal", "uniform", "randint"):
        values = weft.jit(CONTINUOUS.get(name, (lambda key: random.randint(
            key, (COUNT,), 0, 9),))[0], backend="numpy")(KEY).astype(np.float64)  # fmt: skip
        for lag in (1, 2, 3, 4, 8):
            found = np.corrcoef(values[:-lag], values[lag:])[0, 1]
            assert abs(found) < SIGMAS / math.sqrt(COUNT)


PHI = NormalDist().cdf

CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Callable[[float], float], float, float]] = {
    "uniform": (lambda key: random.uniform(key, (COUNT,), minval=-1, maxval=3),
                lambda x: (x + 1) / 4, 1, 16 / 12),
    "normal": (lambda key: random.normal(key, (COUNT,), loc=2, scale=3),
               lambda x: PHI((x - 2) / 3), 2, 9),
    "exponential": (lambda key: random.exponential(key, (COUNT,), scale=3),
                    lambda x: 1 - math.exp(-x / 3), 3, 9),
    "gumbel": (lambda key: random.gumbel(key, (COUNT,), loc=1, scale=2),
               lambda x: math.exp(-math.exp((1 - x) / 2)), 1 + 2 * 0.5772157,
               (2 * math.pi) ** 2 / 6),
    "laplace": (lambda key: random.laplace(key, (COUNT,), loc=-1, scale=2),
                lambda x: 0.5 + 0.5 * math.copysign(1 - math.exp(-abs(x + 1) / 2), x + 1), -1, 8),
    "truncated_normal": (lambda key: random.truncated_normal(key, -2, 2, (COUNT,)),
                         lambda x: (PHI(x) - PHI(-2)) / (PHI(2) - PHI(-2)), 0, 0.7737413),
}  # fmt: skip
"""By distribution: a draw, the distribution function, mean and variance."""


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_have_the_distribution(backend: str, name: str) -> None:
    build, chance, mean, variance = CONTINUOUS[name]
    values = weft.jit(build, backend=backend)(KEY).astype(np.float64)
    assert abs(values.mean() - mean) < SIGMAS * math.sqrt(variance / COUNT)
    # Of the variance an exponential distribution has the least certain one, by 1.4 %.
    assert abs(values.var() - variance) < 0.1 * variance
    # The test of Kolmogorov and Smirnov, passed but for a chance of 2 exp(-2 * 3.4²) = 2e-10.
    expected = np.array([chance(value) for value in np.sort(values)])
    places = np.arange(COUNT + 1) / COUNT
    furthest = max((places[1:] - expected).max(), (expected - places[:-1]).max())
    assert furthest < 3.4 / math.sqrt(COUNT)


def chi_square(counts: Any, chances: Any) -> float:
    """Return the statistic of observed counts."""
    expected = np.asarray(chances) * np.sum(counts)
    return float((np.square(counts - expected) / expected).sum())


FREQUENCIES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "randint": (lambda key: random.randint(key, (COUNT,), 0, 10, "uint8"), [0.1] * 10),
    "bits": (lambda key: random.bits(key, (COUNT,), "uint8") % 16, [1 / 16] * 16),
    "bernoulli": (lambda key: weft.cast(random.bernoulli(key, 0.3, (COUNT,)), "int32"),
                  [0.7, 0.3]),
    "categorical": (lambda key: random.categorical(key, np.log([0.2, 0.5, 0.3]), shape=(COUNT,)),
                    [0.2, 0.5, 0.3]),
    "choice": (lambda key: random.choice(key, 5, (COUNT,)), [0.2] * 5),
    "choice by chance": (lambda key: random.choice(key, 3, (COUNT,), p=np.array([4, 10, 6.0])),
                         [0.2, 0.5, 0.3]),
}  # fmt: skip


@pytest.mark.parametrize("name", FREQUENCIES)
def test_integers_come_as_often_as_they_should(backend: str, name: str) -> None:
    build, chances = FREQUENCIES[name]
    counts = np.bincount(weft.jit(build, backend=backend)(KEY).astype(np.int64))
    assert len(counts) == len(chances)
    # With up to 15 degrees of freedom 80 has a chance below 1e-10.
    assert chi_square(counts, chances) < 80


def in_many_draws(build: Callable[[Any], Any], count: int) -> Any:
    """Return what is drawn from each of several keys."""

    @weft.jit(backend="numpy")
    def draw(keys: Any) -> Any:
        return weft.scan(lambda carry, key: (carry, build(key)), 0, keys)[1]

    return draw(random.split(KEY, count))


ORDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], float]]] = {
    "permutation": (lambda key: random.permutation(key, 3)[:2], lambda one, other: 1 / 6),
    "choice": (lambda key: random.choice(key, 3, (2,), replace=False),
               lambda one, other: 1 / 6),
    "choice by chance": (lambda key: random.choice(key, 3, (2,), False, CHANCES[[0, 2, 3]]),
                         lambda one, other: one * other / (1 - one)),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_orders_come_as_often_as_they_should(name: str) -> None:
    build, chance = ORDERS[name]
    found = in_many_draws(build, 2000)
    counts = Counter(map(tuple, found.tolist()))
    pairs = [(one, other) for one in range(3) for other in range(3) if one != other]
    assert set(counts) == set(pairs)
    three = CHANCES[[0, 2, 3]]
    chances = [chance(three[one], three[other]) for one, other in pairs]
    # With 5 degrees of freedom 57 has a chance of 5e-11.
    assert chi_square(np.array([counts[pair] for pair in pairs]), chances) < 57


def test_a_choice_without_replacement_takes_nothing_twice(backend: str) -> None:
    draw = weft.jit(lambda key: random.choice(key, 50, (5, 10), False), backend=backend)
    assert sorted(draw(KEY).reshape(-1).tolist()) == list(range(50))
    draw = weft.jit(lambda key: random.choice(key, 4, (3,), False, CHANCES), backend=backend)
    assert sorted(draw(KEY).tolist()) == [0, 2, 3]


def test_a_scan_draws_what_a_loop_in_python_draws(backend: str) -> None:
    def step(key: Any, _: Any) -> tuple[Any, Any]:
        key, used = random.split(key)
        return key, random.bits(used, (3,))

    last, found = weft.jit(lambda key: weft.scan(step, key, length=5), backend=backend)(KEY)
    key = KEY
    for row in found:
        key, used = random.split(key)
        np.testing.assert_array_equal(row, published(used, 3))
    np.testing.assert_array_equal(last, key)


def test_keys_are_leaves_of_trees_and_rows_of_loops(backend: str) -> None:
    @weft.jit(backend=backend)
    def draw(state: dict[str, Any]) -> Any:
        rows = weft.scan(lambda c, key: (c, random.bits(key, (2,))), 0, state["keys"])[1]
        return {"keys": random.split(state["keys"][0], 3), "rows": rows}

    keys = random.split(KEY, 3)
    found = draw({"keys": keys})
    np.testing.assert_array_equal(found["keys"], random.split(keys[0], 3))
    np.testing.assert_array_equal(found["rows"], [published(key, 2) for key in keys])


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_a_batch_of_keys_draws_what_each_of_them_does(backend: str, name: str) -> None:
    build, keys = (EXACT | ROUNDED)[name], random.split(KEY, 3)
    batched, draw = weft.jit(weft.vmap(build), backend=backend), weft.jit(build, backend=backend)
    wanted = np.stack([draw(key) for key in keys])
    np.testing.assert_allclose(batched(keys), wanted, 1e-4, 1e-4)


def test_a_batch_of_keys_draws_numbers_with_names(backend: str) -> None:
    axes = weft.make_axes((weft.make_axis(3, "N"), weft.make_axis(4, "C")))
    draw = weft.vmap(lambda key, data: random.bits(random.fold_in(key, data), axes), (None, 0))
    found = weft.jit(draw, backend=backend)(KEY, np.arange(5))
    for number, rows in enumerate(found):
        wanted = published(random.fold_in(KEY, number), 12).reshape(3, 4)
        np.testing.assert_array_equal(rows, wanted)


def test_a_length_of_the_call_is_drawn_for(backend: str) -> None:
    @weft.jit(backend=backend, dynamic={"x": "n"})
    def noisy(x: Any, key: Any) -> Any:
        keys = random.split(key, 2)
        return x + random.uniform(keys[0], x), random.permutation(keys[1], x)

    for length in (3, 6, 9):
        plain, shuffled = noisy(np.arange(length, dtype=np.float32), KEY)
        wanted = (published(random.split(KEY)[0], length) >> np.uint32(8)) * np.float32(2.0**-24)
        np.testing.assert_allclose(plain - np.arange(length), wanted, 1e-5, 1e-6)
        assert sorted(shuffled.tolist()) == list(range(length))


def test_numbers_have_the_axes_that_are_given() -> None:
    n, c = weft.make_axis(3, "N"), weft.make_axis(4, "C")
    x = weft.placeholder((n, c))
    for op in (random.uniform(KEY, x), random.normal(KEY, (n, c)), random.bernoulli(KEY, 0.5, x)):
        assert op.axes == x.axes
    assert random.categorical(KEY, x, "C").axes == weft.make_axes(n)
    more = weft.make_axes((weft.make_axis(5, "S"), n))
    assert random.categorical(KEY, x, "C", more).axes == more
    assert random.choice(KEY, x, weft.make_axis(7, "K"), axis="N").axes.names == ("K", "C")
    assert random.permutation(KEY, x, "C").axes == x.axes


def test_gradients_flow_to_parameters(backend: str) -> None:
    def drawn(parameters: dict[str, Any], key: Any) -> Any:
        keys = random.split(key, 3)
        between = random.uniform(keys[0], (5,), "float32", parameters["low"], parameters["high"])
        around = random.normal(keys[1], (5,), "float32", parameters["loc"], parameters["scale"])
        kept = weft.dropout(weft.broadcast(parameters["x"], (5,)), 0.5, key=keys[2])
        return weft.sum(between) + weft.sum(around) + weft.sum(kept)

    given = {"low": 1.0, "high": 3.0, "loc": 2.0, "scale": 0.5, "x": 1.0}
    value, gradient = weft.jit(weft.value_and_grad(drawn), backend=backend)(given, KEY)
    shares = (published(random.split(KEY, 3)[0], 5) >> np.uint32(8)) * 2.0**-24
    assert gradient["high"] == pytest.approx(shares.sum(), rel=1e-5)
    assert gradient["low"] == pytest.approx(5 - shares.sum(), rel=1e-5)
    assert gradient["loc"] == 5
    total = sum(given[name] * float(gradient[name]) for name in given)
    assert value == pytest.approx(total, rel=1e-5)


def test_dropout_by_a_key_drops_what_its_bits_say(backend: str) -> None:
    @weft.jit(backend=backend)
    def dropped(x: Any, key: Any) -> Any:
        return weft.value_and_grad(lambda y: weft.sum(weft.dropout(y, 0.25, key=key)))(x)

    x = np.ones((6, 7), np.float32)
    for key in random.split(KEY, 3):
        _, gradient = dropped(x, key)
        kept = published(key, 42).reshape(6, 7) >= 2**30
        np.testing.assert_allclose(gradient, kept / 0.75, 1e-6)


INNER: dict[str, Callable[[Any], Any]] = {
    "a number": lambda _: weft.uniform((3,)),
    "dropout": lambda x: weft.dropout(x, 0.5),
    "a shuffle": weft.shuffle,
}


@pytest.mark.parametrize("name", INNER)
def test_a_function_that_counts_its_calls_is_told_of_keys(name: str) -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ArgumentError) as caught:
        weft.jit(lambda x: x + INNER[name](x), backend="numpy")(x)
    for words in ("draws random numbers", "weft.random.uniform(key", "jit(f, backend=transformer)"):
        assert words in str(caught.value)
    assert "test_random_keys.py" in str(caught.value)
    with pytest.raises(ArgumentError, match=r"scan of <lambda>: the body draws .* carry a key"):
        weft.jit(lambda x: weft.scan(lambda c, _: (c + INNER[name](x), c), x, length=3))(x)


def test_a_function_may_count_its_calls_in_a_transformer_that_is_given() -> None:
    transformer = weft.make_transformer("numpy")
    draw = weft.jit(lambda x: x + weft.uniform((3,)), backend=transformer)
    assert (draw(0.0) != draw(0.0)).all()


X = np.zeros((2, 3), np.float32)

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a number for a key": (lambda: random.uniform(0, (3,)), ArgumentError,
                           r"uniform: takes a key, not 0: make one with weft.random.key\(0\)"),
    "a shape for a key": (lambda: random.normal((3,)), ArgumentError,
                          r"normal: takes a key, .*not float32 .*weft.random.key"),
    "text for a key": (lambda: random.split("a"), ArgumentError, "split: takes a key, not 'a'"),
    "nothing for a key": (lambda: random.bits(None), ArgumentError, "not None"),
    "a key of signed words": (lambda: random.gumbel(KEY.astype(np.int32)), ArgumentError,
                              "2 words of uint32, not int32"),
    "a key of three words": (lambda: random.laplace(np.zeros(3, np.uint32)), ArgumentError,
                             "2 words of uint32, not uint32"),
    "several keys": (lambda: random.randint(random.split(KEY), (), 0, 2), ArgumentError,
                     r"take one of them, as in keys\[0\]"),
    "a number for a key of dropout": (lambda: weft.dropout(X, 0.5, key=3), ArgumentError,
                                      "dropout: takes a key, not 3"),
    "a key and a seed": (lambda: weft.dropout(X, 0.5, key=KEY, seed=1), ArgumentError,
                         "a key, or a seed and a stream, not both"),
    "a large seed": (lambda: random.key(2**64), ArgumentError, r"below 2\*\*64"),
    "a fractional seed": (lambda: random.key(0.5), ArgumentError, "whole number, not 0.5"),
    "a fractional traced seed": (lambda: random.key(weft.constant(0.5)), ArgumentError,
                                 "integer scalar, not float32"),
    "fewer than no keys": (lambda: random.split(KEY, -1), ArgumentError, "at least 0, not -1"),
    "large data": (lambda: random.fold_in(KEY, 2**32), ArgumentError, "parts one by one"),
    "negative data": (lambda: random.fold_in(KEY, -1), ArgumentError, "at least 0"),
    "data of several": (lambda: random.fold_in(KEY, weft.constant([1, 2])), ArgumentError,
                        "integer scalar"),
    "signed bits": (lambda: random.bits(KEY, (), "int32"), DTypeError, "unsigned integers"),
    "integers of uniform": (lambda: random.uniform(KEY, (), "int32"), DTypeError, "not floats"),
    "a bound that does not fit": (lambda: random.uniform(KEY, (4,), minval=X), AxesError,
                                  "minval must be a number, or a tensor that fits"),
    "a fractional bound": (lambda: random.randint(KEY, (), 0, 2.5), ArgumentError,
                           "minval and maxval must be integers, not 2.5"),
    "bounds in the wrong order": (lambda: random.truncated_normal(KEY, 1, -1), ArgumentError,
                                  "lower must be below upper, not 1 and -1"),
    "a bound that is a tensor": (lambda: random.truncated_normal(KEY, X), ArgumentError,
                                 "lower and upper must be numbers"),
    "a chance above 1": (lambda: random.bernoulli(KEY, 1.5), ArgumentError, "from 0 to 1"),
    "a shape without those of the logits": (lambda: random.categorical(KEY, X, shape=(3,)),
                                            AxesError, "does not end with"),
    "no such axis": (lambda: random.permutation(KEY, X, 2), AxesError, "dimension 2"),
    "too many to take": (lambda: random.choice(KEY, 3, (4,), False), ArgumentError,
                         "4 of 3 cannot be taken: take fewer, or replace=True"),
    "nothing to take": (lambda: random.choice(KEY, 0, (4,)), ArgumentError, "4 of 0"),
    "chances of another number": (lambda: random.choice(KEY, 3, p=CHANCES), AxesError,
                                  "a vector of 3 probabilities"),
    "whole chances": (lambda: random.choice(KEY, 2, p=np.array([1, 2])), DTypeError,
                      "p must be floats"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_uses_are_refused(name: str) -> None:
    build, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        build()


def test_a_key_operand_is_checked() -> None:
    for key, counter, words in (
        (weft.constant([1, 2]), weft.constant(0, dtype="uint32"), "2 words of uint32"),
        (weft.constant(KEY), weft.constant(0), "counter is a uint32 scalar"),
        (weft.constant(KEY), weft.constant([0, 1], dtype="uint32"), "counter is a uint32 scalar"),
    ):
        with pytest.raises(AxesError, match=words):
            RandomBitsOp(key, counter, target_axes=weft.make_axes(3), domain=SAMPLES)
