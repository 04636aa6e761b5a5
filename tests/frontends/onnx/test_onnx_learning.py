"""Models of scikit-learn, as its converter writes them: scalers, linear models, dense layers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import declared, made

import weft_onnx

linear_model = pytest.importorskip("sklearn.linear_model")
preprocessing = pytest.importorskip("sklearn.preprocessing")

RNG = np.random.default_rng(5)
X = RNG.standard_normal((40, 4)).astype("float32")
LABELS = (X @ np.array([1, -2, 0.5, 0])).round().clip(-1, 1).astype(int)


def ml(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def run(nodes, *outputs):
    model = made(nodes, [declared("x", ["N", 4])], outputs)
    return weft_onnx.load(model).run({"x": X})


def test_a_scaler_and_a_classifier_with_a_dict_of_scores():
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
    assert list(found["by_class"]) == [-1, 0, 1]
    for column, scores in enumerate(found["by_class"].values()):
        np.testing.assert_allclose(scores, expected[:, column], 1e-4, 1e-5)


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
def test_a_normalizer(norm):
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
