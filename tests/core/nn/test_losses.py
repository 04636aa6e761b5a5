"""Losses of extreme values, and of labels that are out of range: the error names label and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import IndexOutOfRange

LOSSES = (weft.cross_entropy, weft.nll_loss, weft.multi_margin_loss)


@pytest.mark.parametrize("wrong", [3, -1, -4, 2**40])
@pytest.mark.parametrize("is_weighed", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_labels_out_of_range_are_named(
    transformer: weft.Transformer, loss: Callable[..., Any], is_weighed: bool, wrong: int
):
    x, labels = weft.placeholder((2, 3, 2)), weft.placeholder((2, 2), "int64")
    result = loss(x, labels, axis=1, weights=np.ones(3, np.float32) if is_weighed else None)
    step = transformer.computation(result, x, labels)
    scores = np.eye(2, 6, dtype=np.float32).reshape(2, 3, 2)
    step(scores, np.array([[0, 1], [2, 0]]))
    with pytest.raises(IndexOutOfRange) as caught:
        step(scores, np.array([[0, 1], [wrong, 0]]))
    assert f"label {wrong} at (1, 0) is out of range for 3 classes" in str(caught.value)
    assert "test_losses.py" in str(caught.value)


def test_cross_entropy_of_a_softmax_is_finite_and_its_gradient_is_y_minus_t(
    transformer: weft.Transformer,
):
    classes = weft.make_axis(4, "C")
    x, t = weft.placeholder((classes,)), weft.placeholder((classes,))
    y = weft.softmax(x)
    loss = weft.cross_entropy_multi(y, t)
    c = transformer.computation([loss, weft.deriv(loss, x), y], x, t)
    target = np.array([0, 0.25, 0.75, 0], np.float32)
    for logits in ([5000, -5000, 0, 3], [-5000, -5000, -5000, -5000], [1, 2, 3, 4]):
        value, gradient, prediction = c(logits, target)
        assert np.isfinite(value)
        np.testing.assert_allclose(gradient, prediction - target, atol=1e-6)
