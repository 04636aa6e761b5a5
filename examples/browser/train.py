"""Trains a perceptron on the digits; the page runs `main` in Pyodide.

Each step is awaited, so the page stays alive and shows each epoch when it ends.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

import weft
from weft.ir.ax import N
from weft.plugins import backend_status

EPOCHS, BATCH, RATE, HELD_OUT = 5, 64, 0.2, 360

PIXEL = weft.make_axis(64, "pixel")
HIDDEN = weft.make_axis(64, "hidden")
DIGIT = weft.make_axis(10, "digit")


def perceptron() -> tuple[Any, ...]:
    """Return images and labels, the loss, what a step writes, and the accuracy."""
    random = np.random.default_rng(1)

    def layer(x: weft.TensorOp, inputs: weft.Axis, outputs: weft.Axis) -> weft.TensorOp:
        limit = np.sqrt(6 / (inputs.length + outputs.length))
        values = random.uniform(-limit, limit, (inputs.length, outputs.length))
        weight = weft.variable([inputs, outputs], initial_value=values)
        return weft.dot(x, weight) + weft.variable([outputs], initial_value=0)

    images = weft.placeholder([N, PIXEL], name="images")
    labels = weft.placeholder([N], weft.int32, name="labels")
    chances = weft.softmax(layer(weft.tanh(layer(images, PIXEL, HIDDEN)), HIDDEN, DIGIT))
    loss = weft.mean(weft.cross_entropy_multi(chances, weft.one_hot(labels, DIGIT)), N)
    with weft.saved_user_deps():
        writes = [weft.assign(v, v - RATE * weft.deriv(loss, v)) for v in loss.variables()]
    accuracy = weft.mean(weft.argmax(chances, DIGIT) == labels, N)
    return (images, labels), loss, weft.doall(writes), accuracy


async def train(backend: str, report: Callable[[str], Awaitable[object]]) -> None:
    """Train on a backend, and report each epoch."""
    with np.load("digits.npz") as data:
        images, labels = data["images"], data["labels"]
    order = np.random.default_rng(0).permutation(len(labels))
    held_out, training = order[:HELD_OUT], order[HELD_OUT:]
    parameters, loss, update, accuracy = perceptron()
    with weft.make_transformer(backend) as transformer:
        step = transformer.computation([loss, update], *parameters)
        evaluate = transformer.computation(accuracy, *parameters)
        random = np.random.default_rng(2)
        for epoch in range(1, EPOCHS + 1):
            started = time.perf_counter()
            batches = np.array_split(random.permutation(training), len(training) // BATCH)
            losses = [(await step.call_async(images[n], labels[n]))[0] for n in batches]
            right = await evaluate.call_async(images[held_out], labels[held_out])
            each = (time.perf_counter() - started) / len(batches) * 1000
            await report(
                f"{backend}: epoch {epoch}, loss {np.mean(losses):.4f}, held-out accuracy "
                f"{float(right):.4f}, {each:.1f} ms a step"
            )


async def main(backends: str, report: Callable[[str], Awaitable[object]]) -> None:
    """Train on each of the backends that can be used, and report why others cannot."""
    for name in backends.split(","):
        usable = backend_status(name).usable
        await (train(name, report) if usable else report(f"{name}: {usable.reason}"))
