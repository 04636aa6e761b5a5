"""Rows of the op table: softmax and the cross entropies."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.testing.table.rows import MATRIX, TWO, C, H, Refusal, Row, Shapes, fixed, operands


def _softmax(x: Any, axis: Any) -> Any:
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def _entropy(y: Any, t: Any, axis: Any) -> Any:
    return -(t * np.log(y)).sum(axis=axis)


def _binary_entropy(y: Any, t: Any) -> Any:
    return -(t * np.log(y) + (1 - t) * np.log(1 - y))


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_LOGITS = operands("any", "shares")
_PAIR: Shapes = (((3, 4), (3, 4)),)
_NAMED_PAIR: Shapes = (((C, H), (C, H)), ((C, weft.Axis(3, "N")), (C, weft.Axis(3, "N"))))

ROWS = (
    Row("softmax", weft.softmax, shapes=(((2, 3),), ((4,),), ((1, 1),), ((2, 3, 1, 2, 2),)),
        expected=lambda x: _softmax(x, -1), twice=True),
    Row("softmax", lambda x: weft.softmax(x, (0, 2)), shapes=(((2, 3, 4),), ((1, 0, 2),)),
        expected=lambda x: _softmax(x, (0, 2)), case="several-axes", twice=True),
    Row("softmax", weft.softmax, shapes=(((C, weft.Axis(3, "N")),), ((H, C),)),
        expected=lambda x: _softmax(x, 0), case="named"),
    Row("softmax", lambda x: weft.softmax(x, normalization_axes=[C]), shapes=(((H, C),),),
        expected=lambda x: _softmax(x, 1), case="named-subset", twice=True),
    Row("softmax", lambda x: weft.softmax(x * 1000), shapes=MATRIX,
        expected=lambda x: _softmax(x * 1000, -1), case="large", operands=fixed("distinct")),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t), _LOGITS,
        (*_PAIR, *_NAMED_PAIR), expected=lambda x, t: _entropy(_softmax(x, -1), t, -1),
        case="softmax", twice=True),
    Row("cross_entropy_multi", lambda x, t: weft.cross_entropy_multi(weft.softmax(x), t),
        operands("any", "positive"), _PAIR, case="softmax-unnormalised",
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
        expected=lambda x, t: _binary_entropy(_logistic(x), t), twice=True),
    Row("cross_entropy_binary_inner", weft.cross_entropy_binary_inner, operands("unit", "unit"),
        TWO[:4], expected=_binary_entropy, case="probabilities"),
    Row("cross_entropy_binary", lambda x, t: weft.cross_entropy_binary(weft.sigmoid(x), t),
        operands("distinct", "unit"), _PAIR,
        expected=lambda x, t: _binary_entropy(_logistic(x), t).sum(), case="sigmoid"),
    Row("cross_entropy_binary", lambda y, t: weft.cross_entropy_binary(y, t, out_axes=(H,)),
        operands("unit", "unit"), (((C, H), (C, H)),),
        expected=lambda y, t: _binary_entropy(y, t).sum(axis=0), case="out-axes"),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = ()
