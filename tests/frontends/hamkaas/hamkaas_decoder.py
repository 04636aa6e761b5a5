"""A LLaMA-2 style decoder, twice: one step built of HamKaas nodes, and all of it in plain NumPy.

As a program it prints the script of a step of the model with 15 million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft_hamkaas import BufferTensor, ConstantTensor, HamKaasNode, InputTensor, traverse_node


@dataclass(frozen=True)
class Sizes:
    """The lengths of a decoder."""

    units: int = 8
    layers: int = 2
    heads: int = 2
    hidden: int = 12
    words: int = 11
    positions: int = 32

    @property
    def head(self) -> int:
        return self.units // self.heads


STORIES_15M = Sizes(288, 6, 6, 768, 32000, 256)


def weights(sizes: Sizes, zero: bool = False) -> dict[str, Any]:
    """Return all weights by name, those of layers with the layer's number first."""
    random = np.random.default_rng(7)

    def tensor(*shape: int) -> Any:
        if zero:
            return np.zeros(shape, np.float32)
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    d, h = sizes.units, sizes.hidden
    found = {
        "embedding": tensor(sizes.words, d),
        "final": 1 + tensor(d),
        "out": tensor(d, sizes.words),
    }
    for layer in range(sizes.layers):
        shapes = dict.fromkeys(("wq", "wk", "wv", "wo"), (d, d))
        shapes |= {"w1": (d, h), "w3": (d, h), "w2": (h, d)}
        found |= {f"{layer}.{name}": tensor(*shape) for name, shape in shapes.items()}
        found |= {f"{layer}.{name}": 1 + tensor(d) for name in ("before", "between")}
    return found


def decode_step(sizes: Sizes, values: dict[str, Any]) -> HamKaasNode:
    """Return the logits of one token as nodes; see `step_inputs` for what it is given."""
    d, t, heads, head = sizes.units, sizes.positions, sizes.heads, sizes.head
    constants = {name: ConstantTensor(value) for name, value in values.items()}
    for name, constant in constants.items():
        constant.set_name(f"w.{name}")
    x: HamKaasNode = InputTensor("embedding", "float32", [d])
    rotation = InputTensor("freq_cis", "float32", [1, head // 2, 2])
    prefix = InputTensor("pos_plus_one", "int64", [1])
    indicator = InputTensor("pos_indicator", "float32", [1, t])
    scale = ConstantTensor(np.full((1, 1), head**-0.5, np.float32))
    caches = [BufferTensor("float32", [sizes.layers * t * d]) for _ in range(2)]
    for layer in range(sizes.layers):
        own = {name: constants[f"{layer}.{name}"] for name in LAYER}
        begin = InputTensor(f"cache_start_{layer}", "int64", [1])
        end = InputTensor(f"cache_end_{layer}", "int64", [1])
        normal = x.rms_norm(own["before"])
        query, key = (
            (normal @ own[name])
            .reshape([heads, head // 2, 2])
            .complex_hadamard_product(rotation)
            .reshape([d])
            for name in ("wq", "wk")
        )
        keys, past = (
            cache.replace(new, begin, end)[layer * t * d : (layer + 1) * t * d].reshape(
                [t, heads, head]
            )
            for cache, new in zip(caches, (key, normal @ own["wv"]), strict=True)
        )
        scores = query.reshape([heads, 1, head]) @ keys.permute([1, 2, 0])
        shares = (scores.reshape([heads, t]) * scale).sliced_softmax(prefix) * indicator
        mixed = past.permute([1, 2, 0]) @ shares.reshape([heads, t, 1])
        x = x + mixed.reshape([d]) @ own["wo"]
        normal = x.rms_norm(own["between"])
        x = x + ((normal @ own["w1"]).silu() * (normal @ own["w3"])) @ own["w2"]
    return x.rms_norm(constants["final"]) @ constants["out"]


LAYER = ("before", "wq", "wk", "wv", "wo", "between", "w1", "w3", "w2")


def rotation_at(sizes: Sizes, position: int) -> Any:
    """Return cosine and sine of the angles for the pairs of a head (Su et al., 2021)."""
    pairs = np.arange(sizes.head // 2)
    angles = position * 10000.0 ** (-2.0 * pairs / sizes.head)
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def step_inputs(sizes: Sizes, values: dict[str, Any], word: int, position: int) -> dict[str, Any]:
    """Return the inputs of a step for a word at a position."""
    d, t = sizes.units, sizes.positions
    found = {
        "embedding": values["embedding"][word],
        "freq_cis": rotation_at(sizes, position).astype(np.float32)[None],
        "pos_plus_one": np.array([position + 1]),
        "pos_indicator": (np.arange(t) <= position).astype(np.float32)[None],
    }
    for layer in range(sizes.layers):
        begin = (layer * t + position) * d
        found[f"cache_start_{layer}"] = np.array([begin])
        found[f"cache_end_{layer}"] = np.array([begin + d])
    return found


def plain_logits(sizes: Sizes, values: dict[str, Any], words: list[int]) -> Any:
    """Return the logits after each word, computed for all positions at once, in float64."""
    w = {name: value.astype(np.float64) for name, value in values.items()}
    count, heads, head = len(words), sizes.heads, sizes.head
    x = w["embedding"][words]
    turns = np.stack([rotation_at(sizes, position) for position in range(count)])
    turns = (turns[..., 0] + 1j * turns[..., 1])[:, None, :]
    future = np.triu(np.full((count, count), -np.inf), 1)
    for layer in range(sizes.layers):
        own = {name: w[f"{layer}.{name}"] for name in LAYER}
        normal = _normalized(x) * own["before"]
        query, key = (
            _turned((normal @ own[n]).reshape(count, heads, head), turns) for n in ("wq", "wk")
        )
        value = (normal @ own["wv"]).reshape(count, heads, head)
        scores = np.einsum("qhd,khd->hqk", query, key) / np.sqrt(head) + future
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", shares, value).reshape(count, -1) @ own["wo"]
        normal = _normalized(x) * own["between"]
        gate = normal @ own["w1"]
        x = x + (gate / (1 + np.exp(-gate)) * (normal @ own["w3"])) @ own["w2"]
    return _normalized(x) * w["final"] @ w["out"]


def _normalized(x: Any) -> Any:
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-5)


def _turned(x: Any, turns: Any) -> Any:
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * turns
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


if __name__ == "__main__":
    print(traverse_node(decode_step(STORIES_15M, weights(STORIES_15M, zero=True))).script, end="")
