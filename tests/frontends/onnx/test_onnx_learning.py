"""Models of scikit-learn, as its converter writes them: scalers, linear models, dense layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import declared, made

import weft
import weft_onnx

linear_model = pytest.importorskip("sklearn.linear_model")
preprocessing = pytest.importorskip("sklearn.preprocessing")

pytestmark = pytest.mark.slow  # scikit-learn takes seconds to import

RNG = np.random.default_rng(5)
X = RNG.standard_normal((40, 4)).astype("float32")
LABELS = (X @ np.array([1, -2, 0.5, 0])).round().clip(-1, 1).astype(int)


def ml(op: str, inputs: list[str], outputs: list[str], **attributes: Any):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def run(nodes: list[Any], *outputs: Any):
    model = made(nodes, [declared("x", ["N", 4])], outputs)
    return weft_onnx.load(model).run({"x": X})


def test_a_scaler_and_a_classifier_with_maps_of_scores():
    scaler = preprocessing.StandardScaler().fit(X)
    classifier = linear_model.LogisticRegression().fit(scaler.transform(X), LABELS)
    nodes = [
        ml("Scaler", ["x"], ["s"], offset=list(scaler.mean_), scale=list(1 / scaler.scale_)),
        ml(
            "LinearClassifier", ["s"], ["label", "scores"], post_transform="SOFTMAX",
            coefficients=classifier.coef_.ravel().tolist(),
            intercepts=classifier.intercept_.tolist(), classlabels_ints=[-1, 0, 1],
        ),
        ml("ZipMap", ["scores"], ["by_class"], classlabels_int64s=[-1, 0, 1]),
    ]  # fmt: skip
    found = run(nodes, "label", "by_class")
    given = scaler.transform(X)
    np.testing.assert_array_equal(found["label"], classifier.predict(given))
    expected = classifier.predict_proba(given)
    for scores, row in zip(found["by_class"], expected, strict=True):
        assert list(scores) == [-1, 0, 1]
        np.testing.assert_allclose(list(scores.values()), row, 1e-4, 1e-5)


def test_two_classes_named_by_strings():
    names = np.where(LABELS > 0, "yes", "no")
    classifier = linear_model.LogisticRegression().fit(X, names)
    node = ml(
        "LinearClassifier", ["x"], ["label", "scores"], post_transform="LOGISTIC",
        coefficients=classifier.coef_.ravel().tolist(),
        intercepts=classifier.intercept_.tolist(), classlabels_strings=["no", "yes"],
    )  # fmt: skip
    found = run([node], "label", "scores")
    assert list(found["label"]) == list(classifier.predict(X))
    np.testing.assert_allclose(found["scores"], classifier.predict_proba(X), 1e-4, 1e-5)


def test_a_linear_regression_of_several_targets():
    targets = X @ RNG.standard_normal((4, 2)) + 1
    model = linear_model.LinearRegression().fit(X, targets)
    node = ml(
        "LinearRegressor", ["x"], ["y"], targets=2, coefficients=model.coef_.ravel().tolist(),
        intercepts=model.intercept_.tolist(),
    )  # fmt: skip
    np.testing.assert_allclose(run([node], "y")["y"], model.predict(X), 1e-4, 1e-4)


@pytest.mark.parametrize("norm", ["max", "l1", "l2"])
def test_a_normalizer(norm: str):
    expected = preprocessing.normalize(np.abs(X), norm)
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]), ml("Normalizer", ["a"], ["y"], norm=norm.upper())
    ]  # fmt: skip
    np.testing.assert_allclose(run(nodes, "y")["y"], expected, 1e-5)


def test_columns_are_extracted():
    nodes = [
        helper.make_node("Constant", [], ["i"], value_ints=[2, 0]),
        ml("ArrayFeatureExtractor", ["x", "i"], ["y"]),
    ]
    np.testing.assert_array_equal(run(nodes, "y")["y"], X[:, [2, 0]])


def zip_map(kind: str, keys: list[Any], shape: list[Any], scores: np.ndarray):
    model = made([ml("ZipMap", ["x"], ["maps"], **{kind: keys})], [declared("x", shape)], ["maps"])
    return weft_onnx.load(model).run({"x": scores})["maps"]


@pytest.mark.parametrize(
    ("kind", "keys"), [("classlabels_strings", ["a", "b"]), ("classlabels_int64s", [3, -1])]
)
def test_scores_are_a_list_with_a_map_for_each_sample(kind: str, keys: list[Any]):
    scores = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]], "float32")
    wanted = [dict(zip(keys, row, strict=True)) for row in scores.tolist()]
    assert zip_map(kind, keys, ["N", 2], scores) == wanted
    assert zip_map(kind, keys, ["N", 2], scores[:0]) == []
    assert zip_map(kind, keys, [2], scores[0]) == wanted[:1]


def test_maps_of_a_model_that_is_built_are_the_matrix_of_their_values():
    node = ml("ZipMap", ["x"], ["maps"], classlabels_int64s=[0, 1])
    model = weft_onnx.load(made([node], [declared("x", [3, 2])], ["maps"]))
    assert model.build({"x": weft.placeholder((3, 2))})["maps"].axes.shape == (3, 2)


@pytest.mark.parametrize("attributes", [
    {}, {"classlabels_int64s": [1, 2], "classlabels_strings": ["a", "b"]},
    {"classlabels_int64s": [1, 2, 3]},
])  # fmt: skip
def test_classes_that_do_not_fit_are_refused(attributes: dict[str, Any]):
    model = made([ml("ZipMap", ["x"], ["maps"], **attributes)], [declared("x", [3, 2])], ["maps"])
    with pytest.raises(weft_onnx.NodeError, match="classes"):
        weft_onnx.load(model).run({"x": np.zeros((3, 2), "float32")})
