"""The graph of a LLaMA-2-style decoder: one body, which trains, reads a prompt, and decodes.

Touvron and others: Llama 2, 2023. Root mean square norms stand before attention and before the
dense layers, positions are told by rotary embeddings, several heads may share keys and values, and
the dense layers are SwiGLU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import gcd
from typing import Any, NamedTuple

import numpy as np

import weft
from llama2.checkpoint import Array, Config

Attend = Callable[[int, Any, Any, Any], Any]
"""From layer, queries, keys and values (..., heads, sequence, depth) to what the queries find."""

TABLES = ("cos", "sin")
"""The weights that are not trained."""

LAYERED = ("attention_norm", "wqkv", "wo", "dense_norm", "w13", "w2")
"""The arrays of which each layer has its own."""

JOINED = {"wqkv": ("wq", "wk", "wv"), "w13": ("w1", "w3")}
"""The arrays of a checkpoint that are one matrix here: few large products are faster than many."""

QUANTIZED = ("wqkv", "wo", "w13", "w2", "classifier")
"""The matrices that may have few bits."""

GROUP = 32
"""The features of a group, which share a scale, or fewer where these do not divide them."""


class Codes(NamedTuple):
    """The states of a matrix (before, after) of few bits."""

    words: Any
    scales: Any
    zeros: Any
    bits: int


class Model:
    """The weights of a decoder, as states, and the graph that they are in.

    Attributes
    ----------
    weights
        For each array its states, one a layer; or just one.
    bits
        The bits of a number in the matrices, or None for float32.
    """

    def __init__(self, config: Config, bits: int | None = None) -> None:
        self.config, self.bits = config, bits
        shapes = {name: _joined_shape(config, parts) for name, parts in self._parts().items()}
        self.weights = {name: _states(name, shape, config, bits) for name, shape in shapes.items()}

    def _parts(self) -> dict[str, tuple[str, ...]]:
        """Return for each array of the model those of a checkpoint that it is made of."""
        joined = {part for parts in JOINED.values() for part in parts}
        alone = {name: (name,) for name in self.config.shapes() if name not in joined}
        # The table is looked up in float32, also where it is the matrix of logits.
        last = {} if self.bits is None or not self.config.shared else {"classifier": ("embedding",)}
        return {**alone, **JOINED, **last}

    def hidden(self, tokens: Any, positions: Any, attend: Attend) -> Any:
        """Return features (..., sequence, dim) of tokens (..., sequence) at given positions."""
        weights, half = self.weights, self.config.hidden_dim
        turns = {name: weft.take(weights[name][0], positions, 0) for name in TABLES}
        x = weft.embedding(weights["embedding"][0], tokens)
        for layer in range(self.config.layers):
            w = {name: states[layer] for name, states in weights.items() if len(states) > layer}
            x = x + self._attended(layer, x, w, turns, attend)
            h = dense(weft.rms_norm(x, w["dense_norm"]), w["w13"])
            x = x + dense(weft.silu(h[..., :half]) * h[..., half:], w["w2"])
        return weft.rms_norm(x, weights["final_norm"][0])

    def _attended(
        self, layer: int, x: Any, w: Mapping[str, Any], turns: Mapping[str, Any], attend: Attend
    ) -> Any:
        heads, kv_heads = self.config.heads, self.config.kv_heads
        h = dense(weft.rms_norm(x, w["attention_norm"]), w["wqkv"])
        *batch, _ = x.axes.lengths
        h = weft.reshape(h, (*batch, heads + 2 * kv_heads, self.config.depth))
        h = weft.swapaxes(h, -3, -2)
        turned, value = weft.split(h, (heads + kv_heads, kv_heads), axis=-3)
        turned = weft.rotary_embedding(turned, interleaved=True, **turns)
        query, key = weft.split(turned, (heads, kv_heads), axis=-3)
        found = weft.swapaxes(attend(layer, query, key, value), -3, -2)
        return dense(weft.reshape(found, x.axes.lengths), w["wo"])

    def logits(self, hidden: Any) -> Any:
        """Return logits (..., vocabulary) of the token that follows features (..., dim)."""
        name = "classifier" if "classifier" in self.weights else "embedding"
        return dense(hidden, self.weights[name][0])

    def load(self, transformer: weft.Transformer, weights: Mapping[str, Array]) -> None:
        """Set the weights in a transformer from the arrays of a checkpoint."""
        for name, parts in self._parts().items():
            arrays = [weights[part] for part in parts]
            for layer, state in enumerate(self.weights[name]):
                values = [array[layer] if name in LAYERED else array for array in arrays]
                value = np.concatenate(values) if len(values) > 1 else values[0]
                if isinstance(state, Codes):
                    group = gcd(value.shape[1], GROUP)
                    quantized = weft.jit(partial(weft.quantize, bits=state.bits, group_size=group))
                    for each, part in zip(state, quantized(value.T), strict=False):
                        transformer.set_value(each, part)
                else:
                    transformer.set_value(state, value)

    def save(self, transformer: weft.Transformer) -> dict[str, Array]:
        """Return the weights in a transformer, in float32, as the arrays of a checkpoint."""
        shapes, saved = self.config.shapes(), dict[str, Array]()
        for name, parts in self._parts().items():
            values = [transformer.get_value(state) for state in self.weights[name]]
            array = np.stack(values) if name in LAYERED else values[0]
            if len(parts) == 1:
                saved[name] = array
                continue
            ends = np.cumsum([shapes[part][1] for part in parts])
            saved.update(zip(parts, np.split(array, ends[:-1], axis=1), strict=True))
        return saved


def _joined_shape(config: Config, parts: Sequence[str]) -> tuple[int, ...]:
    """Return the shape of arrays one below the other, after the axis of layers if there is one."""
    shapes = [config.shapes()[part] for part in parts]
    if len(shapes) == 1:
        return shapes[0]
    layers, _, before = shapes[0]
    return layers, sum(after for _, after, _ in shapes), before


def _states(name: str, shape: tuple[int, ...], config: Config, bits: int | None) -> list[Any]:
    """Return the states of an array of weights: one a layer if it has layers."""
    make = weft.persistent_tensor if name in TABLES else weft.variable
    if name not in LAYERED:
        layers = [(shape, name)]
    else:
        layers = [(shape[1:], f"{name}{layer}") for layer in range(config.layers)]
    if bits is None or name not in QUANTIZED:
        return [make(each, name=named) for each, named in layers]
    return [_codes(*each, bits, named) for each, named in layers]


def _codes(after: int, before: int, bits: int, name: str) -> Codes:
    groups = (before // gcd(before, GROUP), after)
    words, scales, zeros = (
        weft.persistent_tensor(shape, dtype, name=f"{name}_{what}")
        for what, shape, dtype in (
            ("words", (before * bits // 32, after), weft.uint32),
            ("scales", groups, weft.float32),
            ("zeros", groups, weft.uint8),
        )
    )
    return Codes(words, scales, zeros, bits)


def dense(x: Any, weight: Any) -> Any:
    """Return the products of features (..., before) with the rows of a matrix (after, before)."""
    if isinstance(weight, Codes):
        return weft.matmul(x, weft.dequantize(*weight))
    return weft.matmul(x, weft.transpose(weight))
