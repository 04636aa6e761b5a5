"""Ops whose results have a size that follows from data: the host computes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_onnx.nodes import Node, lowers


@lowers("NonZero")
def nonzero(node: Node) -> Any:
    """Return the indices of nonzero elements."""
    return node.host(lambda x: [np.array(np.nonzero(np.atleast_1d(x)), np.int64)], node.raw(0))[0]


@lowers("Compress")
def compress(node: Node) -> Any:
    """Return the slices where a condition is true."""
    axis = node.attr("axis")
    return node.host(
        lambda x, where: [np.compress(where, x, axis)], node.raw(0), node.raw(1)
    )[0]  # fmt: skip


@lowers("Unique")
def unique(node: Node) -> Any:
    """Return distinct elements or slices, with first indices, inverse and counts."""
    axis, is_sorted = node.attr("axis"), node.flag("sorted")

    def found(x: Any) -> list[Any]:
        values, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not is_sorted:
            order = np.argsort(first)
            values = np.take(values, order, 0 if axis is None else axis)
            first, counts = first[order], counts[order]
            inverse = np.argsort(order)[inverse]
        return [values, *(each.astype(np.int64) for each in (first, inverse, counts))]

    return tuple(node.host(found, node.raw(0)))


@lowers("NonMaxSuppression")
def non_max_suppression(node: Node) -> Any:
    """Return batch, class and box of the best boxes that overlap little."""
    is_centered = node.flag("center_point_box")
    options = [node.raw(n) if node.has(n) else np.zeros(1) for n in (2, 3)]
    limit = node.raw(4) if node.has(4) else np.full(1, -np.inf)

    def chosen(boxes: Any, scores: Any, most: Any, overlap: Any, least: Any) -> list[Any]:
        found = [
            (batch, kind, box)
            for batch in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in _best_boxes(
                _corners(boxes[batch], is_centered), scores[batch, kind], int(most.reshape(-1)[0]),
                float(overlap.reshape(-1)[0]), float(least.reshape(-1)[0]),
            )
        ]  # fmt: skip
        return [np.array(found, np.int64).reshape(-1, 3)]

    return node.host(chosen, node.raw(0), node.raw(1), *options, limit)[0]


def _corners(boxes: Any, is_centered: bool) -> Any:
    if is_centered:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)


def _best_boxes(boxes: Any, scores: Any, most: int, overlap: float, least: float) -> list[int]:
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    found: list[int] = []
    for box in np.argsort(-scores, kind="stable"):
        if len(found) >= most or scores[box] <= least:
            break
        low = np.maximum(boxes[found, :2], boxes[box, :2])
        high = np.minimum(boxes[found, 2:], boxes[box, 2:])
        shared = np.prod(np.maximum(high - low, 0), 1)
        union = areas[found] + areas[box] - shared
        if not np.any(shared > overlap * union):
            found.append(int(box))
    return found
