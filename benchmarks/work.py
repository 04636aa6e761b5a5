"""The work that tools are compared by: functions of a namespace, with weights and inputs.

A namespace has the functions of NumPy that are used here, and those of networks: see
`peer_tools.Numpy`, whose results the others must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from models import block, cnn, mlp
from models.decoder import CONFIG
from models.decoder import parameters as decoder_parameters

Array = np.ndarray[Any, Any]

OWN = ("numpy", "weft")
"""The tools that are always there: the reference, and what is measured."""


@dataclass(frozen=True)
class Work:
    """What is computed.

    Attributes
    ----------
    what
        Its name in the table.
    function
        Takes a namespace, the weights and the inputs, and returns the result; the loss, if a step
        of training is measured.
    weights, inputs
        Arrays; the weights stay the same from call to call but for training.
    rate
        That of gradient descent on the weights; None for a function without training.
    tolerance
        How much of the largest value results may differ by.
    """

    what: str
    function: Callable[..., Any]
    inputs: Sequence[Array]
    weights: Sequence[Array] = ()
    rate: float | None = None
    tolerance: float = 1e-4


def _normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, "f4")


def _plus_one(xp: Any, weights: Any, x: Any) -> Any:
    return x + 1


def _ten_ops(xp: Any, weights: Any, x: Any) -> Any:
    y = xp.tanh(x * 0.8 + 0.3)
    z = xp.where(x > 0, xp.exp(y * 0.5), y)
    return xp.maximum(z * 1.1 + 0.2, -0.5)


def _softmax(xp: Any, weights: Any, x: Any) -> Any:
    return xp.softmax(x)


def _layer_norm(xp: Any, weights: Any, x: Any) -> Any:
    return xp.layer_norm(x, *weights)


def _sum(xp: Any, weights: Any, x: Any, axis: int) -> Any:
    return xp.sum(x, axis)


def _mean(xp: Any, weights: Any, x: Any) -> Any:
    return xp.mean(x, 0)


def _variance(xp: Any, weights: Any, x: Any) -> Any:
    return xp.variance(x)


def _product(xp: Any, weights: Any, x: Any) -> Any:
    return x @ weights[0]


def _dense(xp: Any, weights: Any, x: Any) -> Any:
    w1, b1, w2, b2 = weights
    return xp.relu(x @ w1 + b1) @ w2 + b2


def _dense_loss(xp: Any, weights: Any, x: Any, t: Any) -> Any:
    return xp.cross_entropy(_dense(xp, weights, x), t)


def _convolutional(xp: Any, weights: Any, x: Any) -> Any:
    w1, b1, w2, b2, w3, b3 = weights
    first = xp.pooled(xp.relu(xp.convolution(x, w1, b1)))
    second = xp.pooled(xp.relu(xp.convolution(first, w2, b2)))
    return xp.reshape(second, (cnn.BATCH, cnn.FEATURES)) @ w3 + b3


def _convolutional_loss(xp: Any, weights: Any, x: Any, t: Any) -> Any:
    return xp.cross_entropy(_convolutional(xp, weights, x), t)


def _convolution(xp: Any, weights: Any, x: Any) -> Any:
    return xp.convolution(x, *weights)


def _block(xp: Any, weights: Any, x: Any) -> Any:
    w_heads, w_mixed, w_up, w_down, b_heads, b_mixed, b_up, b_down, *normalization = weights
    scale1, scale2, offset1, offset2 = normalization
    shape = (block.BATCH, block.SEQUENCE, block.FEATURES)
    h = xp.layer_norm(x, scale1, offset1) @ w_heads + b_heads
    h = xp.reshape(h, (*shape[:2], 3, block.HEADS, block.DEPTH))
    h = xp.transpose(h, (2, 0, 3, 1, 4))
    attended = xp.attention(h[0], h[1], h[2])
    x = x + (xp.reshape(xp.transpose(attended, (0, 2, 1, 3)), shape) @ w_mixed + b_mixed)
    h = xp.gelu(xp.layer_norm(x, scale2, offset2) @ w_up + b_up)
    return x + (h @ w_down + b_down)


def _token(xp: Any, weights: Any, x: Any) -> Any:
    """Decode a token at the last position, with keys and values of those before it."""
    *layers, norm, table = weights
    heads, depth = CONFIG.heads, CONFIG.depth
    for number in range(CONFIG.layers):
        before, w_heads, w_mixed, after, w_halves, w_down, keys, values = layers[
            8 * number : 8 * number + 8
        ]
        h = xp.reshape(xp.rms_norm(x, before) @ w_heads, (3, heads, 1, depth))
        k, v = xp.concatenate((keys, h[1]), 1), xp.concatenate((values, h[2]), 1)
        x = x + xp.reshape(xp.attention(h[0], k, v), (1, CONFIG.dim)) @ w_mixed
        h = xp.rms_norm(x, after) @ w_halves
        gate, up = h[:, : CONFIG.hidden_dim], h[:, CONFIG.hidden_dim :]
        x = x + (gate * xp.sigmoid(gate) * up) @ w_down
    return xp.rms_norm(x, norm) @ table


def _token_weights() -> list[Array]:
    """Return the weights of each layer with its keys and values, then those of the end."""
    found = decoder_parameters()
    random = np.random.default_rng(2)
    shape = (CONFIG.heads, CONFIG.longest - 1, CONFIG.depth)
    weights: list[Array] = []
    for number in range(CONFIG.layers):
        of = {name: value[number] for name, value in found.items() if len(value) == CONFIG.layers}
        heads = np.concatenate([of["wq"], of["wk"], of["wv"]])
        halves = np.concatenate([of["w1"], of["w3"]])
        cached = [random.standard_normal(shape, "f4") for _ in range(2)]
        weights += [
            of["attention_norm"], _turned(heads), _turned(of["wo"]),
            of["dense_norm"], _turned(halves), _turned(of["w2"]), *cached,
        ]  # fmt: skip
    return [*weights, found["final_norm"], _turned(found["embedding"])]


def _turned(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.T)


def _work(what: str, function: Callable[..., Any], *shapes: Sequence[int]) -> Work:
    """Return work on normal inputs, without weights."""
    return Work(what, function, [_normal(*shape) for shape in shapes])


def _products(size: int) -> Work:
    return Work(
        f"product of matrices {size}", _product, [_normal(size, size)], [_normal(size, size)]
    )


def _norm() -> Work:
    weights = [1 + 0.1 * _normal(1024), 0.1 * _normal(1024)]
    return Work("layer norm 4096x1024", _layer_norm, [_normal(4096, 1024)], weights)


def _mlp(batch: int) -> Work:
    return Work(f"MLP forward, batch {batch}", _dense, [mlp.data()[0][:batch]], mlp.parameters())


def _conv() -> Work:
    weights = [0.1 * _normal(64, 64, 3, 3), 0.1 * _normal(64)]
    return Work("convolution 3x3, 8x64x56x56", _convolution, [_normal(8, 64, 56, 56)], weights)


WORK: dict[str, Callable[[], Work]] = {
    "call": partial(_work, "call of x + 1", _plus_one, (1,)),
    "chain-1e3": partial(_work, "chain of ten, 1e3", _ten_ops, (1_000,)),
    "chain-1e5": partial(_work, "chain of ten, 1e5", _ten_ops, (100_000,)),
    "chain-1e7": partial(_work, "chain of ten, 1e7", _ten_ops, (10_000_000,)),
    "softmax": partial(_work, "softmax 4096x1024", _softmax, (4096, 1024)),
    "layer-norm": _norm,
    "sum": partial(_work, "sum of 1e7", partial(_sum, axis=0), (10_000_000,)),
    "mean": partial(_work, "mean of 1e7", _mean, (10_000_000,)),
    "variance": partial(_work, "variance of 1e7", _variance, (10_000_000,)),
    "row-sums": partial(_work, "row sums 4096x4096", partial(_sum, axis=1), (4096, 4096)),
    "column-sums": partial(_work, "column sums 4096x4096", partial(_sum, axis=0), (4096, 4096)),
    "product-512": partial(_products, 512),
    "product-1024": partial(_products, 1024),
    "mlp-1": partial(_mlp, 1),
    "mlp-128": partial(_mlp, 128),
    "mlp-step": lambda: Work(
        "MLP step, batch 128", _dense_loss, mlp.data(), mlp.parameters(), mlp.RATE
    ),
    "cnn": lambda: Work("CNN forward, batch 64", _convolutional, cnn.data()[:1], cnn.parameters()),
    "cnn-step": lambda: Work(
        "CNN step, batch 64", _convolutional_loss, cnn.data(), cnn.parameters(), cnn.RATE
    ),
    "convolution": _conv,
    "block": lambda: Work("transformer block", _block, block.data(), block.parameters()),
    "token": lambda: Work("LLaMA token", _token, [0.1 * _normal(1, CONFIG.dim)], _token_weights()),
}
"""Everything that is measured, by name on the command line; made when it is its turn."""
