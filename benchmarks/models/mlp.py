"""One training step of a two-layer network, three times: in weft, by hand, and in eager NumPy.

784 inputs, 1000 rectified units, 10 classes, batches of 128, softmax cross entropy, plain
stochastic gradient descent, all float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from models.program import Program, descend, normal, softmax_loss, training_step

BATCH, INPUTS, UNITS, CLASSES = 128, 784, 1000, 10
RATE = 0.01
FLOPS = 2 * BATCH * (2 * INPUTS * UNITS + 3 * UNITS * CLASSES)
"""Of the five matrix products of a step."""

Array = np.ndarray[Any, Any]


def data() -> tuple[Array, Array]:
    """Return a batch of inputs and of one-hot targets."""
    random = np.random.default_rng(0)
    x = random.standard_normal((BATCH, INPUTS)).astype("f4")
    return x, np.eye(CLASSES, dtype="f4")[random.integers(0, CLASSES, BATCH)]


def parameters() -> list[Array]:
    """Return fresh weights and biases; the same ones each time."""
    random = np.random.default_rng(1)
    shapes = (INPUTS, UNITS), (UNITS,), (UNITS, CLASSES), (CLASSES,)
    return [normal(random, shape, 0.05) for shape in shapes]


def forward(values: Sequence[Array]) -> tuple[Any, Any, Any, list[Any]]:
    """Return the two placeholders, the mean loss, and the variables, which begin with `values`."""
    x = weft.placeholder((BATCH, INPUTS))
    t = weft.placeholder((BATCH, CLASSES))
    variables = [weft.variable(value.shape, initial_value=value) for value in values]
    w1, b1, w2, b2 = variables
    hidden = weft.relu(weft.matmul(x, w1) + b1)
    y = weft.softmax(weft.matmul(hidden, w2) + b2)
    return x, t, weft.mean(weft.cross_entropy_multi(y, t)), variables


def program(values: Sequence[Array]) -> Program:
    """Return the step with the mean loss as its first result, for parameters to begin with."""
    x, t, loss, variables = forward(values)
    return training_step(loss, (x, t), variables, RATE)


class ByHand:
    """The step with all memory preallocated, as a careful programmer would write it.

    Activations, their gradient and everything of the size of the logits are overwritten in place;
    no buffer is used for two purposes.
    """

    def __init__(self) -> None:
        self.w1, self.b1, self.w2, self.b2 = self.parameters = parameters()
        self.hidden, self.d_hidden = (np.empty((BATCH, UNITS), "f4") for _ in range(2))
        self.active = np.empty((BATCH, UNITS), "?")
        self.powers, self.terms = (np.empty((BATCH, CLASSES), "f4") for _ in range(2))
        self.top, self.total = (np.empty((BATCH, 1), "f4") for _ in range(2))
        self.gradients = [np.empty_like(value) for value in self.parameters]
        self.loss = np.empty((), "f4")
        self.no_units = np.zeros(UNITS, "f4")
        self.zero, self.share = np.float32(0), np.float32(1 / BATCH)
        self.rate = np.float32(RATE)

    @property
    def nbytes(self) -> int:
        """The bytes of all buffers that a step overwrites, without the parameters."""
        own = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        kept = [id(value) for value in self.parameters]
        return sum(a.nbytes for a in [*own, *self.gradients] if id(a) not in kept)

    def __call__(self, x: Array, t: Array) -> Array:
        """Train on one batch and return the mean loss."""
        np.matmul(x, self.w1, self.hidden)
        np.add(self.hidden, self.b1, self.hidden)
        np.maximum(self.hidden, self.no_units, out=self.hidden)
        np.matmul(self.hidden, self.w2, self.powers)
        np.add(self.powers, self.b2, self.powers)
        self._loss(t)
        self._backward(x, t)
        for value, gradient in zip(self.parameters, self.gradients, strict=True):
            np.multiply(gradient, self.rate, gradient)
            np.subtract(value, gradient, value)
        return self.loss

    def _loss(self, t: Array) -> None:
        """Turn the logits into their exponentials, and compute the mean cross entropy."""
        np.maximum.reduce(self.powers, 1, None, self.top, True)
        np.subtract(self.powers, self.top, self.powers)
        np.copyto(self.terms, self.powers)
        np.exp(self.powers, self.powers)
        np.add.reduce(self.powers, 1, None, self.total, True)
        np.log(self.total, self.top)
        np.subtract(self.top, self.terms, self.terms)
        np.multiply(self.terms, t, self.terms)
        np.add.reduce(self.terms, None, None, self.loss)
        np.multiply(self.loss, self.share, self.loss)

    def _backward(self, x: Array, t: Array) -> None:
        """Compute the gradients; that of the logits is softmax minus targets over the batch."""
        d_w1, d_b1, d_w2, d_b2 = self.gradients
        np.divide(self.powers, self.total, self.powers)
        np.subtract(self.powers, t, self.powers)
        np.multiply(self.powers, self.share, self.powers)
        np.matmul(self.hidden.T, self.powers, d_w2)
        np.add.reduce(self.powers, 0, None, d_b2)
        np.matmul(self.powers, self.w2.T, self.d_hidden)
        np.greater(self.hidden, self.zero, self.active)
        np.multiply(self.d_hidden, self.active, self.d_hidden)
        np.matmul(x.T, self.d_hidden, d_w1)
        np.add.reduce(self.d_hidden, 0, None, d_b1)


class Eager:
    """The step as it is written down, with a fresh array for every value."""

    def __init__(self) -> None:
        self.parameters = parameters()

    def __call__(self, x: Array, t: Array) -> Array:
        """Train on one batch and return the mean loss."""
        w1, b1, w2, b2 = self.parameters
        before = x @ w1 + b1
        hidden = np.maximum(before, 0)
        logits = hidden @ w2 + b2
        loss, d_logits = softmax_loss(logits, t)
        d_hidden = np.where(before > 0, d_logits @ w2.T, np.float32(0))
        gradients = x.T @ d_hidden, d_hidden.sum(axis=0), hidden.T @ d_logits, d_logits.sum(axis=0)
        self.parameters = descend(self.parameters, gradients, RATE)
        return loss


class Products:
    """The matrix products of a step and nothing else."""

    def __init__(self) -> None:
        self.w1, _, self.w2, _ = parameters()
        self.d_w1, self.d_w2 = np.empty_like(self.w1), np.empty_like(self.w2)
        self.hidden, self.d_hidden = (np.ones((BATCH, UNITS), "f4") for _ in range(2))
        self.logits = np.ones((BATCH, CLASSES), "f4")

    def __call__(self, x: Array) -> None:
        """Multiply as a step does."""
        np.matmul(x, self.w1, self.hidden)
        np.matmul(self.hidden, self.w2, self.logits)
        np.matmul(self.hidden.T, self.logits, self.d_w2)
        np.matmul(self.logits, self.w2.T, self.d_hidden)
        np.matmul(x.T, self.d_hidden, self.d_w1)
