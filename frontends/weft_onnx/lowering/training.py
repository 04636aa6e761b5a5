"""Optimizers of the preview domain, and losses and gradients."""

from __future__ import annotations

from typing import Any

import weft
from weft_onnx.nodes import TRAINING, Node, cast, lowers
from weft_onnx.values import Tensor


@lowers("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(node: Node) -> Any:
    """Return the cross entropy of labels and the softmax of scores, and its logarithm."""
    log_probabilities = weft.log_softmax(node[0], axis=1)
    return _loss(node, log_probabilities), log_probabilities


@lowers("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(node: Node) -> Tensor:
    """Return the negative log likelihood of labels."""
    return _loss(node, node[0])


def _loss(node: Node, log_probabilities: Tensor) -> Tensor:
    labels, ignored = cast(node[1], "int64"), node.attr("ignore_index")
    is_ignored = None if ignored is None else weft.equal(labels, ignored)
    safe = labels if is_ignored is None else weft.where(is_ignored, 0, labels)
    picked = weft.take_along_axis(log_probabilities, weft.unsqueeze(safe, 1), 1)
    loss = -weft.squeeze(picked, 1)
    weights = weft.take(node[2], safe, 0) if node.has(2) else weft.ones_like(loss)
    if is_ignored is not None:
        weights = weft.where(is_ignored, weft.zeros_like(weights), weights)
    loss, reduction = loss * weights, node.choice("reduction")
    axes = tuple(range(loss.rank))
    if reduction == "none":
        return loss
    total = weft.sum(loss, axis=axes)
    return total if reduction == "sum" else total / weft.sum(weights, axis=axes)


def _several(node: Node, first: int, count: int) -> list[list[Tensor]]:
    """Return operands in lists of equal length."""
    each = (len(node.inputs) - first) // count
    return [[node[first + at * each + n] for n in range(each)] for at in range(count)]


@lowers("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> Any:
    """Return tensors and accumulated squares after a step of Adagrad."""
    rate, step = node[0], cast(node[1], "float32")
    rate = rate / (1 + step * node.attr("decay_factor", 0.0))
    penalty, epsilon = node.attr("norm_coefficient", 0.0), node.attr("epsilon", 1e-6)
    new, squares = [], []
    for x, gradient, total in zip(*_several(node, 2, 3), strict=True):
        slope = gradient + x * penalty
        total = total + slope * slope
        new.append(x - rate * slope / (weft.sqrt(total) + epsilon))
        squares.append(total)
    return (*new, *squares)


@lowers("Momentum", domain=TRAINING)
def momentum(node: Node) -> Any:
    """Return tensors and velocities after a step with momentum."""
    rate, step = node[0], cast(node[1], "float32")
    alpha, beta = node.required("alpha"), node.required("beta")
    penalty, is_nesterov = node.required("norm_coefficient"), node.choice("mode") == "nesterov"
    adjusted = weft.where(weft.greater(step, 0), beta, 1.0)
    new, speeds = [], []
    for x, gradient, speed in zip(*_several(node, 2, 3), strict=True):
        slope = gradient + x * penalty
        speed = speed * alpha + slope * adjusted
        new.append(x - rate * (slope + speed * alpha if is_nesterov else speed))
        speeds.append(speed)
    return (*new, *speeds)


@lowers("Adam", domain=TRAINING)
def adam(node: Node) -> Any:
    """Return tensors and moments after a step of Adam."""
    rate, step = node[0], cast(node[1], "float32")
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    penalty, epsilon = node.attr("norm_coefficient", 0.0), node.attr("epsilon", 0.0)
    after = node.attr("norm_coefficient_post", 0.0)
    corrected = rate * weft.sqrt(1 - weft.power(beta, step)) / (1 - weft.power(alpha, step))
    rate = weft.where(weft.greater(step, 0), corrected, rate)
    new, first, second = [], [], []
    for x, gradient, v, h in zip(*_several(node, 2, 4), strict=True):
        slope = gradient + x * penalty
        v = v * alpha + slope * (1 - alpha)
        h = h * beta + slope * slope * (1 - beta)
        new.append((x - rate * v / (weft.sqrt(h) + epsilon)) * (1 - after))
        first.append(v)
        second.append(h)
    return (*new, *first, *second)
