"""The forward pass of a transformer block: in weft, and in eager NumPy.

256 features, 4 heads, 4 sequences of 128, normalization before attention and before the two dense
layers with 1024 units and GELU between them, all float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import weft
from models.program import Program, normal

BATCH, SEQUENCE, FEATURES, HEADS, UNITS = 4, 128, 256, 4, 1024
DEPTH = FEATURES // HEADS
EPSILON = 1e-5
TOKENS = BATCH * SEQUENCE
FLOPS = 2 * TOKENS * (4 * FEATURES**2 + 2 * FEATURES * UNITS + 2 * SEQUENCE * FEATURES)
"""Of the matrix products."""

Array = np.ndarray[Any, Any]


def data() -> tuple[Array]:
    """Return a batch of sequences."""
    return (normal(np.random.default_rng(0), (BATCH, SEQUENCE, FEATURES), 1),)


def parameters(seed: int = 1) -> list[Array]:
    """Return fresh weights, biases and scales; the same ones each time."""
    random = np.random.default_rng(seed)
    shapes = (FEATURES, 3 * FEATURES), (FEATURES, FEATURES), (FEATURES, UNITS), (UNITS, FEATURES)
    matrices = [normal(random, shape, 1 / math.sqrt(shape[0])) for shape in shapes]
    biases = [normal(random, shape[1:], 0.1) for shape in shapes]
    scales = [1 + normal(random, (FEATURES,), 0.1) for _ in range(2)]
    offsets = [normal(random, (FEATURES,), 0.1) for _ in range(2)]
    return [*matrices, *biases, *scales, *offsets]


def program(values: Sequence[Array], approximate: str = "none") -> Program:
    """Return the block with given parameters; `approximate` is as for `weft.gelu`."""
    x = weft.placeholder((BATCH, SEQUENCE, FEATURES))
    variables = [weft.variable(value.shape, initial_value=value) for value in values]
    return Program(block(x, variables, approximate), (x,), variables)


def block(x: Any, variables: Sequence[Any], approximate: str = "none") -> Any:
    """Return the block of an op: any batch of sequences of any length."""
    w_heads, w_mixed, w_up, w_down, b_heads, b_mixed, b_up, b_down, *normalization = variables
    scale1, scale2, offset1, offset2 = normalization
    batch, sequence, features = x.axes.lengths
    h = weft.matmul(weft.layer_norm(x, scale1, offset1, epsilon=EPSILON), w_heads) + b_heads
    h = weft.reshape(h, (batch, sequence, 3, HEADS, DEPTH))
    attended = weft.attention(*weft.unstack(weft.transpose(h, (2, 0, 3, 1, 4))))
    mixed = weft.reshape(weft.transpose(attended, (0, 2, 1, 3)), (batch, sequence, features))
    x = x + (weft.matmul(mixed, w_mixed) + b_mixed)
    h = weft.matmul(weft.layer_norm(x, scale2, offset2, epsilon=EPSILON), w_up) + b_up
    return x + (weft.matmul(weft.gelu(h, approximate), w_down) + b_down)


class Eager:
    """The block with a fresh array for every value; dense layers see all tokens as one matrix."""

    def __init__(self, approximate: str = "none") -> None:
        self.parameters = parameters()
        self.gelu = {"none": gelu, "tanh": gelu_by_tanh}[approximate]

    def __call__(self, x: Array) -> Array:
        """Return the block of a batch of sequences."""
        w_heads, w_mixed, w_up, w_down, b_heads, b_mixed, b_up, b_down, *rest = self.parameters
        scale1, scale2, offset1, offset2 = rest
        shape = x.shape
        x = x.reshape(TOKENS, FEATURES)
        h = layer_norm(x, scale1, offset1) @ w_heads + b_heads
        q, k, v = h.reshape(BATCH, SEQUENCE, 3, HEADS, DEPTH).transpose(2, 0, 3, 1, 4)
        weights = softmax(q @ k.swapaxes(-1, -2) * np.float32(1 / math.sqrt(DEPTH)))
        mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(TOKENS, FEATURES)
        x = x + (mixed @ w_mixed + b_mixed)
        h = self.gelu(layer_norm(x, scale2, offset2) @ w_up + b_up)
        return (x + (h @ w_down + b_down)).reshape(shape)


def softmax(x: Array) -> Array:
    """Return softmax over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def layer_norm(x: Array, scale: Array, bias: Array) -> Array:
    """Return the last axis standardized, times a scale plus a bias."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    return centered / np.sqrt(variance + np.float32(EPSILON)) * scale + bias


def gelu(x: Array) -> Array:
    """Return GELU with the error function, which NumPy has not and SciPy has."""
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x * np.float32(math.sqrt(0.5))))


def gelu_by_tanh(x: Array) -> Array:
    """Return GELU as approximated by a hyperbolic tangent."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return 0.5 * x * (1 + np.tanh(inner))
