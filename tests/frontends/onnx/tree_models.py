"""Random ensembles of trees as nodes of ai.onnx.ml, and their definition, walked node by node."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from onnx import TensorProto, helper

MODES = {
    "BRANCH_LEQ": operator.le, "BRANCH_LT": operator.lt, "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt, "BRANCH_EQ": operator.eq, "BRANCH_NEQ": operator.ne,
}  # fmt: skip
COLUMNS = 4


class Tree:
    """A node: a comparison with two trees below, or a leaf with weights by target."""

    def __init__(
        self, rng: Any, depth: int, modes: list[str], targets: list[int], tracks: bool, covers: bool
    ):
        self.is_leaf = depth == 0 or rng.random() < 0.15
        if self.is_leaf:
            chosen = targets if covers else [t for t in targets if rng.random() < 0.6]
            self.weights = {int(t): float(np.float32(rng.normal())) for t in chosen}
            return
        self.mode = str(rng.choice(modes))
        self.feature = int(rng.integers(COLUMNS))
        # Samples have the same few numbers, so that equality is met.
        self.value = float(rng.integers(-3, 4)) / 2
        self.tracks = bool(tracks and rng.random() < 0.5)
        below = (rng, depth - 1, modes, targets, tracks, covers)
        self.yes, self.no = Tree(*below), Tree(*below)

    def leaf(self, row: np.ndarray):
        node = self
        while not node.is_leaf:
            x = row[node.feature]
            holds = MODES[node.mode](x, node.value) or (node.tracks and np.isnan(x))
            node = node.yes if holds else node.no
        return node.weights

    def nodes(self):
        """Return all nodes, this one first."""
        return [self] if self.is_leaf else [self, *self.yes.nodes(), *self.no.nodes()]


def forest(
    seed: int, trees: int = 5, depth: int = 4, modes: tuple[str, ...] = ("BRANCH_LEQ",),
    targets: int = 1, tracks: bool = False, covers: bool = True, one_each: bool = False,
):  # fmt: skip
    """Return random trees; each has weights for all targets, for some, or for one of them."""
    rng = np.random.default_rng(seed)
    several = [[n % targets] if one_each else list(range(targets)) for n in range(trees)]
    return [Tree(rng, depth, list(modes), each, tracks, covers) for each in several]


def samples(seed: int, count: int = 23, with_nan: bool = False):
    """Return samples of numbers that thresholds have too."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(-4, 5, (count, COLUMNS)) / 2).astype(np.float32)
    if with_nan:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


def attributes(trees: list[Any], what: str, kind: type[Any] = np.float32):
    """Return the attributes of a regressor ("target") or classifier ("class")."""
    names = ["treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"]
    found = {f"nodes_{name}": [] for name in [*names, "missing_value_tracks_true"]}
    found |= {f"{what}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, tree in enumerate(trees):
        nodes = tree.nodes()
        places = {id(each): at for at, each in enumerate(nodes)}
        for at, each in enumerate(nodes):
            is_leaf = each.is_leaf
            row = (
                number, at, 0 if is_leaf else each.feature, 0.0 if is_leaf else each.value,
                "LEAF" if is_leaf else each.mode, 0 if is_leaf else places[id(each.yes)],
                0 if is_leaf else places[id(each.no)], 0 if is_leaf else int(each.tracks),
            )  # fmt: skip
            for name, value in zip([*names, "missing_value_tracks_true"], row, strict=True):
                found[f"nodes_{name}"].append(value)
            for target, weight in (each.weights if is_leaf else {}).items():
                for name, value in zip(
                    ("treeids", "nodeids", "ids", "weights"), (number, at, target, weight),
                    strict=True,
                ):  # fmt: skip
                    found[f"{what}_{name}"].append(value)
    if kind is np.float64:
        for name in ("nodes_values", f"{what}_weights"):
            values = np.array(found.pop(name), np.float64)
            found[f"{name}_as_tensor"] = helper.make_tensor(
                name, TensorProto.DOUBLE, values.shape, values
            )
    return found


def newer_attributes(trees: list[Any], kind: int = TensorProto.FLOAT):
    """Return the attributes of the newer TreeEnsemble, for trees with one weight at each leaf."""
    inner, leaves, roots = [], [], []
    for tree in trees:
        nodes = tree.nodes()
        assert not nodes[0].is_leaf, "a tree begins with a comparison"
        roots.append(len(inner))
        inner += [each for each in nodes if not each.is_leaf]
        leaves += [each for each in nodes if each.is_leaf]
    places = {id(each): at for group in (inner, leaves) for at, each in enumerate(group)}
    numbers = {name: n for n, name in enumerate(dict.fromkeys([*MODES, "BRANCH_MEMBER"]))}
    found = {
        "tree_roots": roots,
        "nodes_featureids": [each.feature for each in inner],
        "nodes_modes": helper.make_tensor(
            "modes", TensorProto.UINT8, [len(inner)], [numbers[each.mode] for each in inner]
        ),
        "nodes_splits": helper.make_tensor(
            "splits", kind, [len(inner)], [each.value for each in inner]
        ),
        "nodes_missing_value_tracks_true": [int(each.tracks) for each in inner],
        "leaf_targetids": [next(iter(each.weights)) for each in leaves],
        "leaf_weights": helper.make_tensor(
            "weights", kind, [len(leaves)], [next(iter(each.weights.values())) for each in leaves]
        ),
    }
    for side, name in (("yes", "true"), ("no", "false")):
        below = [getattr(each, side) for each in inner]
        found[f"nodes_{name}nodeids"] = [places[id(each)] for each in below]
        found[f"nodes_{name}leafs"] = [int(each.is_leaf) for each in below]
    return found


def aggregated(trees: list[Any], x: np.ndarray, targets: int, function: str = "SUM"):
    """Return what leaves give put together, and which targets none gives any."""
    found = np.zeros((len(x), targets))
    missing = np.ones(found.shape, bool)
    reduced = {"SUM": sum, "AVERAGE": sum, "MIN": min, "MAX": max}[function]
    for row, values in enumerate(x):
        leaves = [tree.leaf(values) for tree in trees]
        for target in range(targets):
            given = [leaf[target] for leaf in leaves if target in leaf]
            found[row, target] = reduced(given) if given else 0
            missing[row, target] = not given
    return (found / len(trees) if function == "AVERAGE" else found), missing
