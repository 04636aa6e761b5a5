"""Rows of the op table: softmax functions, cross entropies, and losses of labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    FIXED,
    MATRIX,
    TWO,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    fixed,
    operands,
)


def _softmax(x: Array, axis: Any) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _entropy(y: Array, t: Array, axis: Any) -> Any:
    return -(t * np.log(y)).sum(axis=axis)


def binary_entropy(y: Array, t: Array) -> Any:
    """Return the binary cross entropy of probabilities y and t."""
    return -(t * np.log(y) + (1 - t) * np.log(1 - y))


def logistic(x: Array) -> Any:
    """Return the probability of logits."""
    return 1 / (1 + np.exp(-x))


_LOGITS = operands("any", "shares")
_PAIR: Shapes = (((3, 4), (3, 4)),)
_NAMED_PAIR: Shapes = (((C, H), (C, H)), ((C, N), (C, N)))


def _masked_softmax(x: Array, mask: Array, axis: int = -1) -> Any:
    powers = np.where(mask, np.exp(x), 0)
    total = powers.sum(axis=axis, keepdims=True)
    return np.where(mask, powers / np.where(total == 0, 1, total), 0)


_PROBABILITIES = (
    Row("softmax", weft.softmax, shapes=(((2, 3),), ((4,),), ((1, 1),), ((2, 3, 1, 2, 2),)),
        expected=lambda x: _softmax(x, -1), twice=True),
    Row("softmax", lambda x: weft.softmax(x, (0, 2)), shapes=(((2, 3, 4),), ((1, 0, 2),)),
        expected=lambda x: _softmax(x, (0, 2)), case="several-axes", twice=True),
    Row("softmax", weft.softmax, shapes=(((C, N),), ((H, C),)),
        expected=lambda x: _softmax(x, 0), case="named"),
    Row("softmax", lambda x: weft.softmax(x, normalization_axes=[C]), shapes=(((H, C),),),
        expected=lambda x: _softmax(x, 1), case="named-subset", twice=True),
    Row("softmax", lambda x: weft.softmax(x * 1000), shapes=MATRIX,
        expected=lambda x: _softmax(x * 1000, -1), case="large", operands=fixed("distinct")),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t), _LOGITS,
        (*_PAIR, *_NAMED_PAIR), expected=lambda x, t: _entropy(_softmax(x, -1), t, -1),
        case="softmax", twice=True),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t),
        operands("any", "positive"), _PAIR, case="softmax-unnormalized",
        expected=lambda x, t: _entropy(_softmax(x, -1), t, -1)),
    Row("cross_entropy_multi", weft.cross_entropy_multi, operands("unit", "shares"), _PAIR,
        expected=lambda y, t: _entropy(y, t, -1), case="probabilities"),
    Row("cross_entropy_multi", lambda y, t: weft.cross_entropy_multi(y, t, usebits=True),
        operands("unit", "shares"), _PAIR, case="bits",
        expected=lambda y, t: _entropy(y, t, -1) / np.log(2)),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(
            weft.softmax(x), t, usebits=True, out_axes=(H,)), _LOGITS, _NAMED_PAIR[:1],
        expected=lambda x, t: _entropy(_softmax(x, (0, 1)), t, 0) / np.log(2), case="out-axes"),
    Row("cross_entropy_binary_inner",
        lambda x, t: weft.cross_entropy_binary_inner(weft.sigmoid(x), t),
        operands("distinct", "unit"), TWO[:4], case="sigmoid",
        expected=lambda x, t: binary_entropy(logistic(x), t), twice=True),
    Row("cross_entropy_binary_inner", weft.cross_entropy_binary_inner, operands("unit", "unit"),
        TWO[:4], expected=binary_entropy, case="probabilities"),
    Row("cross_entropy_binary", lambda x, t: weft.cross_entropy_binary(weft.sigmoid(x), t),
        operands("distinct", "unit"), _PAIR,
        expected=lambda x, t: binary_entropy(logistic(x), t).sum(), case="sigmoid"),
    Row("cross_entropy_binary", lambda y, t: weft.cross_entropy_binary(y, t, out_axes=(H,)),
        operands("unit", "unit"), (((C, H), (C, H)),),
        expected=lambda y, t: binary_entropy(y, t).sum(axis=0), case="out-axes"),
)  # fmt: skip

_MASK = Operand(dtype="bool", differentiable=False)

_SOFTMAX_KIN = (
    Row("log_softmax", weft.log_softmax, shapes=(((2, 3),), ((4,),), ((), ), ((2, 3, 1, 2, 2),)),
        expected=lambda x: np.log(_softmax(x, -1)), twice=True),
    Row("log_softmax", lambda x: weft.log_softmax(x, (0, 2)), shapes=(((2, 3, 4),), ((1, 0, 2),)),
        expected=lambda x: np.log(_softmax(x, (0, 2))), case="several-axes", twice=True),
    Row("log_softmax", weft.log_softmax, shapes=(((C, N),), ((H, C),)),
        expected=lambda x: np.log(_softmax(x, 0)), case="named"),
    Row("log_softmax", lambda x: weft.log_softmax(x * 1000 + 5000), fixed("distinct"), MATRIX,
        expected=lambda x: (x - x.max(axis=-1, keepdims=True)) * 1000, case="large",
        is_generic=False),
    Row("softmin", weft.softmin, shapes=(((2, 3),), ((C, N),)),
        expected=lambda x: _softmax(-x, -1), twice=True),
    Row("softmin", lambda x: weft.softmin(x, 0), fixed("any"), MATRIX, ("int32",),
        lambda x: _softmax(-x.astype(np.float32), 0), case="integers"),
    Row("masked_softmax", weft.masked_softmax, (Operand(), _MASK),
        (((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((3,), (2, 1)), ((H, C), (C,))),
        expected=_masked_softmax, twice=True),
    Row("masked_softmax", lambda x, mask: weft.masked_softmax(
            weft.where(mask, x, np.nan), mask, 0), (Operand(), _MASK), (((3, 4), (3, 4)),),
        expected=lambda x, mask: _masked_softmax(x, mask, 0), case="nan", twice=True),
    Row("masked_softmax", lambda x: weft.masked_softmax(x, np.zeros(4, bool)), operands("any"),
        MATRIX, expected=lambda x: x * 0, case="nothing"),
)  # fmt: skip


def _of_labels(x: Array, labels: Array, axis: int = -1) -> Any:
    return -np.take_along_axis(x, np.expand_dims(labels, axis), axis).squeeze(axis)


def _log_softmax(x: Array, axis: int = -1) -> Any:
    return np.log(_softmax(x, axis))


def _weighted_mean(losses: Any, weights: Any) -> Any:
    return (losses * weights).sum() / weights.sum()


def _counting(labels: Any) -> Any:
    """Return the weights of labels, with 2 ignored."""
    return np.where(labels == 2, 0.0, 1.0)


def _smoothed(x: Array, labels: Array, weights: Array, smoothing: float) -> Any:
    even = -(_log_softmax(x) * weights).mean(axis=-1)
    losses = _of_labels(_log_softmax(x), labels) * weights[labels]
    return (1 - smoothing) * losses + smoothing * even


def _margins(x: Array, labels: Array, p: int, margin: float) -> Any:
    losses = np.zeros(labels.shape, x.dtype)
    for place, label in np.ndenumerate(labels):
        others = np.delete(x[place], label)
        losses[place] = (np.maximum(0, margin - x[place][label] + others) ** p).sum() / x.shape[-1]
    return losses


_LABELS = Operand("shares", dtype="int32", differentiable=False)
_LABELED = (Operand(), _LABELS)
_WEIGHED = (Operand(), _LABELS, Operand("positive"))
_CLASSES: Shapes = (
    ((3, 4), (3,)), ((4,), ()), ((2, 1, 5), (2, 1)), ((0, 4), (0,)), ((C, N), (N,)),
    ((N, C, H), (H, N)),
)  # fmt: skip
_THREE: Shapes = (((3, 4), (3,), (4,)),)

_LABEL_ROWS = (
    Row("nll_loss", partial(weft.nll_loss, reduction="none"), _LABELED, _CLASSES,
        expected=_of_labels, twice=True),
    Row("nll_loss", weft.nll_loss, _LABELED, _CLASSES[:1], case="mean",
        expected=lambda x, labels: _of_labels(x, labels).mean()),
    Row("nll_loss", partial(weft.nll_loss, axis=1, reduction="sum"), _LABELED,
        (((2, 4, 3), (2, 3)),), case="axis",
        expected=lambda x, labels: _of_labels(x, labels, 1).sum()),
    Row("nll_loss", lambda x, labels, weights: weft.nll_loss(x, labels, weights, 2), _WEIGHED,
        (((5, 4), (5,), (4,)), ((N, C), (N,), (C,)), ((3, 4), (3,), ())), case="weights",
        expected=lambda x, labels, weights: _weighted_mean(
            _of_labels(x, labels), weights[labels] * _counting(labels))),
    Row("nll_loss", lambda x, labels: weft.nll_loss(
            x, weft.where(weft.equal(labels, 2), -100, labels), ignore_index=-100,
            reduction="none"), _LABELED, (((5, 4), (5,)),), case="ignored",
        expected=lambda x, labels: _of_labels(x, labels) * _counting(labels)),
    Row("nll_loss", lambda x, labels: weft.nll_loss(x, labels * 0, ignore_index=0), (
            FIXED, _LABELS), (((5, 4), (5,)),), case="nothing",
        expected=lambda x, labels: np.nan),
    Row("cross_entropy", partial(weft.cross_entropy, reduction="none"), _LABELED, _CLASSES,
        expected=lambda x, labels: _of_labels(_log_softmax(x), labels), twice=True),
    Row("cross_entropy", partial(weft.cross_entropy, axis=0), _LABELED, (((4, 3), (3,)),),
        expected=lambda x, labels: _of_labels(_log_softmax(x, 0), labels, 0).mean(), case="axis"),
    Row("cross_entropy", lambda x, labels, weights: weft.cross_entropy(
            x, labels, weights, 2, 0.25), _WEIGHED, (((5, 4), (5,), (4,)),), case="smooth",
        twice=True, expected=lambda x, labels, weights: (
            _smoothed(x, labels, weights, 0.25) * _counting(labels)).sum()
        / (weights[labels] * _counting(labels)).sum()),
    Row("cross_entropy", partial(weft.cross_entropy, label_smoothing=0.5, reduction="sum"),
        _LABELED, (((3, 4), (3,)),), case="smooth-sum",
        expected=lambda x, labels: _smoothed(x, labels, np.ones(4), 0.5).sum()),
    Row("cross_entropy", lambda x, labels: weft.cross_entropy(x * 1000, labels), (
            Operand("distinct", differentiable=False), _LABELS), _CLASSES[:1], case="large",
        expected=lambda x, labels: (x.max(axis=-1) + _of_labels(x, labels)).mean() * 1000,
        is_generic=False),
    Row("cross_entropy", partial(weft.cross_entropy, reduction="none"), operands("any", "shares"),
        (((3, 4), (3, 4)), ((4,), (4,)), ((C, N), (N, C))), case="shares", twice=True,
        expected=lambda x, t: _entropy(_softmax(x, -1), t, -1)),
    Row("cross_entropy", lambda x, t, weights: weft.cross_entropy(
            x, t, weights, label_smoothing=0.5), operands("any", "positive", "positive"),
        (((3, 4), (3, 4), (4,)), ((C, N), (C, N), (C,))), case="shares-weights",
        expected=lambda x, t, weights: _entropy(
            _softmax(x, -1), (t / 2 + 1 / 8) * weights, -1).mean()),
    *(
        Row("multi_margin_loss", partial(weft.multi_margin_loss, p=p, margin=margin,
                reduction="none"), _LABELED, _CLASSES, case=f"power-{p}",
            expected=partial(_margins, p=p, margin=margin), twice=True)
        for p, margin in ((1, 1.0), (2, 0.3))
    ),
    Row("multi_margin_loss", lambda x, labels, weights: weft.multi_margin_loss(
            x, labels, weights=weights), _WEIGHED, _THREE,
        expected=lambda x, labels, weights: (_margins(x, labels, 1, 1.0) * weights[labels]).mean()),
)  # fmt: skip


ROWS: tuple[Row, ...] = (*_PROBABILITIES, *_SOFTMAX_KIN, *_LABEL_ROWS)

_X, _VECTOR = weft.placeholder((3, 4)), weft.placeholder((3,))
_NAMED = weft.placeholder([H, N])
_COMPLEX = weft.placeholder((3, 4), "complex64")
_CLASS = weft.placeholder((3,), "int32")
_BY_LABEL = ("nll_loss", "cross_entropy", "multi_margin_loss")

_REFUSED: tuple[tuple[str, str, Callable[[], Any], type[Any], str], ...] = (
    *((name, "complex", partial(getattr(weft, name), _COMPLEX), DTypeError, "complex64")
      for name in ("softmax", "log_softmax", "softmin")),
    *((name, "axis", partial(getattr(weft, name), _X, 2), AxesError, "out of range")
      for name in ("softmax", "log_softmax", "softmin")),
    *((name, "labels", partial(getattr(weft, name), _X, weft.placeholder((4,), "int32")),
       AxesError, "the labels has") for name in _BY_LABEL),
    *((name, "axis", partial(getattr(weft, name), _NAMED, _CLASS), AxesError, "Say axis=")
      for name in _BY_LABEL),
    *((name, "weights", partial(getattr(weft, name), _X, _CLASS, weights=_VECTOR), AxesError,
       "the weights has") for name in _BY_LABEL),
    ("masked_softmax", "mask", lambda: weft.masked_softmax(_X, _X), DTypeError, "must be bool"),
    ("masked_softmax", "shapes", lambda: weft.masked_softmax(_X, weft.greater(_VECTOR, 0)),
     AxesError, "do not broadcast"),
    ("nll_loss", "fractions", lambda: weft.nll_loss(_X, _VECTOR), DTypeError, "integers"),
    ("nll_loss", "ignore", lambda: weft.nll_loss(_X, _CLASS, ignore_index=0.5), ArgumentError,
     "ignore_index"),
    ("cross_entropy", "bool", lambda: weft.cross_entropy(_X, weft.placeholder((3,), "bool")),
     DTypeError, "integers"),
    ("cross_entropy", "ignore", lambda: weft.cross_entropy(_X, _X, ignore_index=0), ArgumentError,
     "for labels"),
    ("cross_entropy", "smoothing", lambda: weft.cross_entropy(_X, _CLASS, label_smoothing=2),
     ArgumentError, "from 0 to 1"),
    ("cross_entropy", "shares", lambda: weft.cross_entropy(_X, _VECTOR), DTypeError,
     "labels must be integers, not float32: cast"),
    ("cross_entropy", "shapes", lambda: weft.cross_entropy(_X, weft.placeholder((4, 3))), AxesError,
     "same axes"),
    ("cross_entropy", "named", lambda: weft.cross_entropy(weft.placeholder([C, N, H]),
     weft.placeholder([H, N])), DTypeError, "labels must be integers"),
    *((name, "swapped", partial(getattr(weft, name), _CLASS, _X), DTypeError,
       "labels are the second argument") for name in _BY_LABEL),
    *((name, "range", partial(getattr(weft, name), _X, [0, 4, 1]), IndexOutOfRange,
       r"label 4 at \(1,\) is out of range for 4 classes") for name in _BY_LABEL),
    *((name, "negative", partial(getattr(weft, name), _X, [0, 1, -1]), IndexOutOfRange,
       r"label -1 at \(2,\) is out of range for 4 classes") for name in _BY_LABEL),
    ("multi_margin_loss", "power", lambda: weft.multi_margin_loss(_X, _CLASS, 0), ArgumentError,
     "p must be"),
    ("cross_entropy_multi", "shapes", lambda: weft.cross_entropy_multi(_X, _VECTOR), AxesError,
     "must have the same axes"),
    ("cross_entropy_binary_inner", "shapes", lambda: weft.cross_entropy_binary_inner(_X, _VECTOR),
     AxesError, "must have the same axes"),
    ("cross_entropy_binary", "shapes", lambda: weft.cross_entropy_binary(_X, _VECTOR), AxesError,
     "must have the same axes"),
    ("cross_entropy_binary", "axes", lambda: weft.cross_entropy_binary(_X, _X, out_axes="C"),
     AxesError, "unknown axis|cannot be made"),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(Refusal(*each) for each in _REFUSED)
