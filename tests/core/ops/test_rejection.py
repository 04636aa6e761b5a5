"""Distributions that reject proposals, and others of keys: SciPy is the judge of samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AxesError, DTypeError

stats = pytest.importorskip("scipy.stats")

random = weft.random
KEY = random.key(20261129)
COUNT = 20_000

LEVEL = 1e-6
"""The chance that a correct sampler fails a test of a key that nobody has tried."""

SHARES = np.array([0.1, 0.2, 0.3, 0.4, 0.0], np.float32)

SAMPLED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "cauchy": (lambda key: random.cauchy(key, (COUNT,), loc=1, scale=2), stats.cauchy(1, 2)),
    "lognormal": (lambda key: random.lognormal(key, 0.5, (COUNT,), mean=1),
                  stats.lognorm(0.5, scale=math.e)),
    "beta": (lambda key: random.beta(key, 0.5, 2, (COUNT,)), stats.beta(0.5, 2)),
    "dirichlet": (lambda key: random.dirichlet(key, np.array([0.5, 1, 2]), (COUNT,))[:, 1],
                  stats.beta(1, 2.5)),
    "multinomial": (lambda key: random.multinomial(key, 20, SHARES, (COUNT,))[:, 3],
                    stats.binom(20, 0.4)),
    "multivariate_normal": (
        lambda key: weft.sum(random.multivariate_normal(
            key, np.array([1.0, 2.0]), np.array([[4.0, 2.0], [2.0, 3.0]]), (COUNT,)), axis=-1),
        stats.norm(3, math.sqrt(11))),
    **{f"gamma {a}": (lambda key, a=a: random.gamma(key, a, (COUNT,)), stats.gamma(a))
       for a in (0.1, 1, 2.5, 1e4)},
    **{f"loggamma {a}": (lambda key, a=a: random.loggamma(key, a, (COUNT,)), stats.loggamma(a))
       for a in (0.01, 3)},
    **{f"vonmises {kappa}": (lambda key, kappa=kappa: random.vonmises(key, 0, kappa, (COUNT,)),
                             stats.vonmises(kappa))
       for kappa in (0, 1, 1000)},
    **{f"poisson {mean}": (lambda key, mean=mean: random.poisson(key, mean, (COUNT,)),
                           stats.poisson(mean))
       for mean in (0.1, 9.9, 10, 1000)},
    **{f"binomial {n} {p}": (lambda key, n=n, p=p: random.binomial(key, n, p, (COUNT,)),
                             stats.binom(n, p))
       for n, p in ((10, 0.5), (100, 0.3), (100, 0.95), (10**6, 0.5), (10**6, 1e-6))},
    **{f"geometric {p}": (lambda key, p=p: random.geometric(key, p, (COUNT,)), stats.geom(p))
       for p in (0.5, 0.01)},
}  # fmt: skip
"""By case: a draw, and the distribution."""


def furthest(values: Any, distribution: Any) -> float:
    """Return how far the share of values is from the distribution function, at most."""
    values = np.sort(values.astype(np.float64))
    if hasattr(distribution, "pmf"):
        counts = np.arange(values[0] - 1, values[-1] + 1)
        shares = np.searchsorted(values, counts, "right") / values.size
        return float(np.abs(shares - distribution.cdf(counts)).max())
    expected, places = distribution.cdf(values), np.arange(values.size + 1) / values.size
    return float(max((places[1:] - expected).max(), (expected - places[:-1]).max()))


@pytest.mark.parametrize("case", SAMPLED)
def test_samples_are_of_the_distribution(case: str) -> None:
    build, distribution = SAMPLED[case]
    values = weft.jit(build, backend="numpy")(KEY)  # others are compared with it below
    # Kolmogorov's bound: 2 exp(-2 n d²). Steps of a distribution only make it smaller.
    assert furthest(values, distribution) < math.sqrt(math.log(2 / LEVEL) / (2 * COUNT))


RAMP = np.linspace(0, 1, 500, dtype=np.float32)

EVERYWHERE: dict[str, tuple[Callable[[Any], Any], float]] = {
    "cauchy": (lambda key: random.cauchy(key, (500,)), 1e-5),
    "gamma": (lambda key: random.gamma(key, 20 * RAMP), 1e-5),
    "gamma float64": (lambda key: random.gamma(key, 20 * RAMP, dtype="float64"), 1e-13),
    "dirichlet": (lambda key: random.dirichlet(key, RAMP[1:6], (100,)), 1e-4),
    "vonmises": (lambda key: random.vonmises(key, 0, 50 * RAMP), 1e-5),
    "poisson": (lambda key: random.poisson(key, 50 * RAMP), 0),
    "binomial": (lambda key: random.binomial(key, 100, RAMP), 0),
    "geometric": (lambda key: random.geometric(key, RAMP[1:]), 0),
    "multinomial": (lambda key: random.multinomial(key, 100, RAMP[:3], (100,)), 0),
    "categorical": (lambda key: random.categorical(
        key, np.zeros((100, 9), np.float32), shape=(3, 100), replace=False), 0),
}  # fmt: skip
"""By case: a draw, and the relative difference that rounding may make."""


@pytest.mark.parametrize("case", EVERYWHERE)
def test_samples_are_the_same_everywhere_and_for_each_key_of_a_batch(
    backend: str, case: str
) -> None:
    build, rounding = EVERYWHERE[case]
    keys = random.split(KEY, 2)
    wanted = np.stack([weft.jit(build, backend="numpy")(key) for key in keys])
    np.testing.assert_allclose(weft.jit(build, backend=backend)(keys[1]), wanted[1], rounding)
    found = weft.jit(weft.vmap(build), backend=backend)(keys)
    np.testing.assert_allclose(found, wanted, rounding)


def test_each_parameter_of_a_batch_has_the_samples_of_its_own(backend: str) -> None:
    def draw(x: Any) -> Any:
        shape = (20,)
        return (
            random.gamma(KEY, 9 * x, shape),
            random.poisson(KEY, 30 * x, shape),
            random.vonmises(KEY, x, 9 * x, shape),
            random.dirichlet(KEY, weft.stack([x, 1 + x]), shape),
        )

    values, alone = np.array([0.03, 0.5, 0.97], np.float32), weft.jit(draw, backend=backend)
    found = weft.jit(weft.vmap(draw), backend=backend)(values)
    for together, *separate in zip(found, *map(alone, values), strict=True):
        np.testing.assert_allclose(together, np.stack(separate), 1e-5)


SPECIAL = np.array([0, np.inf, -1, np.nan, 1e30], np.float32)

EDGES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "gamma": (lambda x: random.gamma(KEY, x), [0, np.inf, np.nan, np.nan, 1e30]),
    "loggamma": (lambda x: random.loggamma(KEY, x),
                 [-np.inf, np.inf, np.nan, np.nan, math.log(1e30)]),
    "beta": (lambda x: random.beta(KEY, x, 1), [0, 1, np.nan, np.nan, 1]),
    "beta of the second": (lambda x: random.beta(KEY, 1, x), [1, 0, np.nan, np.nan, 0]),
    "poisson": (lambda x: random.poisson(KEY, x), [0, -1, -1, -1, 2**31 - 128]),
    "poisson int8": (lambda x: random.poisson(KEY, x, dtype="int8"), [0, -1, -1, -1, 127]),
    "poisson float32": (lambda x: random.poisson(KEY, x, dtype="float32"),
                        [0, np.nan, np.nan, np.nan, 1e30]),
    "trials": (lambda x: random.binomial(KEY, x, 0.0), [0, -1, -1, -1, 0]),
    "chances": (lambda x: random.binomial(KEY, 3, x), [0, -1, -1, -1, -1]),
    "certain": (lambda x: random.binomial(KEY, 3, 1 - x), [3, -1, -1, -1, -1]),
    "broken": (lambda x: random.binomial(KEY, x + 0.5, 0.5), [-1, -1, -1, -1, 2**31 - 128]),
    "geometric": (lambda x: random.geometric(KEY, x), [-1, -1, -1, -1, -1]),
    "first": (lambda x: random.geometric(KEY, 1 + 0 * x), [1, -1, 1, -1, 1]),
    "vonmises": (lambda x: 0 * random.vonmises(KEY, 0, x), [0, np.nan, np.nan, np.nan, 0]),
    "multinomial": (lambda x: random.multinomial(KEY, 5, weft.stack([x, 0 * x], pos=1))[:, 0],
                    [-1, -1, -1, -1, 5]),
    "dirichlet": (lambda x: random.dirichlet(KEY, weft.stack([x, 1 + 0 * x], pos=1))[:, 0],
                  [0, np.nan, np.nan, np.nan, 1]),
}  # fmt: skip
"""By case: a draw, and what it gives for 0, infinity, -1, NaN and 10³⁰."""


def test_parameters_at_the_edge_give_what_is_documented(backend: str) -> None:
    cases = {name: build for name, (build, _) in EDGES.items()}
    found = weft.jit(lambda x: {name: build(x) for name, build in cases.items()}, backend=backend)(
        SPECIAL
    )
    for name, (_, wanted) in EDGES.items():
        np.testing.assert_allclose(found[name], wanted, 1e-5, 1e-29, err_msg=name)


def test_a_covariance_that_is_not_positive_definite_gives_nan(backend: str) -> None:
    draw = weft.jit(lambda cov: random.multivariate_normal(KEY, np.zeros(2), cov), backend=backend)
    found = draw(np.array([np.eye(2), [[1, 2], [2, 1]]], np.float32))
    assert np.isnan(found).any(1).tolist() == [False, True]


def test_lengths_of_zero_and_trials_of_zero(backend: str) -> None:
    @weft.jit(backend=backend)
    def draw(key: Any) -> Any:
        return (
            random.gamma(key, np.zeros((0, 2), np.float32)),
            random.poisson(key, 20.0, (0,)),
            random.multinomial(key, 0, SHARES),
            random.multinomial(key, 7, np.array([3.0])),
            random.categorical(key, SHARES, shape=(0,), replace=False),
        )

    nothing, none, zeros, all_of_one, no_draws = draw(KEY)
    assert nothing.shape == (0, 2)
    assert none.shape == no_draws.shape == (0,)
    assert zeros.tolist() == [0] * 5
    assert all_of_one.tolist() == [7]


SHAPES = np.array([0.05, 0.5, 0.999, 1, 3, 20, 500])


def _quantile_slope(sample: float, a: float, step: float) -> float:
    """Return the derivative of the gamma quantile by central differences."""
    law = stats.gamma
    if law.cdf(sample, a) < 0.5:
        low, high = (law.ppf(law.cdf(sample, a), a + side * step) for side in (-1, 1))
    else:
        low, high = (law.isf(law.sf(sample, a), a + side * step) for side in (-1, 1))
    return float((high - low) / (2 * step))


def test_the_gradient_of_gamma_is_that_of_the_quantile(backend: str) -> None:
    def draw(a: Any, key: Any) -> Any:
        return weft.sum(random.gamma(key, a, dtype="float64"))

    @weft.jit(backend=backend)
    def drawn(a: Any, key: Any) -> Any:
        slope = weft.grad(draw)
        curve = weft.grad(lambda a: weft.sum(slope(a, key)))
        return random.gamma(key, a, dtype="float64"), slope(a, key), curve(a)

    for key in random.split(KEY, 3):
        samples, slopes, curves = drawn(SHAPES, key)
        assert (slopes > 0).all()
        for sample, slope, curve, a in zip(samples, slopes, curves, SHAPES, strict=True):
            step = 1e-5 * a
            assert slope == pytest.approx(_quantile_slope(sample, a, step), rel=1e-6)
            # The second derivative is of the sample that moves along.
            later, sooner = (
                _quantile_slope(sample + slope * side, a + side, step)
                for side in (100 * step, -100 * step)
            )
            assert curve == pytest.approx((later - sooner) / (200 * step), rel=1e-2, abs=1e-5)


def test_the_slope_of_a_gamma_sample_has_all_digits() -> None:
    from mpmath import diff, exp, gammainc, log, loggamma, mp, mpf

    from weft.ops.random.implicit import log_slope

    shapes, levels = (0.01, 0.9, 1.0, 11.9, 12.5, 300.0, 1e4), (1e-6, 0.4, 0.6, 1 - 1e-6)
    pairs = [(a, stats.gamma.ppf(q, a)) for a in shapes for q in levels]
    pairs = [(a, math.log(z)) for a, z in pairs if z > 1e-30]
    for dtype, rounding in (("float32", 1e-6), ("float64", 2e-13)):
        given = np.array(pairs, dtype)
        found = weft.jit(lambda a, y: log_slope(y, a), backend="numpy")(*given.T)
        with mp.workdps(40):
            for (a, y), slope in zip(given, found, strict=True):
                a, z = mpf(float(a)), exp(mpf(float(y)))
                moved = -diff(lambda b, z=z: gammainc(b, 0, z, regularized=True), a)
                density = exp((a - 1) * log(z) - z - loggamma(a))
                assert float(slope) == pytest.approx(float(moved / density / z), rel=rounding)


def test_gradients_of_means_flow_to_parameters(backend: str) -> None:
    """Means of n samples are within 6 deviations, sd / sqrt(n)."""

    @weft.jit(backend=backend)
    def slopes(p: dict[str, Any], key: Any) -> Any:
        def mean(p: dict[str, Any]) -> Any:
            keys = random.split(key, 3)
            weights = np.array([1.0, 0.0, 0.0], np.float32)
            return (
                weft.mean(random.beta(keys[0], p["a"], p["b"], (COUNT,)))
                + weft.mean(random.dirichlet(keys[1], p["alpha"], (COUNT,)) @ weights)
                + weft.sum(random.vonmises(keys[2], p["loc"], 4.0, (3,)))
            )

        return weft.grad(mean)(p)

    given = {"a": 2.0, "b": 3.0, "loc": 0.0, "alpha": np.array([1, 2, 3], np.float32)}
    found = slopes(given, KEY)
    assert found["a"] == pytest.approx(3 / 25, abs=0.005)
    assert found["b"] == pytest.approx(-2 / 25, abs=0.005)
    assert found["loc"] == 3
    np.testing.assert_allclose(found["alpha"], [5 / 36, -1 / 36, -1 / 36], atol=0.005)


def test_gradients_of_small_and_large_concentrations_are_finite(backend: str) -> None:
    def draw(x: Any) -> Any:
        weights = np.array([1.0, 2.0], np.float32)
        return (
            weft.sum(random.gamma(KEY, x))
            + weft.sum(random.beta(KEY, x, 1.0))
            + weft.sum(random.beta(KEY, 1.0, x))
            + weft.sum(random.dirichlet(KEY, weft.stack([x, 1 + x], pos=1)) * weights)
        )

    given = np.array([0, 1e-30, 1e-3, 1e30, np.inf], np.float32)
    assert np.isfinite(weft.jit(weft.grad(draw), backend=backend)(given)).all()


def test_the_gradient_of_a_normal_vector_flows_through_the_factor(backend: str) -> None:
    def draw(mean: Any, cov: Any, key: Any) -> Any:
        return weft.sum(random.multivariate_normal(key, mean, cov, dtype="float64") * [1.0, 2.0])

    mean, cov, step = np.array([1.0, 2.0]), np.array([[4.0, 1.0], [1.0, 3.0]]), 1e-6
    found = weft.jit(weft.grad(draw, (0, 1)), backend=backend)(mean, cov, KEY)
    np.testing.assert_allclose(found[0], [1, 2], 1e-12)
    value = weft.jit(draw, backend=backend)
    for place in ((0, 0), (1, 1)):
        change = np.zeros((2, 2))
        change[place] = step
        slope = (value(mean, cov + change, KEY) - value(mean, cov - change, KEY)) / (2 * step)
        assert found[1][place] == pytest.approx(float(slope), rel=1e-6)


def test_classes_without_replacement_come_in_the_order_of_their_chances() -> None:
    chances = np.array([0.2, 0.5, 0.3, 0.0])
    with np.errstate(divide="ignore"):
        rows = np.tile(np.log(chances), (COUNT, 1)).astype(np.float32)
    draw = weft.jit(lambda key, x: random.categorical(key, x, shape=(3, COUNT), replace=False))
    found = draw(KEY, rows)
    assert (np.sort(found, 0) == [[0], [1], [2]]).all()
    for first in range(3):
        for second in set(range(3)) - {first}:
            chance = chances[first] * chances[second] / (1 - chances[first])
            share = np.mean((found[0] == first) & (found[1] == second))
            assert abs(share - chance) < 5 * math.sqrt(chance / COUNT)


def test_numbers_of_trials_are_divided_without_loss(backend: str) -> None:
    trials = np.array([0, 1, 5, 1000], np.int32)
    counts = weft.jit(lambda key: random.multinomial(key, trials, SHARES), backend=backend)(KEY)
    assert counts.sum(-1).tolist() == trials.tolist()
    assert (counts >= 0).all()
    assert not counts[:, 4].any()


def test_samples_have_the_axes_and_dtypes_that_are_given() -> None:
    n, c = weft.make_axis(3, "N"), weft.make_axis(4, "C")
    x, row = weft.placeholder((n, c)), weft.placeholder((c,))
    for op in (
        random.gamma(KEY, x, dtype="float16"), random.beta(KEY, x, row),
        random.vonmises(KEY, row, x), random.poisson(KEY, row, x), random.dirichlet(KEY, x),
        random.dirichlet(KEY, row, n), random.binomial(KEY, 3, x, dtype="int8"),
    ):  # fmt: skip
        assert op.axes == x.axes
    assert random.gamma(KEY, x, dtype="float16").dtype == "float16"
    assert random.binomial(KEY, 3, x, dtype="int8").dtype == "int8"
    assert random.beta(KEY, np.ones((3, 1)), np.ones(4)).axes.lengths == (3, 4)
    assert random.multinomial(KEY, np.ones((2, 1)), np.ones((3, 4))).axes.lengths == (2, 3, 4)


X = np.zeros((2, 3), np.float32)

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no key": (lambda: random.gamma(0, 1.0), ArgumentError, "gamma: takes a key, not 0"),
    "a negative shape": (lambda: random.gamma(KEY, -1), ArgumentError,
                         "gamma: a must be at least 0, not -1"),
    "an infinite shape": (lambda: random.beta(KEY, 1, math.inf), ArgumentError, "not inf"),
    "a negative mean": (lambda: random.poisson(KEY, -0.5), ArgumentError, "lam must be at least 0"),
    "NaN": (lambda: random.vonmises(KEY, 0, math.nan), ArgumentError, "kappa must .* not nan"),
    "broken trials": (lambda: random.binomial(KEY, 2.5, 0.5), ArgumentError,
                      "n must be an integer from 0 on, not 2.5"),
    "a chance above 1": (lambda: random.binomial(KEY, 2, 1.5), ArgumentError, "p must be from 0"),
    "no chance": (lambda: random.geometric(KEY, 0), ArgumentError, "above 0 and at most 1, not 0"),
    "integers of gamma": (lambda: random.gamma(KEY, 1, dtype="int32"), DTypeError, "not floats"),
    "unsigned counts": (lambda: random.poisson(KEY, 1, dtype="uint8"), DTypeError,
                        "poisson: counts are signed integers or floats, not uint8"),
    "a shape that does not fit": (lambda: random.gamma(KEY, X, (4,)), AxesError, "a must be"),
    "a scalar of shares": (lambda: random.dirichlet(KEY, 1.0), AxesError, "axis of concentrations"),
    "no classes": (lambda: random.multinomial(KEY, 1, np.ones((2, 0))), AxesError,
                   "p must have an axis of classes"),
    "named classes": (lambda: random.multinomial(KEY, 1, weft.placeholder(
        weft.make_axis(3, "C"))), AxesError, "takes positional axes"),
    "sizes that differ": (lambda: random.multivariate_normal(KEY, X, np.eye(2)), AxesError,
                          "vectors and matrices of one size"),
    "parameters of other shapes": (lambda: random.beta(KEY, np.ones(2), X), AxesError,
                                   "beta: the parameters do not fit each other"),
    "covariances of another batch": (lambda: random.multivariate_normal(
        KEY, np.zeros(2), np.ones((4, 2, 2)), (3,)), AxesError,
        "multivariate_normal: cov must .* fits"),
    "more than all classes": (lambda: random.categorical(KEY, X, shape=(4, 2), replace=False),
                              ArgumentError, "4 of 3 classes cannot be drawn"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_parameters_are_refused(case: str) -> None:
    build, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        build()
