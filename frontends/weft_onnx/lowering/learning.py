"""Ops of the domain ai.onnx.ml: linear models, scalers, encoders."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft_onnx.lowering.movement import reshaped
from weft_onnx.lowering.scores import transformed
from weft_onnx.nodes import ML, Node, cast, lowers
from weft_onnx.values import Maps, Tensor


@lowers("Scaler", domain=ML)
def scaler(node: Node) -> Tensor:
    """Subtract offsets and multiply by scales."""
    offset = np.array(node.attr("offset", [0.0]), np.float32)
    scale = np.array(node.attr("scale", [1.0]), np.float32)
    return (cast(node[0], "float32") - weft.constant(offset)) * weft.constant(scale)


@lowers("Normalizer", domain=ML)
def normalizer(node: Node) -> Tensor:
    """Divide rows by a norm; rows of zeros stay as they are."""
    x, kind = cast(node[0], "float32"), node.choice("norm")
    axis = x.rank - 1
    if kind == "MAX":
        norm = weft.max(x, axis=axis, keepdims=True)
    elif kind == "L1":
        norm = weft.sum(weft.absolute(x), axis=axis, keepdims=True)
    else:
        norm = weft.sqrt(weft.sum(x * x, axis=axis, keepdims=True))
    return x / weft.where(weft.equal(norm, 0), weft.ones_like(norm), norm)


@lowers("Binarizer", domain=ML)
def binarizer(node: Node) -> Tensor:
    """Return 1 above a threshold and 0 elsewhere."""
    return cast(weft.greater(node[0], node.attr("threshold", 0.0)), node.dtype())


@lowers("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node) -> Any:
    """Take columns at indices."""
    found = weft.take(node[0], weft.reshape(node[1], (-1,)), node.rank() - 1)
    return weft.reshape(found, (1, -1)) if node.rank() == 1 else found


@lowers("Imputer", domain=ML)
def imputer(node: Node) -> Tensor:
    """Replace numbers that stand for missing ones."""
    x = node[0]
    kind = "floats" if x.dtype.kind == "f" else "int64s"
    values = weft.constant(np.array(node.required(f"imputed_value_{kind}"), x.dtype))
    missing = node.attr(f"replaced_value_{kind[:-1]}", 0)
    is_missing = weft.isnan(x) if missing != missing else weft.equal(x, missing)
    return weft.where(is_missing, values, x)


def _linear(node: Node, count: int) -> Tensor:
    """Return the scores of a linear model."""
    x = cast(node[0], "float32")
    x = weft.reshape(x, (1, -1)) if x.rank == 1 else x
    weights = np.array(node.required("coefficients"), np.float32).reshape(count, -1)
    scores = weft.matmul(x, weft.constant(np.ascontiguousarray(weights.T)))
    intercepts = node.attr("intercepts")
    return scores if not intercepts else scores + weft.constant(np.array(intercepts, np.float32))


@lowers("LinearRegressor", domain=ML)
def linear_regressor(node: Node) -> Tensor:
    """Return the targets of a linear model."""
    return transformed(node, _linear(node, node.attr("targets", 1)))


@lowers("LinearClassifier", domain=ML)
def linear_classifier(node: Node) -> Any:
    """Return the class of each row, and the scores of all classes."""
    labels: Any = node.attr("classlabels_ints")
    names = node.attr("classlabels_strings")
    classes = list(names if names else labels or [])
    features = node.shape()[-1]
    count = max(len(node.required("coefficients")) // max(features, 1), 1)
    scores = _linear(node, count)
    if count == 1 and len(classes) == 2:
        scores = weft.concat([-scores, scores], 1)
    if classes and len(classes) != scores.axes.shape[1]:
        raise node.error(f"{len(classes)} classes do not fit {scores.axes.shape[1]} scores")
    chosen = cast(weft.argmax(scores, axis=1), "int64")
    result = transformed(node, scores)
    if not classes:
        return chosen, result
    if names:
        table = np.array(names, object)
        return node.host(lambda at: [table[at]], chosen)[0], result
    return weft.take(weft.constant(np.array(labels, np.int64)), chosen, 0), result


@lowers("ZipMap", domain=ML)
def zip_map(node: Node) -> Any:
    """Return a map from classes to scores for each row."""
    several = [node.attr(name) for name in ("classlabels_strings", "classlabels_int64s")]
    keys = [each for each in several if each]
    if len(keys) != 1:
        raise node.error("it needs classes as strings or as integers, and not both")
    columns = node.shape()[-1] if node.rank() else 0
    if node.rank() not in (1, 2) or columns != len(keys[0]):
        raise node.error(f"{len(keys[0])} classes do not fit scores of the shape {node.shape()}")
    return Maps(
        tuple(keys[0]),
        reshaped(node, node.raw(0), (node.shape()[0] if node.rank() == 2 else 1, columns)),
    )


@lowers("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node) -> Tensor:
    """Join features as columns."""
    parts = [cast(node[n], "float32") for n in range(len(node.inputs))]
    return weft.concat([weft.reshape(p, (p.axes.shape[0], -1)) for p in parts], 1)
