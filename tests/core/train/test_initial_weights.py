"""Initial weights and learning rates at work: in variables, on backends, in training."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.share(4)]

C, K = weft.Axis(120, "C"), weft.Axis(80, "K")

SIGMAS = 6.5
"""Deviations of a normal number that it exceeds with a chance of 1e-10."""

DEVIATIONS: dict[str, tuple[Any, float]] = {
    "glorot_uniform": (weft.glorot_uniform, np.sqrt(2 / 200)),
    "glorot_normal": (partial(weft.glorot_normal, gain=3), 3 * np.sqrt(2 / 200)),
    "he_uniform": (partial(weft.he_uniform, in_axes="C"), np.sqrt(2 / 120)),
    "he_normal": (partial(weft.he_normal, mode="fan_out", in_axes="C"), np.sqrt(2 / 80)),
    "lecun_normal": (weft.lecun_normal, np.sqrt(1 / 80)),
    "variance_scaling": (weft.variance_scaling, np.sqrt(1 / 80)),
    "orthogonal": (weft.orthogonal, np.sqrt(1 / 120)),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_weights_have_mean_zero_and_the_deviation_of_the_formula(
    name: str, transformer: Any
) -> None:
    function, deviation = DEVIATIONS[name]
    w = weft.variable((C, K), initial_value=function)
    got = transformer.computation(w)()
    assert abs(got.mean()) < SIGMAS * deviation / np.sqrt(got.size)
    # No distribution here has longer tails than the normal one.
    assert got.std() == pytest.approx(deviation, rel=SIGMAS / np.sqrt(2 * got.size))


def test_each_variable_has_numbers_of_its_own_in_its_dtype() -> None:
    one, other = (weft.variable((4, 3), initial_value=weft.he_normal) for _ in range(2))
    wide = weft.variable((4, 3), float, initial_value=weft.orthogonal)
    transformer = weft.make_transformer("numpy")
    a, b, c = transformer.computation([one, other, wide])()
    assert not (a == b).any()
    assert c.dtype == np.float64
    assert transformer.computation(one)().tolist() == a.tolist()


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (100, 100), (30, 90), (6, 3, 3, 3)])
def test_an_orthogonal_weight_is_orthonormal_to_rounding(shape: tuple[int, ...]) -> None:
    w = weft.variable(shape, initial_value=weft.orthogonal)
    q = weft.make_transformer("numpy").computation(w)().reshape(shape[0], -1)
    q = q if q.shape[0] <= q.shape[1] else q.T
    np.testing.assert_allclose(q @ q.T, np.eye(len(q)), atol=5e-6)


def test_a_singular_matrix_does_not_spoil_the_factor() -> None:
    from weft.train.initializers import _orthonormal

    x = np.random.default_rng(0).normal(size=(20, 20)).astype(np.float32)
    x[:, 7] = x[:, 3] * (1 + 1e-6)
    q = weft.make_transformer("numpy").computation(_orthonormal(weft.constant(x)))()
    np.testing.assert_allclose(q.T @ q, np.eye(20), atol=5e-6)


def test_a_schedule_sets_the_rate_of_each_step_of_training(transformer: Any) -> None:
    step = weft.persistent_tensor((), weft.int32, initial_value=0)
    rate = weft.warm_up(step, weft.step_decay(step, 1.0, 3, 0.5), 2)
    w = weft.variable((), initial_value=10.0)
    with weft.saved_user_deps():
        train = weft.sgd(w * 1.0, learning_rate=rate)
        count = weft.assign(step, step + 1)
        both = weft.doall([train, count])
    run = transformer.computation([both, w])
    values = [10.0, *(float(run()[1]) for _ in range(7))]
    np.testing.assert_allclose(-np.diff(values), [0, 0.5, 1, 0.5, 0.5, 0.5, 0.25])


def test_a_schedule_is_float64_for_a_step_of_float64() -> None:
    step = weft.placeholder((), float)
    assert weft.cosine_decay(step, 0.1, 10).dtype == weft.float64
    assert weft.cosine_decay(weft.constant(3), 0.1, 10).dtype == weft.float32
