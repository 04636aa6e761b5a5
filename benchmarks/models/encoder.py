"""The forward pass of a transformer encoder: twelve blocks, each with parameters of its own.

One sequence of 64, so that a call is short beside a compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from models import block
from models.program import Program, normal

LAYERS, BATCH, SEQUENCE = 12, 1, 64

Array = np.ndarray[Any, Any]


def data() -> tuple[Array]:
    """Return one sequence."""
    return (normal(np.random.default_rng(0), (BATCH, SEQUENCE, block.FEATURES), 1),)


def parameters() -> list[Array]:
    """Return fresh parameters, layer by layer; the same ones each time."""
    return [value for layer in range(LAYERS) for value in block.parameters(layer)]


def program(values: Sequence[Array]) -> Program:
    """Return the encoder with given parameters."""
    variables = [weft.variable(value.shape, initial_value=value) for value in values]
    x = y = weft.placeholder((BATCH, SEQUENCE, block.FEATURES))
    each = len(variables) // LAYERS
    for start in range(0, len(variables), each):
        y = block.block(y, variables[start : start + each])
    return Program(y, (x,), variables)
