"""The network of the HamKaas document, batch 128: weft against NumPy by hand, and eager NumPy.

The limit is flops: two matrix products, 0.2 GFLOP, of which the first is 98 in a hundred. The
candidate of weft is `HamKaasModel.evaluate`, with its checks of names, types and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from limits import flops_limit
from measure import Row, interleaved, main, ratios

from weft_hamkaas import ConstantTensor, HamKaasModel, HamKaasPlugin, InputTensor

BATCH, INPUTS, UNITS, CLASSES = 128, 784, 1000, 10
FLOPS = 2 * BATCH * UNITS * (INPUTS + CLASSES)

Array = np.ndarray[Any, Any]


def parameters() -> list[Array]:
    random = np.random.default_rng(1)
    shapes = (INPUTS, UNITS), (1, UNITS), (UNITS, CLASSES), (1, CLASSES)
    return [0.05 * random.standard_normal(shape, np.float32) for shape in shapes]


def compiled() -> HamKaasModel:
    w1, b1, w2, b2 = map(ConstantTensor, parameters())
    x = InputTensor("input", "float32", [BATCH, 28, 28]).reshape([BATCH, INPUTS])
    return HamKaasPlugin().compile_model((x @ w1 + b1).relu() @ w2 + b2)


class ByHand:
    """The network with all memory preallocated, its result as well."""

    def __init__(self) -> None:
        self.parameters = parameters()
        self.hidden = np.empty((BATCH, UNITS), np.float32)
        self.scores = np.empty((BATCH, CLASSES), np.float32)
        self.zero = np.float32(0)

    def __call__(self, images: Array) -> Array:
        """Return the scores, in memory that the next call writes over."""
        w1, b1, w2, b2 = self.parameters
        np.matmul(images.reshape(BATCH, INPUTS), w1, self.hidden)
        np.add(self.hidden, b1, self.hidden)
        np.maximum(self.hidden, self.zero, out=self.hidden)
        np.matmul(self.hidden, w2, self.scores)
        np.add(self.scores, b2, self.scores)
        return self.scores


def eager(values: list[Array], images: Array) -> Array:
    w1, b1, w2, b2 = values
    return np.maximum(images.reshape(BATCH, INPUTS) @ w1 + b1, 0) @ w2 + b2


def benchmark(rounds: int) -> Iterator[Row]:
    """Compare times, and the memory for outputs with the most that is in use at once."""
    images = np.random.default_rng(0).random((BATCH, 28, 28), np.float32)
    model, by_hand, values = compiled(), ByHand(), parameters()
    inputs = {"input": images}
    expected = eager(values, images)
    for found in (model.evaluate(inputs), by_hand(images)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    samples = interleaved(
        {
            "weft": lambda: model.evaluate(inputs),
            "eager": lambda: eager(values, images),
            "by hand": lambda: by_hand(images),
        },
        rounds,
    )
    goals = {"by hand": 1.0, "eager": None}
    yield from ratios(samples, goals, "HamKaas MNIST", flops_limit(FLOPS))
    memory = model.memory
    yield Row("outputs over the most in use", memory.size / memory.lower_bound, "x", 1.0)


if __name__ == "__main__":
    main(benchmark)
