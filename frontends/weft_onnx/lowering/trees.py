"""Ensembles of trees: regressors, classifiers, and the newer op for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.lowering.forest import Forest, forest_by_roots, forest_by_trees, numbers
from weft_onnx.lowering.scores import NUMBERED, TRANSFORMS, classes_of, labeled, transformed
from weft_onnx.nodes import ML, Node, cast, lowers
from weft_onnx.values import Tensor

AGGREGATES: dict[str, tuple[float, Callable[..., Tensor], Any]] = {
    "SUM": (0.0, weft.sum, np.add),
    "AVERAGE": (0.0, weft.sum, np.add),
    "MIN": (np.inf, weft.min, np.minimum),
    "MAX": (-np.inf, weft.max, np.maximum),
}
"""For each function the number that changes nothing, the function of tensors and of two arrays."""

MOST_COMPARISONS = 1024
"""The most comparisons on the way to a leaf, each of which becomes ops."""

NUMBERED_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass(frozen=True)
class Leaves:
    """What the leaves of a forest say.

    Attributes
    ----------
    nodes, targets, weights
        Of each of them its node, and the target to which it gives a weight.
    count
        The number of targets.
    """

    nodes: Array
    targets: Array
    weights: Array
    count: int


def aggregated(node: Node, forest: Forest, leaves: Leaves, function: str) -> tuple[Tensor, Any]:
    """Return the weights of each sample put together by target, and where there was none.

    The second is bool, of the same shape, or None where each target always has a weight.
    """
    x = node[0]
    x = weft.reshape(x, (1, -1)) if x.rank == 1 else x
    kind = np.float64 if x.dtype.name == "float64" else np.float32
    x = cast(x, kind)
    simple = forest.simplified(kind)
    depth = simple.depth()
    if depth is None:
        raise node.error("nodes of a tree form a cycle")
    if depth > MOST_COMPARISONS:
        raise node.error(f"a leaf is {depth} comparisons deep; {MOST_COMPARISONS} are the most")
    if simple.features.max(initial=0) >= x.axes.shape[1] or simple.features.min(initial=0) < 0:
        raise node.error(f"nodes compare features that {x.axes.shape[1]} columns do not have")
    if not (leaves.targets >= 0).all() or not (leaves.targets < leaves.count).all():
        raise node.error(f"leaves have targets that are not among {leaves.count}")
    neutral, reduce, combine = AGGREGATES[function]
    used, columns = np.unique(leaves.targets, return_inverse=True)
    node.require_room(len(forest.modes), len(used))
    node.require_room(x.axes.shape[0], leaves.count)
    table = np.full((len(forest.modes), len(used)), neutral, kind)
    combine.at(table, (leaves.nodes, columns), leaves.weights.astype(kind))
    given = np.zeros(table.shape, bool)
    given[leaves.nodes, columns] = True
    at = simple.leaves(x, depth)
    found = _by_target(at, forest, table, given, reduce, neutral)
    if function == "AVERAGE":
        found = found / len(forest.roots)
    missing = _missing(at, forest, given)
    if len(used) == leaves.count:
        return found, missing
    missing = weft.zeros(found.axes.shape, "bool") if missing is None else missing
    return _spread(found, used, leaves.count, 0), _spread(missing, used, leaves.count, 1)


def _spread(x: Tensor, used: Array, count: int, other: int) -> Tensor:
    """Return the columns of targets that leaves name, and for each other target one number."""
    columns = np.full(count, len(used))
    columns[used] = np.arange(len(used))
    column = weft.constant(np.full((x.axes.shape[0], 1), other, x.dtype))
    return weft.take(weft.concat([x, column], 1), weft.constant(columns), 1)


def _by_target(
    at: Tensor, forest: Forest, table: Array, given: Array, reduce: Any, neutral: float
) -> Tensor:
    """Return the weights at leaves, reduced over trees: (samples, targets)."""
    trees = tree_of(forest)
    own = [np.flatnonzero(given[trees == tree].any(0)) for tree in range(len(forest.roots))]
    if table.shape[1] == 1 or any(len(each) != 1 for each in own):
        return reduce(weft.take(weft.constant(table), at, 0), axis=1)
    # Each tree has one target, as in boosting: its leaves need a single column.
    groups = [[t for t, each in enumerate(own) if each[0] == n] for n in range(table.shape[1])]
    most = max(map(len, groups))
    single = np.where(given.any(1), np.where(given, table, 0).sum(1), neutral)
    flat = np.append(single, neutral).astype(table.dtype)
    order = np.array([[*each, *[len(own)] * (most - len(each))] for each in groups])
    samples = at.axes.shape[0]
    none = weft.constant(np.full((samples, 1), len(table), np.int32))
    sorted_leaves = weft.take(weft.concat([at, none], 1), weft.constant(order.reshape(-1)), 1)
    weights = weft.take(weft.constant(flat), sorted_leaves, 0)
    return reduce(weft.reshape(weights, (samples, len(groups), most)), axis=2)


def tree_of(forest: Forest) -> Array:
    """Return the number of the tree of each node; -1 for one that no root leads to."""
    found = np.full(len(forest.modes), -1)
    front, trees = forest.roots, np.arange(len(forest.roots))
    while front.size:
        found[front] = trees
        to = forest.children[front]
        is_new = (found[to] < 0).reshape(-1)
        front, trees = to.reshape(-1)[is_new], np.repeat(trees, 2)[is_new]
    return found


def _missing(at: Tensor, forest: Forest, given: Array) -> Tensor | None:
    """Return where no leaf gives a target a weight; None if some tree always gives it one."""
    trees, is_leaf = tree_of(forest), (forest.children == np.arange(len(given))[:, None]).all(1)
    always = np.zeros(given.shape[1], bool)
    for tree in range(len(forest.roots)):
        always |= given[is_leaf & (trees == tree)].all(0)
    if always.all():
        return None
    return weft.logical_not(weft.any(weft.take(weft.constant(given), at, 0), axis=1))


def _leaves_by_trees(node: Node, places: dict[tuple[int, int], int], what: str) -> Leaves:
    """Return the leaves that a regressor or classifier lists."""
    keys = zip(node.required(f"{what}_treeids"), node.required(f"{what}_nodeids"), strict=True)
    found = [places.get(key, -1) for key in keys]
    targets = np.array(node.required(f"{what}_ids"), np.int64)
    weights = numbers(node, f"{what}_weights")
    if -1 in found or not len(found) == len(targets) == len(weights):
        raise node.error(f"its {what}_nodeids, {what}_ids and {what}_weights do not fit the nodes")
    count = len(classes_of(node)) if what == "class" else node.attr("n_targets", 1)
    return Leaves(np.array(found), targets, weights, int(count))


@lowers("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: Node) -> Tensor:
    """Return the targets of an ensemble of trees."""
    forest, places = forest_by_trees(node)
    leaves = _leaves_by_trees(node, places, "target")
    function = node.choice("aggregate_function", default="SUM")
    found = _complete(*aggregated(node, forest, leaves, function))
    base = numbers(node, "base_values")
    if base.size not in (0, leaves.count):
        raise node.error(f"it has {base.size} base_values for {leaves.count} targets")
    found = found + weft.constant(base.astype(found.dtype)) if base.size else found
    return cast(transformed(node, found), "float32")


def _complete(found: Tensor, missing: Tensor | None) -> Tensor:
    return found if missing is None else weft.where(missing, weft.zeros_like(found), found)


@lowers("TreeEnsemble", domain=ML)
def tree_ensemble(node: Node) -> Tensor:
    """Return the targets of an ensemble of trees whose leaves have one target each."""
    forest = forest_by_roots(node)
    weights = np.asarray(node.required("leaf_weights")).reshape(-1)
    first = len(node.required("nodes_featureids"))
    nodes = np.arange(first, first + len(weights))
    targets = np.array(node.required("leaf_targetids"), np.int64)
    if len(targets) != len(weights):
        raise node.error(f"it has {len(weights)} leaf_weights for {len(targets)} leaf_targetids")
    leaves = Leaves(nodes, targets, weights, int(node.attr("n_targets", 1)))
    function = NUMBERED_AGGREGATES[node.choice("aggregate_function", default=1)]
    found = _complete(*aggregated(node, forest, leaves, function))
    transform = TRANSFORMS[NUMBERED[node.choice("post_transform", default=0)]]
    return cast(transform(found), node.dtype())


@lowers("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: Node) -> Any:
    """Return the label of each sample, and the scores of all classes."""
    classes = classes_of(node)
    forest, places = forest_by_trees(node)
    leaves = _leaves_by_trees(node, places, "class")
    scores, missing = aggregated(node, forest, leaves, "SUM")
    scores = _complete(scores, missing)
    base = numbers(node, "base_values").astype(scores.dtype)
    used = np.unique(leaves.targets)
    if len(classes) <= 2 and len(used) == 1:
        return _of_one_score(node, scores, leaves, base, classes)
    if base.size not in (0, len(classes)):
        raise node.error(f"it has {base.size} base_values for {len(classes)} classes")
    if base.size:
        scores, missing = scores + weft.constant(base), None
    ranked = scores if missing is None else weft.where(missing, -np.inf, scores)
    chosen = weft.argmax(ranked, axis=1)
    return labeled(node, chosen, classes), cast(transformed(node, scores), "float32")


def _of_one_score(
    node: Node, scores: Tensor, leaves: Leaves, base: Array, classes: list[Any]
) -> Any:
    """Return labels and scores where all leaves are of one class, as onnxruntime does.

    Weights that are all positive are probabilities, so the limit is a half; it is 0 otherwise. The
    other class has what is missing to 1, or the opposite; or 0 if the leaves are of the second.
    """
    at = int(leaves.targets[0])
    if base.size not in (0, 1) or (base.size and at):
        raise node.error(
            f"{base.size} base_values with weights of class {at} alone have no agreed meaning"
        )
    score = scores[:, at : at + 1]
    score = score + weft.constant(base) if base.size else score
    is_probability = len(classes) == 2 and bool((leaves.weights >= 0).all())
    chosen = weft.reshape(score > (0.5 if is_probability else 0.0), (-1,))
    label = labeled(node, chosen, classes if len(classes) == 2 else [])
    name = node.choice("post_transform")
    if len(classes) == 1:
        return label, cast(score if name != "PROBIT" else TRANSFORMS[name](score), "float32")
    if at:
        both = weft.concat([weft.zeros_like(score), score], 1)
        return label, cast(transformed(node, both), "float32")
    if name == "LOGISTIC":
        both = weft.sigmoid(weft.concat([-score, score], 1))
    else:
        both = weft.concat([1 - score if is_probability else -score, score], 1)
        both = TRANSFORMS[name](both) if name == "PROBIT" else both
    return label, cast(both, "float32")
