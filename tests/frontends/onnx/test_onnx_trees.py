"""Ensembles of trees: against a walk node by node, and against onnxruntime where it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tree_models
from onnx import TensorProto, helper
from tree_models import MODES, aggregated, attributes, forest, newer_attributes, samples

import weft_onnx

pytestmark = pytest.mark.share(3)


def model_of(
    op: str,
    outputs: list[str],
    given: dict[str, Any],
    version: int = 3,
    kind: int = TensorProto.FLOAT,
):
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **given)
    graph = helper.make_graph(
        [node], "trees", [helper.make_tensor_value_info("x", kind, ["N", tree_models.COLUMNS])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def by_runtime(model: Any, x: np.ndarray):
    """Return what onnxruntime gives, or skip the test."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": x}), strict=True))


def softmax(x: np.ndarray):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


FORESTS = {
    **{mode: {"modes": (mode,)} for mode in MODES},
    **{f"{mode} NaN": {"modes": (mode,), "tracks": True} for mode in MODES},
    "all modes": {"modes": tuple(MODES)},
    "all modes NaN": {"modes": tuple(MODES), "tracks": True},
    "three targets": {"targets": 3},
    "some of three targets": {"targets": 3, "covers": False},
    "one target of three": {"targets": 3, "one_each": True, "trees": 7},
    "one target of three, or none": {
        "targets": 3, "one_each": True, "trees": 7, "covers": False,
    },
    "deep": {"depth": 9, "trees": 3},
    "a target without leaves": {"targets": 3, "one_each": True, "trees": 2},
    "leaves": {"depth": 0},
}  # fmt: skip


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("name", FORESTS)
def test_a_regressor(name: str, function: str):
    options = FORESTS[name]
    targets, trees = options.get("targets", 1), forest(7, **options)
    x = samples(8, with_nan=True)
    base = [0.5, -1.0, 2.0][:targets]
    model = model_of(
        "TreeEnsembleRegressor", ["y"],
        {**attributes(trees, "target"), "n_targets": targets, "aggregate_function": function,
         "base_values": base},
    )  # fmt: skip
    found = weft_onnx.load(model).run({"x": x}, "numpy")["y"]
    wanted = aggregated(trees, x, targets, function)[0] + base
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("name", FORESTS)
def test_a_regressor_gives_what_onnxruntime_gives(name: str):
    options = FORESTS[name]
    targets, trees = options.get("targets", 1), forest(7, **options)
    x = samples(8, with_nan=True)
    for function in ("SUM", "AVERAGE", "MIN", "MAX"):
        given = {"n_targets": targets, "aggregate_function": function}
        model = model_of("TreeEnsembleRegressor", ["y"], {**attributes(trees, "target"), **given})
        found = weft_onnx.load(model).run({"x": x}, "numpy")["y"]
        np.testing.assert_allclose(found, by_runtime(model, x)["y"], 1e-5, 1e-5)


def test_doubles_are_compared_as_doubles():
    trees = forest(3, modes=("BRANCH_LT", "BRANCH_GTE"))
    given = attributes(trees, "target", np.float64)
    model = model_of("TreeEnsembleRegressor", ["y"], given, kind=TensorProto.DOUBLE)
    x = samples(4).astype(np.float64)
    nearly = np.nextafter(x, -np.inf)
    for each in (x, nearly):
        found = weft_onnx.load(model).run({"x": each}, "numpy")["y"]
        np.testing.assert_allclose(found, aggregated(trees, each, 1)[0], 1e-5, 1e-5)


TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
OF_THREE = (
    "three targets", "some of three targets", "one target of three", "a target without leaves",
)  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", OF_THREE)
def test_a_classifier_of_three(name: str, transform: str):
    options = FORESTS[name]
    trees, x = forest(7, **options), samples(8, with_nan=True)
    scores, missing = aggregated(trees, x, 3)
    chosen = np.where(missing, -np.inf, scores).argmax(1)
    wanted = {
        "NONE": scores, "LOGISTIC": 1 / (1 + np.exp(-scores)), "SOFTMAX": softmax(scores),
        "SOFTMAX_ZERO": np.nan_to_num(softmax(np.where(scores == 0, -np.inf, scores))),
    }[transform]  # fmt: skip
    for classes in ({"classlabels_int64s": [4, -2, 9]}, {"classlabels_strings": ["a", "b", "c"]}):
        given = {**attributes(trees, "class"), **classes, "post_transform": transform}
        model = model_of("TreeEnsembleClassifier", ["l", "y"], given)
        found = weft_onnx.load(model).run({"x": x}, "numpy")
        (labels,) = classes.values()
        assert found["l"].tolist() == [labels[n] for n in chosen]
        np.testing.assert_allclose(found["y"], wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_classifier_of_three_gives_what_onnxruntime_gives(transform: str):
    for name in OF_THREE:
        trees, x = forest(7, **FORESTS[name]), samples(8)
        given = {
            **attributes(trees, "class"), "classlabels_int64s": [4, -2, 9],
            "post_transform": transform, "base_values": [0.5, -0.25, 0.125],
        }  # fmt: skip
        model = model_of("TreeEnsembleClassifier", ["l", "y"], given)
        found, wanted = weft_onnx.load(model).run({"x": x}, "numpy"), by_runtime(model, x)
        np.testing.assert_array_equal(found["l"], wanted["l"])
        np.testing.assert_allclose(found["y"], wanted["y"], 1e-5, 1e-5)


def of_one_class(at: int, is_positive: bool):
    """Return trees whose leaves have weights for one class of two."""
    trees = forest(5)
    for tree in trees:
        for each in tree.nodes():
            if each.is_leaf:
                weight = each.weights[0] / 5
                each.weights = {at: abs(weight) if is_positive else weight}
    return trees


BINARY = {
    "first, positive": (0, True, []), "first": (0, False, []), "second": (1, False, []),
    "second, positive": (1, True, []), "first with a base": (0, False, [0.25]),
    "first, positive, with a base": (0, True, [0.25]),
}  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", BINARY)
def test_a_classifier_of_two_with_the_weights_of_one(name: str, transform: str):
    at, is_positive, base = BINARY[name]
    trees, x = of_one_class(at, is_positive), samples(8)
    score = aggregated(trees, x, 2)[0][:, at] + sum(base)
    given = {
        **attributes(trees, "class"), "classlabels_int64s": [10, 20], "post_transform": transform,
    }  # fmt: skip
    given |= {"base_values": base} if base else {}
    model = model_of("TreeEnsembleClassifier", ["l", "y"], given)
    found = weft_onnx.load(model).run({"x": x}, "numpy")
    limit = 0.5 if is_positive else 0
    assert found["l"].tolist() == np.where(score > limit, 20, 10).tolist()
    if at == 0:
        other = 1 - score if is_positive else -score
        wanted = np.stack([other, score], 1)
        if transform == "LOGISTIC":
            wanted = 1 / (1 + np.exp(-np.stack([-score, score], 1)))
        np.testing.assert_allclose(found["y"], wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_classifier_of_two_gives_what_onnxruntime_gives(transform: str):
    for at, is_positive, base in BINARY.values():
        trees, x = of_one_class(at, is_positive), samples(8)
        given = {
            **attributes(trees, "class"), "classlabels_int64s": [10, 20],
            "post_transform": transform,
        }  # fmt: skip
        given |= {"base_values": base} if base else {}
        model = model_of("TreeEnsembleClassifier", ["l", "y"], given)
        found, wanted = weft_onnx.load(model).run({"x": x}, "numpy"), by_runtime(model, x)
        np.testing.assert_array_equal(found["l"], wanted["l"])
        np.testing.assert_allclose(found["y"], wanted["y"], 1e-5, 1e-5)


def test_two_classes_with_weights_of_both_are_ranked():
    trees, x = forest(7, targets=2), samples(8)
    given = {**attributes(trees, "class"), "classlabels_int64s": [0, 1]}
    model = model_of("TreeEnsembleClassifier", ["l", "y"], given)
    found = weft_onnx.load(model).run({"x": x}, "numpy")
    scores, _ = aggregated(trees, x, 2)
    np.testing.assert_array_equal(found["l"], scores.argmax(1))
    np.testing.assert_allclose(found["y"], scores, 1e-5, 1e-5)


FUNCTIONS = ("AVERAGE", "SUM", "MIN", "MAX")


def with_sets(trees: list[Any]):
    """Make every other comparison one with a set, and return the sets in the order of nodes."""
    rng, sets = np.random.default_rng(2), []
    for tree in trees:
        for number, each in enumerate(each for each in tree.nodes() if not each.is_leaf):
            if number % 2:
                each.mode, each.tracks = "BRANCH_MEMBER", each.tracks
                each.value = sorted({float(n) / 2 for n in rng.integers(-4, 5, 3)})
                sets += [*each.value, np.nan]
    return np.array(sets, np.float32)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_the_newer_op(function: str, kind: int, monkeypatch: pytest.MonkeyPatch):
    trees = forest(7, modes=tuple(MODES), targets=3, one_each=True, tracks=True, trees=6)
    trees = [each for each in trees if not each.is_leaf]
    sets = with_sets(trees)
    monkeypatch.setitem(tree_models.MODES, "BRANCH_MEMBER", lambda x, values: x in values)
    x = samples(8, with_nan=True).astype(helper.tensor_dtype_to_np_dtype(kind))
    wanted = aggregated(trees, x, 3, function)[0]
    for each in (each for tree in trees for each in tree.nodes() if not each.is_leaf):
        each.value = 0.0 if each.mode == "BRANCH_MEMBER" else each.value
    given = newer_attributes(trees, kind)
    given["membership_values"] = helper.make_tensor("m", kind, sets.shape, sets)
    given |= {"n_targets": 3, "aggregate_function": FUNCTIONS.index(function)}
    model = model_of("TreeEnsemble", ["y"], given, 5, kind)
    found = weft_onnx.load(model).run({"x": x}, "numpy")["y"]
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


def test_it_runs_on_every_backend(backend: str):
    trees = forest(7, modes=tuple(MODES), targets=3, tracks=True)
    x = samples(8, with_nan=True)
    given = {**attributes(trees, "target"), "n_targets": 3}
    model = model_of("TreeEnsembleRegressor", ["y"], given)
    found = weft_onnx.load(model).run({"x": x}, backend)["y"]
    np.testing.assert_allclose(found, aggregated(trees, x, 3)[0], 1e-5, 1e-5)


def cyclic(given: dict[str, Any]):
    inner = [n for n, mode in enumerate(given["nodes_modes"]) if mode != "LEAF"]
    given["nodes_truenodeids"][inner[1]] = 0


def unknown_child(given: Any):
    given["nodes_truenodeids"][0] = 999


def wide_feature(given: dict[str, Any]):
    given["nodes_featureids"][0] = 99


def twice(given: Any):
    given["nodes_nodeids"][1] = 0


def few_values(given: Any):
    given["nodes_values"].pop()


def unknown_leaf(given: Any):
    given["target_nodeids"][0] = 999


def wide_target(given: dict[str, Any]):
    given["target_ids"][0] = 5


def many_targets(given: Any):
    given["n_targets"] = 10**15


WRONG = {
    many_targets: "more than memory holds",
    cyclic: "cycle", unknown_child: "no node 999", wide_feature: "columns do not have",
    twice: "have one number", few_values: "nodes_values has", unknown_leaf: "do not fit",
    wide_target: "not among 1",
}  # fmt: skip


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change.__name__)
def test_trees_that_contradict_themselves_are_refused(change: Callable[..., Any]):
    given = attributes(forest(7), "target")
    change(given)
    with pytest.raises(weft_onnx.NodeError, match=WRONG[change]):
        weft_onnx.load(model_of("TreeEnsembleRegressor", ["y"], given)).run({"x": samples(8)})


@pytest.mark.long
def test_any_forest():
    """Trees of any mode, depth and number of targets, with NaN, as floats and as doubles."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        targets = int(rng.integers(1, 5))
        modes = rng.choice(list(MODES), rng.integers(1, 4), replace=False).tolist()
        trees = forest(
            seed, trees=int(rng.integers(1, 12)), depth=int(rng.integers(0, 7)), modes=modes,
            targets=targets, tracks=bool(rng.integers(2)), covers=bool(rng.integers(2)),
            one_each=bool(rng.integers(2)),
        )  # fmt: skip
        kind = [np.float32, np.float64][rng.integers(2)]
        x = samples(seed + 1, with_nan=bool(rng.integers(2))).astype(kind)
        function = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
        given = {
            **attributes(trees, "target", kind), "n_targets": targets,
            "aggregate_function": function,
        }  # fmt: skip
        if not given["target_ids"]:
            continue
        number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        model = model_of("TreeEnsembleRegressor", ["y"], given, kind=number)
        found = weft_onnx.load(model).run({"x": x}, "numpy")["y"]
        wanted = aggregated(trees, x, targets, function)[0]
        np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=f"seed {seed}")
