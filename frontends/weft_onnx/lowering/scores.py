"""Scores of learnt models: what becomes of them, and the labels of classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft_onnx.nodes import Node, cast
from weft_onnx.values import Tensor


def _softmax_zero(scores: Tensor) -> Tensor:
    is_zero = weft.equal(scores, 0)
    found = weft.softmax(weft.where(is_zero, -np.inf, scores), axis=scores.rank - 1)
    return weft.where(is_zero, weft.zeros_like(scores), found)


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda x: x,
    "LOGISTIC": weft.sigmoid,
    "SOFTMAX": lambda x: weft.softmax(x, axis=x.rank - 1),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": lambda x: weft.erfinv(2 * x - 1) * 2**0.5,
}
"""What becomes of scores, by post_transform."""

NUMBERED = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The names of the numbers that the newer TreeEnsemble has for them."""


def transformed(node: Node, scores: Tensor) -> Tensor:
    """Return scores after a node's transformation."""
    transform: Callable[[Tensor], Tensor] = node.choice("post_transform", TRANSFORMS)
    return transform(scores)


def classes_of(node: Node) -> list[Any]:
    """Return the labels of a node's classes: strings, or integers."""
    names = node.attr("classlabels_strings")
    numbers = node.attr("classlabels_ints") or node.attr("classlabels_int64s")
    return list(names or numbers or [])


def labeled(node: Node, chosen: Tensor, classes: list[Any]) -> Any:
    """Return the label of each number of a class; strings are taken on the host."""
    chosen = cast(chosen, "int64")
    if not classes:
        return chosen
    if isinstance(classes[0], str):
        table = np.array(classes, object)
        return node.host(lambda at: [table[at]], chosen)[0]
    return weft.take(weft.constant(np.array(classes, np.int64)), chosen, 0)
