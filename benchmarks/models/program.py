"""A model as a graph, and the proof that it computes what eager NumPy does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """Results to compute, their placeholders in the order of a call, and the variables inside."""

    results: Any
    placeholders: Sequence[Any]
    variables: Sequence[Any]

    def compiled(self) -> tuple[Any, Any]:
        """Return a fresh transformer of the chosen backend, and the computation in it."""
        transformer = weft.make_transformer()
        return transformer, transformer.computation(self.results, *self.placeholders)


def training_step(
    loss: Any, placeholders: Sequence[Any], variables: Sequence[Any], rate: float
) -> Program:
    """Return the program that computes a loss and takes a step of gradient descent."""
    updates = [weft.assign(v, v - rate * weft.deriv(loss, v)) for v in variables]
    return Program([loss, weft.doall(updates)], placeholders, variables)


def check_training(
    program: Program, rivals: Sequence[Any], data: Sequence[Array], steps: int = 3
) -> None:
    """Raise AssertionError unless rivals train as a program does: losses, and each parameter.

    A rival is called with the data, returns the loss and has `parameters`, in the order of the
    program's variables. How far each parameter moved may differ by a thousandth of the largest
    move among its elements.
    """
    transformer, step = program.compiled()
    before = [transformer.get_value(variable) for variable in program.variables]
    for _ in range(steps):
        loss = step(*data)[0]
        for rival in rivals:
            np.testing.assert_allclose(loss, rival(*data), rtol=1e-5)
    after = [transformer.get_value(variable) for variable in program.variables]
    for rival in rivals:
        for start, found, value in zip(before, after, rival.parameters, strict=True):
            expected = value - start
            largest = np.abs(expected).max()
            assert largest > 0
            np.testing.assert_allclose(found - start, expected, rtol=0, atol=1e-3 * largest)


def descend(parameters: Sequence[Array], gradients: Sequence[Array], rate: float) -> list[Array]:
    """Return the parameters after a step of gradient descent."""
    pairs = zip(parameters, gradients, strict=True)
    return [value - np.float32(rate) * gradient for value, gradient in pairs]


def normal(random: np.random.Generator, shape: tuple[int, ...], scale: float) -> Array:
    """Return normal float32 numbers."""
    return scale * random.standard_normal(shape, "f4")


def softmax_loss(logits: Array, targets: Array) -> tuple[Array, Array]:
    """Return the mean cross entropy of one-hot targets and softmax, and the logits' gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=1, keepdims=True)
    share = np.float32(1 / len(logits))
    loss = np.sum((np.log(total) - shifted) * targets) * share
    return loss, (powers / total - targets) * share
