"""Random numbers, drawn from a key that torch's generator gives for each call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import weft
from weft_torch.rules import Node, Tensor, lowers


def draws(node: Node, name: str, *parameters: Any, shape: Any = None, **options: Any) -> Tensor:
    """Return numbers of a distribution by its name, from a key or from weft's own stream."""
    key = node.key()
    shape = node.shape() if shape is None else shape
    if key is None:
        found: Callable[..., Any] = getattr(weft, name)
        return found(shape, *parameters, **options)
    named = dict(zip(NAMES[name], parameters, strict=False))
    return getattr(weft.random, name)(key, shape, **named, **options)


NAMES = {
    "uniform": ("minval", "maxval"),
    "normal": ("loc", "scale"),
    "exponential": ("scale",),
    "randint": ("minval", "maxval"),
}
"""What `weft.random` calls the parameters of distributions."""


def _complex(node: Node, drawn: Callable[[str], Tensor]) -> Tensor:
    """Return numbers of the dtype of a node, drawn on their own for both parts of complex ones."""
    parts = {"complex64": "float32", "complex128": "float64"}
    dtype = node.dtype()
    if dtype not in parts:
        return drawn(dtype)
    return weft.complex(drawn(parts[dtype]), drawn(parts[dtype]))


@lowers("rand rand_like uniform")
def uniform(node: Node, **_: Any) -> Tensor:
    """Draw from an interval."""
    low, high = node.arguments.get("from", 0.0), node.arguments.get("to", 1.0)
    return _complex(node, lambda dtype: draws(node, "uniform", low, high, dtype=dtype))


@lowers("randn randn_like normal_functional prims.normal.default")
def normal(node: Node, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Draw from a normal distribution."""
    if "complex" in node.dtype():
        std /= math.sqrt(2)
    return _complex(node, lambda dtype: draws(node, "normal", mean, std, dtype=dtype))


@lowers("normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor")
def normal_of_tensors(node: Node, mean: Tensor, std: Tensor) -> Tensor:
    """Draw from normal distributions with parameters of their own."""
    return mean + std * draws(node, "normal", dtype=node.dtype())


@lowers("exponential")
def exponential(node: Node, lambd: float) -> Tensor:
    """Draw waiting times."""
    return draws(node, "exponential", 1 / lambd, dtype=node.dtype())


@lowers("randint randint_like")
def randint(node: Node, high: int, low: int = 0) -> Tensor:
    """Draw integers below a limit."""
    return draws(node, "randint", low, high, dtype="int64")


@lowers("randperm")
def randperm(node: Node, n: int) -> Tensor:
    """Draw an order."""
    key = node.key()
    return weft.permutation(n) if key is None else weft.random.permutation(key, n)


@lowers("bernoulli")
def bernoulli(node: Node, x: Tensor, p: Any = None) -> Tensor:
    """Draw ones with a probability."""
    return draws(node, "uniform", dtype="float32") < (x if p is None else p)


@lowers("native_dropout")
def native_dropout(node: Node, x: Tensor, p: float, train: bool | None) -> Any:
    """Drop elements, and return which were kept."""
    if train is False or p == 0:
        return x, weft.ones(node.shape(1), "bool")
    keep = draws(node, "uniform", dtype="float32") >= p
    return weft.where(keep, x * (1 / (1 - p) if p < 1 else math.nan), 0.0), keep


@lowers("rrelu_with_noise_functional")
def rrelu(node: Node, x: Tensor, lower: float, upper: float, training: bool) -> Any:
    """Scale negative numbers by random slopes, and return the slopes."""
    if not training:
        return weft.leaky_relu(x, (lower + upper) / 2), *node.zeros(1)
    drawn = draws(node, "uniform", lower, upper, dtype=node.dtype())
    slope = weft.where(x > 0, 1.0, drawn)
    return x * slope, slope


@lowers("multinomial")
def multinomial(node: Node, x: Tensor, num_samples: int, replacement: bool) -> Tensor:
    """Draw classes by their weights.

    The largest sums of logarithms and Gumbel noise are a draw without replacement. (Kool, van Hoof,
    Welling: Stochastic beams and where to find them; ICML 2019.)
    """
    shape = (*node.shape()[:-1], num_samples if replacement else 1, x.axes.lengths[-1])
    drawn = draws(node, "uniform", dtype="float32", shape=shape)
    scores = weft.unsqueeze(weft.log(x), x.rank - 1) - weft.log(-weft.log(drawn))
    if replacement:
        return weft.argmax(scores, axis=-1)
    return weft.topk(weft.squeeze(scores, -2), num_samples).indices


@lowers("geometric")
def geometric(node: Node, p: float) -> Tensor:
    """Draw numbers of trials."""
    below = weft.log1p(-draws(node, "uniform", dtype="float32"))
    return weft.floor(below / math.log1p(-p)) + 1


@lowers("cauchy")
def cauchy(node: Node, median: float, sigma: float) -> Tensor:
    """Draw from a Cauchy distribution."""
    drawn = draws(node, "uniform", dtype=node.dtype())
    return median + sigma * weft.tan(math.pi * (drawn - 0.5))


@lowers("log_normal")
def log_normal(node: Node, mean: float, std: float) -> Tensor:
    """Draw numbers whose logarithms are normal."""
    return weft.exp(draws(node, "normal", mean, std, dtype=node.dtype()))
