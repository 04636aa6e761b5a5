"""Support vector machines and encoders: against definitions in NumPy, and onnxruntime."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft_onnx
from weft_onnx.lowering.support_vectors import coupled

RNG = np.random.default_rng(3)
X = RNG.standard_normal((12, 3)).astype(np.float32)
KERNELS = {
    "LINEAR": lambda x, v, g, c, d: x @ v,
    "POLY": lambda x, v, g, c, d: (g * (x @ v) + c) ** d,
    "RBF": lambda x, v, g, c, d: math.exp(-g * ((x - v) ** 2).sum()),
    "SIGMOID": lambda x, v, g, c, d: math.tanh(g * (x @ v) + c),
}
PARAMETERS = (0.5, 0.25, 2.0)


def rounded(*shape: Any):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(
    op: str,
    outputs: list[str],
    given: dict[str, Any],
    x: np.ndarray = X,
    kind: int = TensorProto.FLOAT,
):
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **given)
    graph = helper.make_graph(
        [node], "learnt", [helper.make_tensor_value_info("x", kind, list(x.shape))],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def both(model: Any, x: np.ndarray = X):
    """Return what weft and, if it is installed, onnxruntime give."""
    found = weft_onnx.load(model).run({"x": x}, "numpy")
    try:
        import onnxruntime as runtime
    except ImportError:
        return found, None
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return found, dict(zip(found, session.run(list(found), {"x": x}), strict=True))


def kernel(name: str, vectors: np.ndarray):
    return np.array([[KERNELS[name](x, v, *PARAMETERS) for v in vectors] for x in X.astype(float)])


def machine(counts: list[int], name: str, **more: Any):
    """Return the attributes of a classifier, and the score of each pair of classes."""
    total, number = sum(counts), len(counts)
    vectors, coefficients = rounded(total, 3), rounded(number - 1, total)
    pairs = list(combinations(range(number), 2))
    offsets = rounded(len(pairs))
    starts = np.cumsum([0, *counts])
    similarities, scores = kernel(name, vectors), np.zeros((len(X), len(pairs)))
    for place, (i, j) in enumerate(pairs):
        for at in range(total):
            if starts[i] <= at < starts[i + 1]:
                scores[:, place] += similarities[:, at] * coefficients[j - 1, at]
            if starts[j] <= at < starts[j + 1]:
                scores[:, place] += similarities[:, at] * coefficients[i, at]
        scores[:, place] += offsets[place]
    given = {
        "support_vectors": vectors.reshape(-1), "vectors_per_class": counts,
        "coefficients": coefficients.reshape(-1), "rho": offsets, "kernel_type": name,
        "kernel_params": PARAMETERS, "classlabels_ints": list(range(5, 5 + number)), **more,
    }  # fmt: skip
    return given, scores, pairs


def winners(scores: np.ndarray, pairs: list[Any], number: int):
    votes = np.zeros((len(scores), number))
    for place, (i, j) in enumerate(pairs):
        for row, score in enumerate(scores[:, place]):
            votes[row, i if score > 0 else j] += 1
    return 5 + votes.argmax(1)


def agree(found: dict[str, Any], wanted: dict[str, Any]):
    np.testing.assert_array_equal(found["l"], wanted["l"])
    np.testing.assert_allclose(found["y"], wanted["y"], 1e-4, 1e-5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 1], [1, 2, 2, 3]])
def test_a_classifier_by_scores_of_pairs(counts: list[int], name: str):
    given, scores, pairs = machine(counts, name)
    found, judged = both(model_of("SVMClassifier", ["l", "y"], given))
    wanted = np.concatenate([-scores, scores], 1) if len(counts) == 2 else scores
    agree(found, {"l": winners(scores, pairs, len(counts)), "y": wanted})
    if judged:
        agree(found, judged)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("counts", [[3, 2], [2, 3, 1], [1, 2, 2, 3]])
def test_a_classifier_with_probabilities(counts: list[int], transform: str):
    size = len(counts) * (len(counts) - 1) // 2
    a, b = -abs(rounded(size)), rounded(size)
    given, scores, pairs = machine(counts, "RBF", prob_a=a, prob_b=b, post_transform=transform)
    found, judged = both(model_of("SVMClassifier", ["l", "y"], given))
    shares = np.clip(1 / (1 + np.exp(scores * a + b)), 1e-7, 1 - 1e-7)
    y = coupled(shares, len(counts))
    y = {
        "NONE": y, "LOGISTIC": 1 / (1 + np.exp(-y)),
        "SOFTMAX": np.exp(y) / np.exp(y).sum(1, keepdims=True),
    }[transform]  # fmt: skip
    agree(found, {"l": winners(scores, pairs, len(counts)), "y": y})
    if judged:
        agree(found, judged)


def test_coupled_probabilities_are_the_nearest_ones():
    """They minimize the squares that the method is defined by, over all that sum to 1."""
    count = 4
    pairs = list(combinations(range(count), 2))
    shares = RNG.uniform(0.1, 0.9, (20, len(pairs)))
    found = coupled(shares, count).astype(float)
    np.testing.assert_allclose(found.sum(1), 1, 1e-6)

    def error(p: np.ndarray, row: np.ndarray):
        total = 0.0
        for place, (i, j) in enumerate(pairs):
            total += (row[place] * p[j] - (1 - row[place]) * p[i]) ** 2
        return total

    for p, row in zip(found, shares, strict=True):
        for _ in range(50):
            other = np.abs(p + 0.05 * RNG.standard_normal(count))
            assert error(p, row) <= error(other / other.sum(), row) + 1e-4


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_a_regressor(name: str, one_class: int):
    vectors, coefficients, offset = rounded(5, 3), rounded(5), rounded(1)
    given = {
        "support_vectors": vectors.reshape(-1), "n_supports": 5, "coefficients": coefficients,
        "rho": offset, "kernel_type": name, "kernel_params": PARAMETERS, "one_class": one_class,
    }  # fmt: skip
    found, judged = both(model_of("SVMRegressor", ["y"], given))
    wanted = (kernel(name, vectors) @ coefficients + offset)[:, None]
    wanted = np.where(wanted > 0, 1, -1) if one_class else wanted
    np.testing.assert_allclose(found["y"], wanted, 1e-4, 1e-5)
    if judged:
        np.testing.assert_allclose(found["y"], judged["y"], 1e-4, 1e-5)


def test_a_linear_regressor_without_support_vectors():
    coefficients, offset = rounded(3), rounded(1)
    given = {"coefficients": coefficients, "rho": offset}
    found = weft_onnx.load(model_of("SVMRegressor", ["y"], given)).run({"x": X})["y"]
    np.testing.assert_allclose(found[:, 0], X @ coefficients + offset, 1e-5, 1e-5)


def test_attributes_that_do_not_fit_are_refused():
    given, _, _ = machine([2, 3, 1], "RBF")
    wrong = {
        "coefficients": "coefficients has", "support_vectors": "support_vectors has",
        "rho": "rho has",
    }  # fmt: skip
    for name, problem in wrong.items():
        model = model_of("SVMClassifier", ["l", "y"], {**given, name: given[name][:2]})
        with pytest.raises(weft_onnx.NodeError, match=problem):
            weft_onnx.load(model).run({"x": X})


NUMBERS = np.array([[1, 2], [3, 1]])
TEXTS = np.array([["a", "b"], ["c", "a"]], object)
ENCODERS = {
    "numbers": ("OneHotEncoder", {"cats_int64s": [1, 3]}, NUMBERS, NUMBERS[..., None] == [1, 3]),
    "floats": (
        "OneHotEncoder", {"cats_int64s": [1, 3]}, NUMBERS.astype(np.float32),
        NUMBERS[..., None] == [1, 3],
    ),
    "all known": (
        "OneHotEncoder", {"cats_int64s": [1, 2, 3], "zeros": 0}, NUMBERS,
        NUMBERS[..., None] == [1, 2, 3],
    ),
    "texts": ("OneHotEncoder", {"cats_strings": ["a", "c"]}, TEXTS, TEXTS[..., None] == ["a", "c"]),
    "texts as numbers": (
        "CategoryMapper", {"cats_strings": ["a", "b"], "cats_int64s": [3, 4]}, TEXTS,
        np.array([[3, 4], [-1, 3]]),
    ),
    "numbers as texts": (
        "CategoryMapper",
        {"cats_strings": ["a", "b"], "cats_int64s": [1, 2], "default_string": "?"}, NUMBERS,
        np.array([["a", "b"], ["?", "a"]], object),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder(name: str):
    op, given, x, wanted = ENCODERS[name]
    kind = TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)
    found, judged = both(model_of(op, ["y"], given, x, kind), x)
    np.testing.assert_array_equal(found["y"], wanted)
    if judged:
        np.testing.assert_array_equal(found["y"], judged["y"])


def test_an_element_that_is_no_category_is_an_error_if_the_node_says_so():
    model = model_of("OneHotEncoder", ["y"], {"cats_int64s": [1], "zeros": 0}, NUMBERS,
                     TensorProto.INT64)  # fmt: skip
    with pytest.raises(weft_onnx.NodeError, match="an element is 2"):
        weft_onnx.load(model).run({"x": NUMBERS})
