"""Definitions of recurrent networks and of linear models, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np
from onnx_definitions import Attributes, Definition


def normalizer(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Divide rows by their maximum, or by the norm; the evaluator takes another maximum."""
    (x,) = operands
    norm = {
        "MAX": x.max(-1, keepdims=True), "L1": np.abs(x).sum(-1, keepdims=True),
        "L2": np.sqrt((x**2).sum(-1, keepdims=True)),
    }[attributes.get("norm", "MAX")]  # fmt: skip
    return [x / np.where(norm == 0, 1, norm)]


def _probit(x: Any) -> Any:
    normal = NormalDist()
    return np.vectorize(lambda p: normal.inv_cdf(p) if 0 < p < 1 else np.nan)(x)


def _transformed(x: Any, how: str) -> Any:
    """Return scores after a post_transform."""
    if how == "SOFTMAX_ZERO":
        e = np.where(x == 0, 0, np.exp(x))
        return e / np.where(e.sum(-1, keepdims=True) == 0, 1, e.sum(-1, keepdims=True))
    return {
        "NONE": lambda: x, "LOGISTIC": lambda: 1 / (1 + np.exp(-x)), "PROBIT": lambda: _probit(x),
        "SOFTMAX": lambda: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    }[how]()  # fmt: skip


def linear(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
    """Return the classes and scores, or the targets, of a linear model."""
    (x,) = operands
    weights = np.array(attributes["coefficients"]).reshape(-1, x.shape[1])
    scores = x @ weights.T + np.array(attributes.get("intercepts", [0.0]))
    names = attributes.get("classlabels_strings", attributes.get("classlabels_ints"))
    if names and scores.shape[1] == 1:
        scores = np.concatenate([-scores, scores], 1)
    found = _transformed(scores, attributes.get("post_transform", "NONE")).astype(np.float32)
    return [np.array(names)[scores.argmax(1)], found] if names else [found]


ACTIVATIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "thresholdedrelu": lambda x, a, b: np.where(x >= a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x >= 0, x, a * (np.exp(x) - 1)),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.log1p(np.exp(x)),
}
SCALES = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5), "elu": (1.0, 0.0),
}  # fmt: skip
"""Alpha and beta of activations where a node gives none."""


def recurrent(op: str) -> Definition:
    """Return the definition of a recurrent network, one sample and one step at a time."""
    default = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
    step = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[op]

    def run(opset: int, attributes: Attributes, operands: Sequence[Any]) -> list[Any]:
        x, w, r, b, lengths, *states = operands
        peepholes = states.pop().astype(np.float64) if op == "LSTM" else np.zeros((2, 1))
        if attributes.get("layout", 0):
            x, *states = (np.swapaxes(each, 0, 1) for each in (x, *states))
        steps, batch, _ = x.shape
        hidden, directions = attributes["hidden_size"], w.shape[0]
        names = attributes.get("activations", default * directions)
        y = np.zeros((steps, directions, batch, hidden))
        last = np.zeros((len(states), directions, batch, hidden))
        for way, sample in product(range(directions), range(batch)):
            functions = [
                _activation(name.lower(), attributes.get("clip"))
                for name in names[way * len(default) : (way + 1) * len(default)]
            ]
            parts = (w[way], r[way], *np.split(b[way].astype(np.float64), 2), peepholes[way])
            length = steps if lengths is None else int(lengths[sample])
            places = list(range(length))
            is_reverse = attributes.get("direction") == "reverse" or way == 1
            state = [each[way, sample].astype(np.float64) for each in states]
            for at in reversed(places) if is_reverse else places:
                state = step(x[at, sample].astype(np.float64), state, parts, functions, attributes)
                y[at, way, sample] = state[0]
            for number, each in enumerate(state):
                last[number, way, sample] = each
        results = [y, *last]
        if attributes.get("layout", 0):
            results = [y.transpose(2, 0, 1, 3), *(each.swapaxes(0, 1) for each in last)]
        return [each.astype(np.float32) for each in results]

    return run


def _activation(name: str, limit: float | None) -> Callable[[Any], Any]:
    a, b = SCALES.get(name, (0.0, 0.0))
    if limit is None:
        return lambda x: ACTIVATIONS[name](x, a, b)
    return lambda x: ACTIVATIONS[name](np.clip(x, -limit, limit), a, b)


def _rnn(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    w, r, wb, rb, _ = parts
    return [functions[0](w @ x + r @ state[0] + wb + rb)]


def _gru(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    (f, g), (h,) = functions, state
    (wz, wr, wh), (rz, rr, rh), (wbz, wbr, wbh), (rbz, rbr, rbh) = (
        np.split(each, 3) for each in parts[:4]
    )
    z, reset = f(wz @ x + rz @ h + wbz + rbz), f(wr @ x + rr @ h + wbr + rbr)
    if attributes.get("linear_before_reset", 0):
        new = g(wh @ x + reset * (rh @ h + rbh) + wbh)
    else:
        new = g(wh @ x + rh @ (reset * h) + rbh + wbh)
    return [(1 - z) * new + z * h]


def _lstm(x: Any, state: Any, parts: Any, functions: Any, attributes: Attributes) -> list[Any]:
    (f, g, h), (hidden, cell) = functions, state
    w, r, wb, rb, peepholes = parts
    i, o, forget, c = np.split(w @ x + r @ hidden + wb + rb, 4)
    pi, po, pf = np.split(peepholes, 3)
    i = f(i + pi * cell)
    forget = 1 - i if attributes.get("input_forget", 0) else f(forget + pf * cell)
    cell = forget * cell + i * g(c)
    return [f(o + po * cell) * h(cell), cell]
