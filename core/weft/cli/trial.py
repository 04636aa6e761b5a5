"""The trial program that `weft doctor` compiles and runs on each usable backend."""

from __future__ import annotations

import numpy as np

import weft
from weft import plugins
from weft.errors import CheckFailed
from weft.plugins.entrypoints import DEFAULT_BACKENDS

_TOLERANCE = 1e-3


def try_backend(name: str) -> None:
    """Train a linear classifier for two steps; raises CheckFailed if a number is wrong.

    Whatever the backend, a pass, a rule or a hook raises is raised.
    """
    kind = plugins.load(plugins.BACKENDS, name, is_default=name in DEFAULT_BACKENDS)
    images = np.array([[1, 0, 2], [-1, 3, 1], [0.5, 1, -2], [2, -1, 0]], "float32")
    classes = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], "float32")
    weights = np.array([[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6]], "float32")
    x, t = weft.placeholder((4, 3), name="x"), weft.placeholder((4, 2), name="t")
    w = weft.variable((3, 2), initial_value=weights, name="w")
    loss = -weft.sum(weft.log(weft.softmax(x @ w, 1)) * t)
    update = weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    with weft.make_transformer(kind) as transformer:
        step = transformer.computation([loss, update], x, t, name="small_program")
        for number in range(2):
            found, _ = step(images, classes)
            wanted, weights = _step(images, classes, weights)
            _require_near(found, wanted, f"the loss of step {number}")
        _require_near(transformer.get_value(w), weights, "the weights")


def _step(
    images: np.ndarray, classes: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss, and the weights after the step, as NumPy has them."""
    exponentials = np.exp(images @ weights)
    chances = exponentials / exponentials.sum(1, keepdims=True)
    loss = -np.sum(np.log(chances) * classes)
    return loss, weights - 0.1 * images.T @ (chances - classes)


def _require_near(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    if not np.allclose(found, wanted, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise CheckFailed(f"{what}: the program computes {found}, which should be {wanted}")
