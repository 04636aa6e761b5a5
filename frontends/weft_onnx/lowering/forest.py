"""Trees of decisions as tables: what the nodes of the file say, and the walk from roots to leaves.

All trees are walked at once: a step takes for each sample and tree the feature and the threshold of
the node where it is, compares, and goes on to a child. A leaf is its own child.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from weft.ir.dtypes import Array
from weft_onnx.nodes import Node
from weft_onnx.values import Tensor

MODES = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
    "BRANCH_MEMBER", "LEAF",
)  # fmt: skip
"""The comparisons of nodes; their places are their numbers in the newer TreeEnsemble."""

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER, LEAF = range(len(MODES))


@dataclass
class Forest:
    """Trees, whose nodes are numbered through.

    Attributes
    ----------
    features, thresholds, modes
        Of each node, which feature it compares with what, and how.
    children
        Of each node, the next one if the comparison holds, and if not.
    tracks
        Of each node, whether NaN counts as if the comparison held.
    roots
        The first node of each tree.
    """

    features: Array
    thresholds: Array
    modes: Array
    children: Array
    tracks: Array
    roots: Array

    def depth(self) -> int | None:
        """Return the most comparisons on the way to a leaf; None if the nodes form a cycle."""
        front, steps = np.unique(self.roots), 0
        while True:
            inner = front[self.modes[front] != LEAF]
            if not inner.size:
                return steps
            if steps > len(self.modes):
                return None
            front, steps = np.unique(self.children[inner]), steps + 1

    def simplified(self, dtype: Any) -> Forest:
        """Return trees of the modes LEQ, EQ and LEAF that decide alike on numbers of a dtype.

        What is less than a threshold is at most the number before it. The others are these with
        their children exchanged; NaN, with which every comparison but NEQ fails, keeps its way.
        """
        modes, children = self.modes.copy(), self.children.copy()
        thresholds = self.thresholds.astype(dtype)
        is_strict = np.isin(modes, (LT, GTE))
        lowest = is_strict & (thresholds == -np.inf)
        thresholds[is_strict] = np.nextafter(thresholds[is_strict], dtype(-np.inf))
        # Nothing is less than -inf, so both ways are the one for a comparison that fails.
        children[lowest & (modes == LT), 0] = children[lowest & (modes == LT), 1]
        children[lowest & (modes == GTE), 1] = children[lowest & (modes == GTE), 0]
        is_swapped = np.isin(modes, (GTE, GT, NEQ))
        tracks = (self.tracks | (modes == NEQ)) ^ is_swapped
        children[is_swapped] = children[is_swapped, ::-1]
        modes[np.isin(modes, (LT, GTE, GT))] = LEQ
        modes[modes == NEQ] = EQ
        tracks &= modes != LEAF
        return Forest(self.features, thresholds, modes, children, tracks, self.roots)

    def leaves(self, x: Tensor, depth: int) -> Tensor:
        """Return the leaf of each sample in each tree, (samples, trees)."""
        inner = self.modes[self.modes != LEAF]
        mixes = bool((inner == EQ).any() and (inner == LEQ).any())
        at = weft.constant(np.zeros((x.axes.shape[0], 1), np.int32) + self.roots.astype(np.int32))
        tables = {
            "features": self.features.astype(np.int32), "thresholds": self.thresholds,
            "is_equal": self.modes == EQ, "tracks": self.tracks,
            "children": self.children.reshape(-1).astype(np.int32),
        }  # fmt: skip
        constants = {name: weft.constant(table) for name, table in tables.items()}
        for _ in range(depth):
            value = weft.take_along_axis(x, weft.take(constants["features"], at, 0), 1)
            limit = weft.take(constants["thresholds"], at, 0)
            holds = weft.equal(value, limit) if inner[0] == EQ else weft.less_equal(value, limit)
            if mixes:
                is_equal = weft.take(constants["is_equal"], at, 0)
                holds = weft.where(
                    is_equal, weft.equal(value, limit), weft.less_equal(value, limit)
                )
            if self.tracks.any():
                is_tracked = weft.take(constants["tracks"], at, 0)
                holds = weft.logical_or(holds, weft.logical_and(weft.isnan(value), is_tracked))
            place = at * 2 + weft.where(holds, np.int32(0), np.int32(1))
            at = weft.take(constants["children"], place, 0)
        return at


def numbers(node: Node, name: str) -> Array:
    """Return an attribute that is a list of numbers, or a tensor of them in a longer dtype."""
    found = node.attr(f"{name}_as_tensor")
    if found is None:
        return np.array(node.attr(name) or [], np.float32)
    return np.asarray(found).reshape(-1)


def forest_by_trees(node: Node) -> tuple[Forest, dict[tuple[int, int], int]]:
    """Return the trees whose nodes have a number of a tree and one in it, and their indices."""
    trees, names = node.required("nodes_treeids"), node.required("nodes_nodeids")
    places = {key: at for at, key in enumerate(zip(trees, names, strict=True))}
    if len(places) < len(trees):
        raise node.error("two nodes of a tree have one number")
    modes = np.array([MODES.index(each) for each in node.required("nodes_modes")])
    count = len(trees)

    def child(attribute: str) -> Array:
        found = np.arange(count)
        given = node.required(attribute)
        for at in np.flatnonzero(modes != LEAF):
            key = (trees[at], given[at])
            if key not in places:
                raise node.error(f"tree {key[0]} has no node {key[1]}")
            found[at] = places[key]
        return found

    children = np.stack([child("nodes_truenodeids"), child("nodes_falsenodeids")], 1)
    features = np.array(node.required("nodes_featureids"), np.int64)
    features[modes == LEAF] = 0
    tracks = np.array(node.attr("nodes_missing_value_tracks_true") or [0] * count, bool)
    _, roots = np.unique(np.array(trees), return_index=True)
    found = Forest(
        _of_length(node, "nodes_featureids", features, count),
        _of_length(node, "nodes_values", numbers(node, "nodes_values"), count),
        _of_length(node, "nodes_modes", modes, count), children,
        _of_length(node, "nodes_missing_value_tracks_true", tracks, count), np.sort(roots),
    )  # fmt: skip
    return found, places


def _of_length(node: Node, name: str, x: Array, count: int) -> Array:
    if len(x) != count:
        raise node.error(f"attribute {name} has {len(x)} elements for {count} nodes")
    return x


def forest_by_roots(node: Node) -> Forest:
    """Return the trees of the newer TreeEnsemble, with its leaves behind the other nodes."""
    features = np.array(node.required("nodes_featureids"), np.int64)
    count, leaves = len(features), len(node.required("leaf_targetids"))
    modes = np.asarray(node.required("nodes_modes")).reshape(-1).astype(int)
    thresholds = np.asarray(node.required("nodes_splits")).reshape(-1)
    tracks = np.array(node.attr("nodes_missing_value_tracks_true") or [0] * count, bool)
    sides = []
    for side in ("true", "false"):
        to = np.array(node.required(f"nodes_{side}nodeids"), np.int64)
        is_leaf = np.array(node.required(f"nodes_{side}leafs"), bool)
        limits = np.where(is_leaf, leaves, count)
        if len(to) != count or ((to < 0) | (to >= limits)).any():
            raise node.error(f"attribute nodes_{side}nodeids has numbers that no node has")
        sides.append(to + np.where(is_leaf, count, 0))
    own = np.arange(count, count + leaves)
    roots = np.array(node.required("tree_roots"), np.int64)
    found = Forest(
        np.concatenate([_of_length(node, "nodes_featureids", features, count), 0 * own]),
        np.concatenate([
            _of_length(node, "nodes_splits", thresholds, count), np.zeros(leaves, thresholds.dtype)
        ]),
        np.concatenate([_of_length(node, "nodes_modes", modes, count), 0 * own + LEAF]),
        np.concatenate([np.stack(sides, 1), np.stack([own, own], 1)]),
        np.concatenate([
            _of_length(node, "nodes_missing_value_tracks_true", tracks, count), own < 0
        ]),
        roots,
    )  # fmt: skip
    if ((roots < 0) | (roots >= count)).any():
        raise node.error("attribute tree_roots has numbers that no node has")
    return _without_members(node, found)


def _without_members(node: Node, forest: Forest) -> Forest:
    """Return trees in which a test for membership is a chain of tests for equality."""
    (members,) = np.nonzero(forest.modes == MEMBER)
    if not members.size:
        return forest
    values = np.asarray(node.required("membership_values")).reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) < len(members):
        raise node.error(f"membership_values has {len(ends)} sets for {len(members)} nodes")
    sets = np.split(values, ends)[: len(members)]
    found = Forest(
        forest.features, forest.thresholds.copy(), forest.modes.copy(), forest.children.copy(),
        forest.tracks, forest.roots,
    )  # fmt: skip
    rows: list[tuple[int, float, tuple[int, int]]] = []
    first = len(forest.modes)
    for at, each in zip(members, sets, strict=True):
        numbers_in = each[~np.isnan(each)]
        yes, no = forest.children[at]
        if not numbers_in.size:
            found.children[at] = no, no
        places = [int(at), *range(first + len(rows), first + len(rows) + len(numbers_in) - 1)]
        for place, number, then in zip(places, numbers_in, [*places[1:], no], strict=True):
            if place == at:
                found.thresholds[at], found.children[at] = number, (yes, then)
            else:
                rows.append((int(forest.features[at]), float(number), (yes, then)))
    found.modes[members] = EQ
    return _extended(found, rows)


def _extended(forest: Forest, rows: Sequence[tuple[int, float, tuple[int, int]]]) -> Forest:
    """Return trees with further tests for equality: feature, threshold and children of each."""
    if not rows:
        return forest
    features, thresholds, children = zip(*rows, strict=True)
    none = np.zeros(len(rows), bool)
    return Forest(
        np.concatenate([forest.features, features]),
        np.concatenate([forest.thresholds, np.array(thresholds, forest.thresholds.dtype)]),
        np.concatenate([forest.modes, none + EQ]),
        np.concatenate([forest.children, np.array(children)]),
        np.concatenate([forest.tracks, none]), forest.roots,
    )  # fmt: skip
