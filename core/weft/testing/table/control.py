"""Rows of the op table: checks and checkpoints, which keep values."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import ALL, FLOATS, NUMBERS, ONE, Refusal, Row, operands

_X = weft.placeholder((2, 3))


def _layers(x: TensorOp, y: TensorOp) -> Any:
    """Return layers in nested checkpoints."""
    first = weft.checkpoint(weft.tanh(x) * y, [x, y])
    second = weft.checkpoint(weft.sin(first) + weft.softmax(first), [first])
    return weft.checkpoint(weft.tanh(second) * first * x)


def _layers_in_numpy(x: Array, y: Array) -> Any:
    first = np.tanh(x) * y
    powers = np.exp(first - first.max(axis=-1, keepdims=True))
    second = np.sin(first) + powers / powers.sum(axis=-1, keepdims=True)
    return np.tanh(second) * first * x


ROWS = (
    Row("checkpoint", _layers, operands("any", "any"), (((2, 3), (2, 3)),), FLOATS,
        _layers_in_numpy, twice=True),
    Row("checkpoint", lambda x: weft.checkpoint(x, []), operands("any"), ONE, ALL, lambda x: x,
        case="of-nothing"),
    Row("assert_op", lambda x: weft.assert_op(x * 2, weft.greater(x + 9, 0), "too small"),
        operands("any"), ONE, NUMBERS, lambda x: x * 2),
    Row("check_finite", lambda x: weft.check_finite(x * 2), operands("any"), ONE, NUMBERS,
        lambda x: x * 2),
)  # fmt: skip

REFUSALS = (
    Refusal("checkpoint", "foreign", lambda: weft.checkpoint(_X + 1, [weft.placeholder(())]),
            ArgumentError, "does not depend on"),
    Refusal("assert_op", "number", lambda: weft.assert_op(_X, _X), DTypeError, "must be bool"),
    Refusal("assert_op", "python", lambda: weft.assert_op(_X, True), ArgumentError,
            "Python value"),
)  # fmt: skip
