"""Decoding of one token with a LLaMA-2-style decoder: that of the example, and NumPy by hand.

512 features, 8 layers, 8 heads, 1408 hidden units, 32000 tokens, a cache of 256 positions, float32.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from environment import FOLDER

sys.path.append(str(FOLDER.parent / "examples"))

from llama2.checkpoint import Config, rotation
from llama2.decoder import Decoder

__all__ = ["CONFIG", "LAST", "ByHand", "Decoder", "parameters", "read_bytes"]

Array = np.ndarray[Any, Any]

CONFIG = Config(
    dim=512, hidden_dim=1408, layers=8, heads=8, kv_heads=8, vocabulary=32000, longest=256
)
LAST = CONFIG.longest - 1
"""The position of which all keys and values are read."""

EPSILON = np.float32(1e-5)


def parameters(config: Config = CONFIG, seed: int = 1) -> dict[str, Array]:
    """Return weights as a checkpoint holds them; the same ones each time."""
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in config.shapes().items():
        values = random.standard_normal(shape, "f4")
        values *= np.float32(0.1 if name.endswith("norm") else shape[-1] ** -0.5)
        weights[name] = 1 + values if name.endswith("norm") else values
    weights["cos"], weights["sin"] = rotation(config.longest, config.depth)
    return weights


def read_bytes(config: Config = CONFIG) -> int:
    """Return the bytes of weights, keys and values that the last token needs.

    Of the table of embeddings these are all, since it makes the logits too.
    """
    weights = sum(int(np.prod(shape)) for shape in config.shapes().values())
    return 4 * (weights + 2 * config.layers * config.longest * config.kv_dim)


class ByHand:
    """The decoder as one writes it who knows NumPy well: no array is made twice, views are kept.

    Only positions up to the token's are looked at. If `joined`, queries, keys and values come from
    one product, and so do both halves of the dense layers, as in the example.
    """

    def __init__(
        self, weights: dict[str, Array], joined: bool = False, config: Config = CONFIG
    ) -> None:
        self.config, self.weights = config, weights
        dim, hidden, depth = config.dim, config.hidden_dim, config.depth
        groups = [["wq", "wk", "wv"], ["w1", "w3"]]
        self.matrices = [
            [_matrices(weights, names, layer, joined) for layer in range(config.layers)]
            for names in groups
        ]
        turned = config.heads + config.kv_heads
        self.keys, self.values = (
            np.zeros((config.layers, config.kv_heads, config.longest, depth), "f4")
            for _ in range(2)
        )
        self.x, self.h, self.y = (np.empty(dim, "f4") for _ in range(3))
        self.heads = np.empty(dim + 2 * config.kv_dim, "f4")
        self.halves, self.share = np.empty(2 * hidden, "f4"), np.empty(hidden, "f4")
        self.turned = np.empty((turned, depth // 2, 2), "f4")
        self.part = np.empty((turned, depth // 2), "f4")
        self.logits = np.empty(config.vocabulary, "f4")

    def norm(self, x: Array, scale: Array, out: Array) -> None:
        """Write x over its root mean square, times a scale."""
        factor = 1 / np.sqrt(np.dot(x, x) / np.float32(len(x)) + EPSILON)
        np.multiply(x, factor, out=out)
        np.multiply(out, scale, out=out)

    def turn(self, position: int) -> Array:
        """Return queries and keys with neighbors rotated."""
        pairs = self.heads[: self.turned.size].reshape(self.turned.shape)
        cos, sin = self.weights["cos"][position], self.weights["sin"][position]
        turned, part = self.turned, self.part
        first, second = pairs[..., 0], pairs[..., 1]
        np.multiply(first, cos, out=turned[..., 0])
        np.multiply(second, sin, out=part)
        np.subtract(turned[..., 0], part, out=turned[..., 0])
        np.multiply(second, cos, out=turned[..., 1])
        np.multiply(first, sin, out=part)
        np.add(turned[..., 1], part, out=turned[..., 1])
        return turned.reshape(-1, self.config.depth)

    def attend(self, layer: int, position: int) -> None:
        """Write into `h` what the queries in `heads` find, and add their keys and values."""
        config = self.config
        turned = self.turn(position)
        self.keys[layer, :, position] = turned[config.heads :]
        self.values[layer, :, position] = self.heads[self.turned.size :].reshape(-1, config.depth)
        keys = self.keys[layer, :, : position + 1]
        values = self.values[layer, :, : position + 1]
        query = turned[: config.heads].reshape(config.kv_heads, -1, config.depth)
        query *= np.float32(config.depth**-0.5)
        scores = np.matmul(query, keys.swapaxes(1, 2))
        np.subtract(scores, scores.max(-1, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        np.matmul(scores, values, out=self.h.reshape(query.shape))

    def __call__(self, token: int, position: int) -> Array:
        """Return the logits after a token at a position; the next call overwrites them."""
        w, x, h, y, share = self.weights, self.x, self.h, self.y, self.share
        first, second = np.split(self.halves, 2)
        x[:] = w["embedding"][token]
        for layer in range(self.config.layers):
            self.norm(x, w["attention_norm"][layer], h)
            multiply(self.matrices[0][layer], h, self.heads)
            self.attend(layer, position)
            np.matmul(w["wo"][layer], h, out=y)
            np.add(x, y, out=x)
            self.norm(x, w["dense_norm"][layer], h)
            multiply(self.matrices[1][layer], h, self.halves)
            np.negative(first, out=share)
            np.exp(share, out=share)
            np.add(share, np.float32(1), out=share)
            np.divide(first, share, out=share)
            np.multiply(share, second, out=share)
            np.matmul(w["w2"][layer], share, out=y)
            np.add(x, y, out=x)
        self.norm(x, w["final_norm"], h)
        return np.matmul(w["embedding"], h, out=self.logits)


def _matrices(weights: dict[str, Array], names: list[str], layer: int, joined: bool) -> list[Array]:
    found = [weights[name][layer] for name in names]
    return [np.concatenate(found)] if joined else found


def multiply(matrices: list[Array], x: Array, out: Array) -> None:
    """Write the products of matrices with a vector, one after the other."""
    start = 0
    for matrix in matrices:
        end = start + len(matrix)
        np.matmul(matrix, x, out=out[start:end])
        start = end
