"""Products, convolutions and activations that onnxruntime's optimizer fuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft_onnx.lowering.contraction import gemm
from weft_onnx.lowering.convolution import convolved
from weft_onnx.nodes import MICROSOFT, Node, cast, lowers
from weft_onnx.values import Tensor

CONVOLUTION = "auto_pad dilations group kernel_shape pads strides"
"""The attributes of a convolution."""

Parameters = Sequence[float]

ACTIVATIONS: dict[str, tuple[Parameters, Callable[..., Tensor]]] = {
    "": ((), lambda x: x),
    "Relu": ((), weft.relu),
    "Tanh": ((), weft.tanh),
    "Sigmoid": ((), weft.sigmoid),
    "Softplus": ((), weft.softplus),
    "Softsign": ((), lambda x: x / (weft.absolute(x) + 1)),
    "Gelu": ((), weft.gelu),
    "HardSwish": ((), weft.hard_swish),
    "Elu": ((1.0,), weft.elu),
    "LeakyRelu": ((0.01,), weft.leaky_relu),
    "ThresholdedRelu": ((1.0,), lambda x, a: weft.where(x > a, x, weft.zeros_like(x))),
    "QuickGelu": ((1.702,), lambda x, a: x * weft.sigmoid(x * a)),
    "HardSigmoid": ((0.2, 0.5), lambda x, a, b: weft.clip(x * a + b, 0, 1)),
    "Clip": ((-np.inf, np.inf), weft.clip),
    "Selu": (
        (1.67326319217681884765625, 1.05070102214813232421875),
        lambda x, a, g: g * weft.where(x > 0, x, a * weft.expm1(x)),
    ),
    "ParametricSoftplus": ((1.0, 1.0), lambda x, a, b: a * weft.softplus(x * b)),
}
"""Activations by name, with the default values of their parameters."""


def activated(node: Node, x: Tensor, given: Sequence[float | None]) -> Tensor:
    """Return the activation that a node names; its parameters are defaults where not given."""
    name = node.choice("activation", default="")
    defaults, function = ACTIVATIONS[name]
    chosen = [*given, *[None] * len(defaults)]
    parameters = [
        default if value is None else value
        for value, default in zip(chosen, defaults, strict=False)
    ]
    return cast(function(x, *parameters), x.dtype)


@lowers(
    "FusedConv", domain=MICROSOFT, attributes=f"activation activation_params {CONVOLUTION}"
)  # fmt: skip
def fused_conv(node: Node) -> Tensor:
    """Convolve, add a tensor, and apply an activation."""
    return activated_sum(node, convolved(node, node[0], node[1], node.get(2)), node.get(3))


def activated_sum(node: Node, x: Tensor, addend: Tensor | None) -> Tensor:
    """Return the activation, with its parameters in a list, of the sum of two tensors."""
    x = x if addend is None else x + addend
    return activated(node, x, node.attr("activation_params") or [])


@lowers(
    "FusedGemm",
    domain=MICROSOFT,
    attributes=(
        "activation activation_alpha activation_beta activation_gamma alpha beta transA transB"
    ),
)
def fused_gemm(node: Node) -> Tensor:
    """Return an activation of alpha A B + beta C."""
    alpha, beta, gamma = (node.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    has_gamma = node.attr("activation") == "Selu"
    given = [alpha, gamma] if has_gamma else [alpha, beta]
    return activated(node, gemm(node), given)


@lowers("FusedMatMul", domain=MICROSOFT, attributes="alpha transA transB transBatchA transBatchB")
@lowers("TransposeMatMul", domain=MICROSOFT, attributes="alpha transA transB")
def fused_matmul(node: Node) -> Tensor:
    """Return a multiple of a product of matrices, each of which may be transposed first."""
    a, b = (_turned(node, index, side) for index, side in enumerate("AB"))
    found, alpha = weft.matmul(a, b), node.attr("alpha", 1.0)
    return found if alpha == 1 else cast(found * alpha, a.dtype)


def _turned(node: Node, index: int, side: str) -> Tensor:
    """Return an operand whose first axis comes after the others of the batch, on request."""
    x = node[index]
    if x.rank < 2:
        return x
    order = list(range(x.rank))
    if node.flag(f"transBatch{side}"):
        order.insert(x.rank - 2, order.pop(0))
    if node.flag(f"trans{side}"):
        order[-2:] = order[:-3:-1]
    return weft.transpose(x, tuple(order))


@lowers("GemmFastGelu", domain=MICROSOFT, attributes="")
def gemm_fast_gelu(node: Node) -> Tensor:
    """Return the approximate Gelu of a product of matrices plus a bias."""
    return weft.gelu(_biased(node, weft.matmul(node[0], node[1]), 2), "tanh")


def _biased(node: Node, x: Tensor, operand: int) -> Tensor:
    return x + node[operand] if node.has(operand) else x


@lowers("Gelu", "BiasGelu", domain=MICROSOFT, attributes="")
def bias_gelu(node: Node) -> Tensor:
    """Return the Gelu of the sum of an operand and a bias."""
    return weft.gelu(_biased(node, node[0], 1))


@lowers("FastGelu", domain=MICROSOFT, attributes="")
def fast_gelu(node: Node) -> Tensor:
    """Return the Gelu by the hyperbolic tangent of the sum of an operand and a bias."""
    return weft.gelu(_biased(node, node[0], 1), "tanh")


@lowers("QuickGelu", domain=MICROSOFT, attributes="alpha")
def quick_gelu(node: Node) -> Tensor:
    """Return x times the sigmoid of alpha x."""
    return node[0] * weft.sigmoid(node[0] * node.attr("alpha", 1.702))


@lowers("BiasSplitGelu", domain=MICROSOFT, attributes="")
def bias_split_gelu(node: Node) -> Tensor:
    """Return the first half of the features times the Gelu of the second, after a bias."""
    left, right = weft.split(node[0] + node[1], 2, node.rank() - 1)
    return left * weft.gelu(right)


@lowers("BiasAdd", domain=MICROSOFT, attributes="")
def bias_add(node: Node) -> Tensor:
    """Return the sum of an operand, a bias and a residual."""
    return node[0] + node[1] + node[2]


@lowers("BiasDropout", domain=MICROSOFT, attributes="seed")
def bias_dropout(node: Node) -> Any:
    """Return the sum of an operand, a bias and a residual; outside of training, nothing is lost."""
    if node.has(4) and bool(node.array(4).reshape(-1)[0]):
        raise node.error(
            "weft does not compute it in training mode: export the model for inference"
        )
    found = _biased(node, node[0] + node[1], 2)
    return found, weft.constant(np.ones(node.shape(), np.bool_))
