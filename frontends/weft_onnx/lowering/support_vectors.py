"""Support vector machines."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.lowering.scores import TRANSFORMS, classes_of, labeled, transformed
from weft_onnx.nodes import ML, Node, cast, lowers
from weft_onnx.values import Tensor


def _rows(node: Node) -> Tensor:
    x = cast(node[0], "float32")
    return weft.reshape(x, (1, -1)) if x.rank == 1 else x


def _table(node: Node, name: str, rows: int, columns: int) -> Array:
    """Return an attribute as a matrix."""
    found = np.array(node.required(name), np.float32)
    if found.size != rows * columns:
        raise node.error(f"{name} has {found.size} elements, not {rows} times {columns}")
    return found.reshape(rows, columns)


def _similarities(node: Node, x: Tensor, vectors: Array) -> Tensor:
    """Return the kernel of each row and each support vector."""
    kind = node.choice("kernel_type")
    gamma, coefficient, degree = [*(node.attr("kernel_params") or []), 0.0, 0.0, 0.0][:3]
    if kind == "RBF":
        difference = weft.unsqueeze(x, 1) - weft.constant(vectors[None])
        return weft.exp(weft.sum(difference * difference, axis=2) * -gamma)
    products = weft.matmul(x, weft.constant(np.ascontiguousarray(vectors.T)))
    if kind == "POLY":
        return weft.power(products * gamma + coefficient, degree)
    return weft.tanh(products * gamma + coefficient) if kind == "SIGMOID" else products


def _linear(x: Tensor, table: Array, offset: float) -> Tensor:
    return weft.matmul(x, weft.constant(np.ascontiguousarray(table.T))) + np.float32(offset)


@lowers("SVMRegressor", domain=ML)
def svm_regressor(node: Node) -> Tensor:
    """Return the target of a machine, or on which side of one class a sample is."""
    node.choice("post_transform", {"NONE": None})
    x, count, offset = _rows(node), node.attr("n_supports", 0), node.required("rho")[0]
    columns = x.axes.shape[1]
    if count:
        x = _similarities(node, x, _table(node, "support_vectors", count, columns))
        columns = count
    found = _linear(x, _table(node, "coefficients", 1, columns), offset)
    return weft.where(found > 0, 1.0, -1.0) if node.flag("one_class") else found


@lowers("SVMClassifier", domain=ML)
def svm_classifier(node: Node) -> Any:
    """Return the label of each sample, and the scores of classes or of pairs of these."""
    classes, x = classes_of(node), _rows(node)
    counts = list(node.attr("vectors_per_class") or [])
    if not sum(counts):
        return _by_scores(node, x, classes)
    if len(counts) != len(classes):
        raise node.error(f"it has {len(classes)} classes and vectors of {len(counts)}")
    vectors = _table(node, "support_vectors", sum(counts), x.axes.shape[1])
    found = _pairs(node, _similarities(node, x, vectors), counts)
    is_first = cast(found > 0, "float32")
    pairs = list(combinations(range(len(classes)), 2))
    wins = np.zeros((2, len(pairs), len(classes)), np.float32)
    for place, (i, j) in enumerate(pairs):
        wins[0, place, i] = wins[1, place, j] = 1
    votes = weft.matmul(is_first, weft.constant(wins[0])) + weft.matmul(
        1 - is_first, weft.constant(wins[1])
    )
    label = labeled(node, weft.argmax(votes, axis=1), classes)
    if node.attr("prob_a"):
        return label, transformed(node, _probabilities(node, found, len(classes)))
    return label, transformed(node, found) if len(pairs) > 1 else _of_a_pair(node, found)


def _of_a_pair(node: Node, score: Tensor) -> Tensor:
    """Return two columns for the score of the only pair, as onnxruntime does."""
    name = node.choice("post_transform")
    if name == "PROBIT":
        return TRANSFORMS[name](weft.concat([1 - score, score], 1))
    if name == "LOGISTIC":
        return weft.sigmoid(weft.concat([-score, score], 1))
    return weft.concat([-score if name == "NONE" else 1 - score, score], 1)


def _by_scores(node: Node, x: Tensor, classes: list[Any]) -> Any:
    """Return labels and scores of a linear machine, without support vectors."""
    table = _table(node, "coefficients", len(classes), x.axes.shape[1])
    found = _linear(x, table, node.required("rho")[0])
    chosen: Tensor = weft.argmax(found, axis=1)
    if len(classes) == 2 and not node.attr("prob_a"):
        # The second class wins against a limit, whichever score is the larger one.
        top = weft.max(found, axis=1)
        is_second = top >= 0.5 if (table >= 0).all() else top > 0
        chosen = weft.where(is_second, np.int64(1), cast(chosen, "int64"))
    return labeled(node, chosen, classes), transformed(node, found)


def _pairs(node: Node, similarities: Tensor, counts: list[int]) -> Tensor:
    """Return the score of each pair of classes, positive where the first one wins."""
    total, number = sum(counts), len(counts)
    coefficients = _table(node, "coefficients", number - 1, total)
    starts = np.cumsum([0, *counts])
    pairs = list(combinations(range(number), 2))
    offsets = np.array(node.required("rho"), np.float32)
    if len(offsets) < len(pairs):
        raise node.error(f"rho has {len(offsets)} elements for {len(pairs)} pairs of classes")
    weights = np.zeros((total, len(pairs)), np.float32)
    for place, (i, j) in enumerate(pairs):
        first, second = (slice(starts[n], starts[n + 1]) for n in (i, j))
        weights[first, place] = coefficients[j - 1, first]
        weights[second, place] = coefficients[i, second]
    return weft.matmul(similarities, weft.constant(weights)) + weft.constant(offsets[: len(pairs)])


def _probabilities(node: Node, found: Tensor, count: int) -> Tensor:
    """Return the probabilities of classes from those within pairs."""
    slopes, offsets = (np.array(node.required(f"prob_{x}"), np.float32) for x in "ab")
    scaled = found * weft.constant(slopes) + weft.constant(offsets)
    shares = weft.clip(weft.sigmoid(-scaled), 1e-7, 1 - 1e-7)
    return node.op(node.host(lambda given: [coupled(given, count)], shares)[0])


def coupled(shares: Array, count: int) -> Array:
    """Return the probabilities of classes whose shares within pairs are nearest to given ones.

    Improves them class by class until the error is below 0.005 / classes, as libsvm does (Wu, Lin
    and Weng: Probability estimates for multi-class classification by pairwise coupling, 2004).
    """
    samples = len(shares)
    within = np.zeros((samples, count, count))
    for place, (i, j) in enumerate(combinations(range(count), 2)):
        within[:, i, j], within[:, j, i] = shares[:, place], 1 - shares[:, place]
    q = -within.transpose(0, 2, 1) * within
    every = np.arange(count)
    q[:, every, every] = (within**2).sum(1)
    found = np.full((samples, count), 1 / count)
    is_open = np.ones(samples, bool)
    for _ in range(100):
        product = np.einsum("nij,nj->ni", q, found)
        total = (found * product).sum(1)
        is_open &= np.abs(product - total[:, None]).max(1) >= 0.005 / count
        if not is_open.any():
            break
        p, product, total, matrix = found[is_open], product[is_open], total[is_open], q[is_open]
        for t in range(count):
            own = matrix[:, t, t]
            step = (total - product[:, t]) / own
            p[:, t] += step
            total = (total + step * (step * own + 2 * product[:, t])) / (1 + step) ** 2
            product = (product + step[:, None] * matrix[:, t]) / (1 + step)[:, None]
            p /= (1 + step)[:, None]
        found[is_open] = p
    return found.astype(np.float32)
