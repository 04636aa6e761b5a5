"""A training step of the example that learns handwritten digits, on a batch of 64."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from environment import FOLDER

from models.program import Program

sys.path.append(str(FOLDER.parent / "examples"))

from digits import Activation, descent, initial_weights, load, perceptron

Array = np.ndarray[Any, Any]

BATCH = 64


def data() -> tuple[Array, Array]:
    """Return the first images and their labels."""
    training, _ = load()
    return training.images[:BATCH], training.labels[:BATCH]


def program() -> Program:
    """Return the program that computes the loss and takes a step with momentum."""
    model = perceptron(initial_weights(0), Activation.TANH)
    update = descent(model.loss, 0.1, 0.9)
    return Program([model.loss, update], model.inputs, list(model.variables.values()))
