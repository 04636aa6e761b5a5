"""Rows of the op table: elementwise losses, and losses of vectors along an axis."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.testing.table.losses import binary_entropy, logistic
from weft.testing.table.rows import C, H, N, Operand, Refusal, Row, Shapes, operands


def _huber(x: Array, t: Array, delta: float) -> Any:
    distance = np.abs(x - t)
    return np.where(distance <= delta, distance**2 / 2, delta * (distance - delta / 2))


def _poisson_full(x: Array, t: Array) -> Any:
    stirling = t * np.log(t) - t + np.log(2 * np.pi * t) / 2
    return np.exp(x) - t * x + np.where(t > 1, stirling, 0)


def _focal(x: Array, t: Array, alpha: float, gamma: float) -> Any:
    y = logistic(x)
    wrong = (1 - y) * t + y * (1 - t)
    return binary_entropy(y, t) * wrong**gamma * (alpha * t + (1 - alpha) * (1 - t))


_PAIRED: dict[str, dict[str, tuple[tuple[str, str], dict[str, Any], Callable[..., Any]]]] = {
    "mse_loss": {"": (("any", "any"), {}, lambda x, t: (x - t) ** 2)},
    "l1_loss": {"": (("distinct", "distinct"), {}, lambda x, t: np.abs(x - t))},
    "huber_loss": {
        "": (("any", "any"), {}, lambda x, t: _huber(x, t, 1)),
        "delta": (("any", "any"), {"delta": 0.25}, lambda x, t: _huber(x, t, 0.25)),
        "zero": (("distinct", "distinct"), {"delta": 0}, lambda x, t: x * 0),
    },
    "smooth_l1_loss": {
        "": (("any", "any"), {}, lambda x, t: _huber(x, t, 1)),
        "beta": (("any", "any"), {"beta": 2.5}, lambda x, t: _huber(x, t, 2.5) / 2.5),
        "zero": (("distinct", "distinct"), {"beta": 0}, lambda x, t: np.abs(x - t)),
    },
    "poisson_nll_loss": {
        "": (("any", "positive"), {}, lambda x, t: np.exp(x) - t * x),
        "rates": (("positive", "positive"), {"log_input": False},
                  lambda x, t: x - t * np.log(x + 1e-8)),
        "full": (("any", "positive"), {"full": True}, _poisson_full),
    },
    "hinge_loss": {
        "": (("any", "nonzero"), {}, lambda x, t: np.maximum(0, 1 - t * x)),
        "margin": (("any", "nonzero"), {"margin": 0.3}, lambda x, t: np.maximum(0, 0.3 - t * x)),
    },
    "binary_cross_entropy": {"": (("unit", "unit"), {}, binary_entropy)},
    "binary_cross_entropy_with_logits": {
        "": (("distinct", "unit"), {}, lambda x, t: binary_entropy(logistic(x), t)),
        "pos-weight": (("any", "unit"), {"pos_weight": 3}, lambda x, t: binary_entropy(
            logistic(x), t) - 2 * t * np.log(logistic(x))),
        "weights": (("distinct", "unit"), {"weights": 0.5},
                    lambda x, t: binary_entropy(logistic(x), t) / 2),
    },
    "sigmoid_focal_loss": {
        "": (("distinct", "unit"), {}, lambda x, t: _focal(x, t, 0.25, 2)),
        "gamma": (("distinct", "unit"), {"alpha": None, "gamma": 0.5},
                  lambda x, t: 2 * _focal(x, t, 0.5, 0.5)),
        "plain": (("distinct", "unit"), {"alpha": 0.5, "gamma": 0},
                  lambda x, t: binary_entropy(logistic(x), t) / 2),
    },
    "kl_div": {
        "": (("any", "unit"), {}, lambda x, t: t * (np.log(t) - x)),
        "logarithms": (("any", "any"), {"log_target": True}, lambda x, t: np.exp(t) * (t - x)),
    },
}  # fmt: skip
"""By function and case: domains of predictions and targets, options, and the NumPy loss."""

_SAME: Shapes = (
    ((3, 4), (3, 4)), ((), ()), ((5,), ()), ((1, 1), (1, 1)), ((2, 0), (2, 0)), ((H, C), (C, H)),
)  # fmt: skip


def _paired_rows() -> list[Row]:
    rows = []
    for name, cases in _PAIRED.items():
        loss = getattr(weft, name)
        for case, (domains, options, expected) in cases.items():
            rows.append(
                Row(name, partial(loss, reduction="none", **options), operands(*domains), _SAME,
                    expected=expected, case=case, twice=True)
            )  # fmt: skip
        domains, _, expected = cases[""]
        rows += [
            Row(name, partial(loss, reduction=reduction), operands(*domains), _SAME[:1],
                expected=lambda x, t, e=expected, r=reduce: r(e(x, t)), case=reduction)
            for reduction, reduce in (("mean", np.mean), ("sum", np.sum))
        ]  # fmt: skip
    return rows


def _cosine(x: Array, y: Array, axis: Any = -1) -> Any:
    lengths = np.sqrt((x * x).sum(axis=axis) * (y * y).sum(axis=axis))
    return (x * y).sum(axis=axis) / lengths


def _embedded(x: Array, y: Array, t: Array, margin: float) -> Any:
    cosine = _cosine(x, y)
    return np.where(t > 0, 1 - cosine, np.maximum(0, cosine - margin))


def _triplets(a: Array, b: Array, c: Array, p: float, margin: float) -> Any:
    near, far = (np.linalg.norm(a - other, p, axis=-1) for other in (b, c))
    return np.maximum(0, near - far + margin)


def _dice(y: Array, t: Array, axis: Any, epsilon: float) -> Any:
    sizes = y.sum(axis=axis) + t.sum(axis=axis)
    return 1 - (2 * (y * t).sum(axis=axis) + epsilon) / (sizes + epsilon)


_TRIPLES = operands("any", "any", "distinct")
_MATCHES = (*operands("any", "nonzero"), Operand("nonzero", differentiable=False))

_VECTOR_ROWS = (
    Row("cosine_similarity", weft.cosine_similarity, operands("any", "nonzero"),
        (((3, 4), (3, 4)), ((4,), (4,)), ((2, 1, 3), (4, 3)), ((0, 3), (0, 3))), twice=True,
        expected=_cosine),
    Row("cosine_similarity", lambda x, y: weft.cosine_similarity(x, y, "C"), operands("any", "any"),
        (((H, C), (C, H)), ((C,), (C, N))), expected=lambda x, y: _cosine(x, y.T), case="named"),
    Row("cosine_similarity", lambda x, y: weft.cosine_similarity(x, y, (0, 2)),
        operands("any", "any"), (((2, 3, 2), (2, 3, 2)),), case="axes",
        expected=lambda x, y: _cosine(x, y, (0, 2))),
    Row("cosine_similarity", lambda x, y: weft.cosine_similarity(x * 0, y, epsilon=0.1),
        operands("any", "any"), (((3, 4), (3, 4)),), expected=lambda x, y: x[:, 0] * 0,
        case="zeros"),
    Row("cosine_embedding_loss", partial(weft.cosine_embedding_loss, margin=0.1, reduction="none"),
        _MATCHES, (((4, 3), (4, 3), (4,)), ((3,), (3,), ()), ((2, 3), (2, 3), ())), twice=True,
        expected=partial(_embedded, margin=0.1)),
    Row("cosine_embedding_loss", partial(weft.cosine_embedding_loss, axis=C), _MATCHES,
        (((N, C), (N, C), (N,)),), expected=lambda x, y, t: _embedded(x, y, t, 0).mean(),
        case="named"),
    *(
        Row("triplet_loss", partial(weft.triplet_loss, margin=3.0, p=p, reduction="none"),
            _TRIPLES, (((3, 4),) * 3, ((4,),) * 3), expected=partial(_triplets, p=p, margin=3.0),
            case=f"norm-{p}", twice=p == 2)
        for p in (1, 2, 3, np.inf)
    ),
    Row("triplet_loss", lambda x, y: weft.triplet_loss(x, x, y, axis="C"), operands("any", "any"),
        (((N, C), (N, C)),), case="same", twice=True,
        expected=lambda x, y: np.maximum(0, 1 - np.linalg.norm(x - y, axis=1)).mean()),
    Row("dice_loss", weft.dice_loss, operands("unit", "unit"), _SAME, twice=True,
        expected=lambda y, t: _dice(y, t, (0, 1), 1)),
    Row("dice_loss", partial(weft.dice_loss, axes=(1, 2), epsilon=0.5), operands("unit", "unit"),
        (((2, 3, 4), (2, 3, 4)),), expected=lambda y, t: _dice(y, t, (1, 2), 0.5).mean(),
        case="axes"),
    Row("dice_loss", partial(weft.dice_loss, reduction="none"), operands("unit", "unit"),
        (((N, C, H), (N, C, H)),), expected=lambda y, t: _dice(y, t, (1, 2), 1), case="named"),
    Row("gaussian_nll_loss", partial(weft.gaussian_nll_loss, reduction="none"),
        operands("any", "any", "positive"), (((3, 4),) * 3, ((3, 4), (3, 4), (3, 1)),
        ((), (), ()), ((H, C), (C, H), (C,))), twice=True,
        expected=lambda x, t, v: (np.log(v) + (x - t) ** 2 / v) / 2),
    Row("gaussian_nll_loss", lambda x, t: weft.gaussian_nll_loss(x, t, 0, True, 0.5),
        operands("any", "any"), _SAME[:1], case="full",
        expected=lambda x, t: (x - t).var() + (x - t).mean() ** 2 + np.log(np.pi) / 2),
    Row("binary_cross_entropy", lambda x, t, w: weft.binary_cross_entropy(weft.sigmoid(x), t, w),
        operands("distinct", "unit", "positive"), (((3, 4), (3, 4), (4,)), ((H, C), (C, H), (C,))),
        expected=lambda x, t, w: (binary_entropy(logistic(x), t) * w).mean(), case="weights"),
    Row("binary_cross_entropy_with_logits", lambda x, t: weft.binary_cross_entropy_with_logits(
            x * 1000, t, pos_weight=2.0, reduction="none"), (Operand("distinct",
            differentiable=False), Operand("unit", differentiable=False)), _SAME[:1], case="large",
        expected=lambda x, t: 1000 * np.where(x > 0, (1 - t) * x, -2 * t * x), is_generic=False),
    Row("sigmoid_focal_loss", lambda x, t: weft.sigmoid_focal_loss(
            x * 1000, weft.cast(weft.greater(x, 0), x.dtype) + t * 0, gamma=0.5),
        operands("distinct", "any"), _SAME[:1], case="certain", is_generic=False,
        expected=lambda x, t: 0.0),
    Row("kl_div", partial(weft.kl_div, reduction="batchmean"), operands("any", "unit"),
        (((3, 4), (3, 4)), ((C, N), (C, N)), ((4,), (4,))), case="batchmean",
        expected=lambda x, t: (t * (np.log(t) - x)).sum() / 3),
    Row("kl_div", lambda x, t: weft.kl_div(x, weft.maximum(t, 0), reduction="none"),
        operands("any", "distinct"), _SAME[:1], case="zeros",
        expected=lambda x, t: np.where(t > 0, t * (np.log(np.abs(t)) - x), 0)),
)  # fmt: skip

ROWS: tuple[Row, ...] = (*_paired_rows(), *_VECTOR_ROWS)

_X, _VECTOR = weft.placeholder((3, 4)), weft.placeholder((3,))
_COMPLEX = weft.placeholder((3, 4), "complex64")

_REFUSED: tuple[tuple[str, str, Callable[[], Any], type[Any], str], ...] = (
    *((name, "shapes", partial(getattr(weft, name), _X, _VECTOR), AxesError, "same axes")
      for name in (*_PAIRED, "dice_loss")),
    *((name, "reduction", partial(getattr(weft, name), _X, _X, reduction="most"), ArgumentError,
       "'mean', 'sum', 'none'") for name in _PAIRED),
    *((name, "complex", partial(getattr(weft, name), _COMPLEX, _X), DTypeError, "complex64")
      for name in _PAIRED),
    ("binary_cross_entropy", "weights", lambda: weft.binary_cross_entropy(_X, _X, _VECTOR),
     AxesError, "cannot be broadcast"),
    ("binary_cross_entropy_with_logits", "weights", lambda:
     weft.binary_cross_entropy_with_logits(_X, _X, _VECTOR), AxesError, "pos_weight"),
    ("huber_loss", "delta", lambda: weft.huber_loss(_X, _X, -1), ArgumentError, "delta"),
    ("smooth_l1_loss", "beta", lambda: weft.smooth_l1_loss(_X, _X, "1"), ArgumentError, "beta"),
    ("hinge_loss", "margin", lambda: weft.hinge_loss(_X, _X, np.nan), ArgumentError, "margin"),
    ("poisson_nll_loss", "epsilon", lambda: weft.poisson_nll_loss(_X, _X, epsilon=-1),
     ArgumentError, "epsilon"),
    ("gaussian_nll_loss", "variance", lambda: weft.gaussian_nll_loss(_X, _X, _VECTOR), AxesError,
     "the variance"),
    ("gaussian_nll_loss", "shapes", lambda: weft.gaussian_nll_loss(_X, _VECTOR, 1), AxesError,
     "same axes"),
    ("sigmoid_focal_loss", "alpha", lambda: weft.sigmoid_focal_loss(_X, _X, 2), ArgumentError,
     "alpha"),
    ("cosine_similarity", "shapes", lambda: weft.cosine_similarity(_X, _VECTOR), AxesError,
     "do not broadcast"),
    ("cosine_similarity", "axis", lambda: weft.cosine_similarity(_X, _X, 2), AxesError, "range"),
    ("cosine_embedding_loss", "targets", lambda: weft.cosine_embedding_loss(_X, _X, _X), AxesError,
     "the targets has"),
    ("triplet_loss", "shapes", lambda: weft.triplet_loss(_X, _X, _VECTOR), AxesError, "same axes"),
    ("triplet_loss", "order", lambda: weft.triplet_loss(_X, _X, _X, p=0), ArgumentError, "p must"),
    ("dice_loss", "axes", lambda: weft.dice_loss(_X, _X, axes=(0, 0)), AxesError, "twice"),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(Refusal(*each) for each in _REFUSED)
