"""One training step of a small convolutional network: in weft, and in eager NumPy with im2col.

Images of 28x28, 16 filters of 3x3, rectified, maxima of 2x2, 32 filters of 3x3, rectified, maxima
of 2x2, 10 classes, batches of 64, softmax cross entropy, plain stochastic gradient descent, all
float32; images are padded, so that a convolution keeps their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import weft
from models.program import Program, descend, normal, softmax_loss, training_step

BATCH, SIZE, FIRST, SECOND, CLASSES = 64, 28, 16, 32, 10
FEATURES = SECOND * (SIZE // 4) ** 2
RATE = 0.01
FIRST_FLOPS = 2 * BATCH * SIZE**2 * FIRST * 9
SECOND_FLOPS = 2 * BATCH * (SIZE // 2) ** 2 * SECOND * FIRST * 9
DENSE_FLOPS = 2 * BATCH * FEATURES * CLASSES
FLOPS = 2 * FIRST_FLOPS + 3 * SECOND_FLOPS + 3 * DENSE_FLOPS
"""Of the products of a step; nobody asks for the gradient of the images."""

Array = np.ndarray[Any, Any]


def data(batch: int = BATCH) -> tuple[Array, Array]:
    """Return a batch of images and of one-hot targets."""
    random = np.random.default_rng(0)
    images = normal(random, (batch, 1, SIZE, SIZE), 1)
    return images, np.eye(CLASSES, dtype="f4")[random.integers(0, CLASSES, batch)]


def parameters() -> list[Array]:
    """Return fresh filters, weights and biases; the same ones each time."""
    random = np.random.default_rng(1)
    return [
        normal(random, (FIRST, 1, 3, 3), 0.3), normal(random, (FIRST,), 0.1),
        normal(random, (SECOND, FIRST, 3, 3), 0.1), normal(random, (SECOND,), 0.1),
        normal(random, (FEATURES, CLASSES), 0.03), normal(random, (CLASSES,), 0.1),
    ]  # fmt: skip


def program(values: Sequence[Array]) -> Program:
    """Return the step with the mean loss as its first result, for parameters to begin with."""
    x = weft.placeholder((BATCH, 1, SIZE, SIZE))
    t = weft.placeholder((BATCH, CLASSES))
    variables = [weft.variable(value.shape, initial_value=value) for value in values]
    return training_step(weft.cross_entropy(network(x, variables), t), (x, t), variables, RATE)


def forward(values: Sequence[Array]) -> Program:
    """Return the network without training."""
    x = weft.placeholder((BATCH, 1, SIZE, SIZE))
    variables = [weft.variable(value.shape, initial_value=value) for value in values]
    return Program(network(x, variables), [x], variables)


def network(x: Any, variables: Sequence[Any]) -> Any:
    """Return what comes before softmax for each class."""
    w1, b1, w2, b2, w3, b3 = variables
    first = weft.max_pool(weft.relu(weft.conv2d(x, w1, padding=1, bias=b1)), 2)
    second = weft.max_pool(weft.relu(weft.conv2d(first, w2, padding=1, bias=b2)), 2)
    return weft.matmul(weft.reshape(second, (-1, FEATURES)), w3) + b3


class Eager:
    """The step with a fresh array for every value; convolutions are products of windows as columns.

    The maximum of 2x2 elements is taken of four slices, which is many times as fast as a maximum
    over two short axes.
    """

    def __init__(self) -> None:
        self.parameters = parameters()

    def forward(self, x: Array) -> Array:
        """Return what comes before softmax for each class."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        first = pooled(np.maximum(convolved(x, w1, b1)[1], 0))
        second = pooled(np.maximum(convolved(first, w2, b2)[1], 0))
        return second.reshape(BATCH, FEATURES) @ w3 + b3

    def __call__(self, x: Array, t: Array) -> Array:
        """Train on one batch and return the mean loss."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        columns1, before1 = convolved(x, w1, b1)
        hidden1 = np.maximum(before1, 0)
        pooled1 = pooled(hidden1)
        columns2, before2 = convolved(pooled1, w2, b2)
        hidden2 = np.maximum(before2, 0)
        pooled2 = pooled(hidden2)
        flat = pooled2.reshape(BATCH, FEATURES)
        loss, d_logits = softmax_loss(flat @ w3 + b3, t)
        d_pooled2 = (d_logits @ w3.T).reshape(pooled2.shape)
        d_before2 = pooled_gradient(d_pooled2, hidden2, pooled2) * (before2 > 0)
        d_pooled1 = image_gradient(d_before2, w2)
        d_before1 = pooled_gradient(d_pooled1, hidden1, pooled1) * (before1 > 0)
        gradients = (
            *filter_gradients(d_before1, columns1, w1),
            *filter_gradients(d_before2, columns2, w2),
            flat.T @ d_logits,
            d_logits.sum(axis=0),
        )
        self.parameters = descend(self.parameters, gradients, RATE)
        return loss


def convolved(x: Array, w: Array, b: Array) -> tuple[Array, Array]:
    """Return the windows of padded images as columns, and their products with filters, plus b."""
    batch, channels, height, width = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3)).transpose(0, 1, 4, 5, 2, 3)
    columns = windows.reshape(batch, channels * 9, height * width)
    products = (w.reshape(len(w), -1) @ columns).reshape(batch, len(w), height, width)
    return columns, products + b[:, None, None]


def filter_gradients(d: Array, columns: Array, w: Array) -> tuple[Array, Array]:
    """Return the gradients of filters and bias, given that of a convolution's result."""
    flat = d.reshape(len(d), len(w), -1)
    products = flat @ columns.transpose(0, 2, 1)
    return products.sum(axis=0).reshape(w.shape), d.sum(axis=(0, 2, 3))


def image_gradient(d: Array, w: Array) -> Array:
    """Return the gradient of a convolution's images: each window is added in its place."""
    batch, filters, height, width = d.shape
    channels = w.shape[1]
    columns = w.reshape(filters, -1).T @ d.reshape(batch, filters, -1)
    columns = columns.reshape(batch, channels, 3, 3, height, width)
    padded = np.zeros((batch, channels, height + 2, width + 2), "f4")
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + height, column : column + width] += columns[:, :, row, column]
    return padded[:, :, 1:-1, 1:-1]


def pooled(x: Array) -> Array:
    """Return the maximum of each 2x2 elements."""
    upper = np.maximum(x[:, :, ::2, ::2], x[:, :, ::2, 1::2])
    return np.maximum(upper, np.maximum(x[:, :, 1::2, ::2], x[:, :, 1::2, 1::2]))


def pooled_gradient(d: Array, x: Array, maxima: Array) -> Array:
    """Return the gradient of what was pooled: it goes to the elements that are the maxima."""
    gradient = np.empty_like(x)
    for row in range(2):
        for column in range(2):
            is_maximum = x[:, :, row::2, column::2] == maxima
            gradient[:, :, row::2, column::2] = d * is_maximum
    return gradient
