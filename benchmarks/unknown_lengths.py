"""Lengths that a call brings: what the first one, a second one and those of other templates cost.

A template serves a length without passes, planner and compiler; what is left is the work per launch
and per op of the graph. Its code is compared with code for that length alone, call by call. The
goals are for the backends that share code; the numpy backend compiles for each length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from measure import Row, interleaved, main

import weft

SIZES = 40, 48, 41, 300
"""The rows of the first call and of others.

The first template serves the second, but not the step on native. On GPUs the third needs another
one where rows of a multiple of 8 elements are loaded several at a time, as in the encoder; the last
needs one on all backends.
"""

STEADY = 0.95
"""The least ratio of the time of code for one length alone over that of shared code."""

Array = np.ndarray[Any, Any]
random = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    """Return a variable with small random values."""
    return weft.variable(shape, initial_value=(random.normal(size=shape) / 20).astype("f4"))


def mlp(x: Any) -> Any:
    """Three layers."""
    hidden = weft.relu(x @ weights(64, 128) + weights(128))
    hidden = weft.relu(hidden @ weights(128, 128) + weights(128))
    return hidden @ weights(128, 10) + weights(10)


def step(x: Any) -> Any:
    """A step of gradient descent for these layers."""
    loss = weft.mean(weft.square(mlp(x)), reduction_axes=(0, 1))
    return loss, weft.sgd(loss, learning_rate=0.01)


def cnn(x: Any) -> Any:
    """Two convolutions of images of 8 x 8, and a layer."""
    images = weft.reshape(x, (-1, 1, 8, 8))
    hidden = weft.max_pool(weft.relu(weft.conv2d(images, weights(16, 1, 3, 3), padding=1)), 2)
    hidden = weft.relu(weft.conv2d(hidden, weights(32, 16, 3, 3), padding=1))
    return weft.reshape(hidden, (-1, 512)) @ weights(512, 10)


def encoder(x: Any) -> Any:
    """Twelve layers of attention over the rows, with four heads."""
    width, heads = 64, 4

    def split(rows: Any) -> Any:
        return weft.transpose(weft.reshape(rows, (-1, heads, width // heads)), (1, 0, 2))

    def norm(rows: Any) -> Any:
        return weft.layer_norm(rows, weights(width), weights(width))

    for _ in range(12):
        q, k, v = (split(x @ weights(width, width) + weights(width)) for _ in range(3))
        scores = weft.softmax(q @ weft.transpose(k, (0, 2, 1)) / 4, axis=-1)
        mixed = weft.reshape(weft.transpose(scores @ v, (1, 0, 2)), (-1, width))
        x = norm(x + mixed @ weights(width, width))
        x = norm(x + weft.gelu(x @ weights(width, 256)) @ weights(256, width))
    return x


def statistics(x: Any) -> Any:
    """The standardized columns."""
    return (x - weft.mean(x, axis=0)) / weft.sqrt(weft.variance(x, axis=0) + 1e-5)


MODELS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "mlp": (mlp, 0.010),
    "mlp step": (step, 0.020),
    "cnn": (cnn, 0.010),
    "encoder of 12 layers": (encoder, 0.060),
    "columns": (statistics, 0.010),
}
"""The models, and the most seconds of the second size."""


def rows(count: int) -> Array:
    """Return the rows of a call."""
    return np.random.default_rng(count).normal(size=(count, 64)).astype("f4")


def computation(model: Callable[[Any], Any], length: Any) -> Any:
    """Return a computation of a model for some number of rows, with a compiler but no cache."""
    x = weft.placeholder((length, 64))
    return weft.make_transformer(cache=False).computation(model(x), x)


def benchmark(rounds: int) -> Iterator[Row]:
    """Measure each model."""
    is_shared = os.environ["WEFT_BACKEND"] != "numpy"
    computation(lambda x: x + 1, weft.symbol("n"))(rows(7))  # imports what compiling needs
    for name, (model, goal) in MODELS.items():
        shared = computation(model, weft.symbol("n"))
        taken = []
        for count in SIZES:
            start = perf_counter()
            shared(rows(count))
            taken.append(perf_counter() - start)
        first, second, odd, other = taken
        yield Row(f"first size, {name}", first, "s")
        yield Row(f"second size, {name}", second, "s", goal if is_shared else None)
        yield Row(f"odd size, {name}", odd, "s")
        yield Row(f"size of another template, {name}", other, "s")
        for count in SIZES[2:]:
            alone, x = computation(model, count), rows(count)
            calls = {"alone": partial(alone, x), "shared": partial(shared, x)}
            samples = interleaved(calls, rounds)
            ratio = samples.ratio("alone", "shared")
            what = f"alone over shared, {name}, {count} rows"
            least = STEADY if is_shared else None
            yield Row(what, ratio, "x", least, samples.noise(), at_least=True)


if __name__ == "__main__":
    main(benchmark)
