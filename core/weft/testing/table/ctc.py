"""Rows of the op table: connectionist temporal classification."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FIXED, C, N, Operand, Refusal, Row, Shapes


def _collapsed(path: Sequence[int], blank: int) -> tuple[int, ...]:
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def _loss(logarithms: Array, labels: Array, blank: int) -> Any:
    """Return the negative logarithm of the sum over all paths for the labels."""
    times, classes = logarithms.shape
    total = sum(
        np.exp(sum(logarithms[time, label] for time, label in enumerate(path)))
        for path in itertools.product(range(classes), repeat=times)
        if _collapsed(path, blank) == tuple(labels)
    )
    return -np.log(total) if total else np.inf


def _losses(x: Array, labels: Array, times: Any = (), counts: Any = (), blank: int = 0) -> Any:
    samples = range(x.shape[1])
    times = times or [len(x)] * len(samples)
    counts = counts or [labels.shape[1]] * len(samples)
    return np.array(
        [_loss(x[: times[n], n], labels[n][: counts[n]], blank) for n in samples], x.dtype
    )


def _each(
    x: TensorOp, labels: TensorOp, inputs: Any = None, counts: Any = None, **options: Any
) -> Any:
    """Return the losses for labels from 1."""
    return weft.ctc_loss(x, labels + 1, inputs, counts, reduction="none", **options)


_TIMES, _COUNTS = [4, 3, 0, 2], [2, 0, 0, 1]
_SHAPES: Shapes = (
    ((4, 2, 3), (2, 2)), ((2, 1, 3), (1, 1)), ((3, 2, 3), (2, 0)), ((4, 0, 3), (0, 1)),
)  # fmt: skip
_MIXED: Shapes = (((4, 4, 3), (4, 2)),)
_LABELS = Operand("unit", dtype="int32", differentiable=False)
_OPERANDS = (Operand(), _LABELS)

ROWS: tuple[Row, ...] = (
    Row("ctc_loss", _each, _OPERANDS, _SHAPES, twice=True,
        expected=lambda x, labels: _losses(x, labels + 1)),
    Row("ctc_loss", lambda x, labels: _each(x, labels, _TIMES, _COUNTS), _OPERANDS, _MIXED,
        expected=lambda x, labels: _losses(x, labels + 1, _TIMES, _COUNTS), case="lengths",
        twice=True),
    Row("ctc_loss", lambda x, labels: weft.ctc_loss(
            x, labels + 1, _TIMES, _COUNTS, reduction="sum"), (FIXED, _LABELS), _MIXED, case="sum",
        expected=lambda x, labels: _losses(x, labels + 1, _TIMES, _COUNTS).sum()),
    Row("ctc_loss", lambda x, labels: weft.ctc_loss(weft.log_softmax(x), labels, blank=2),
        _OPERANDS, _SHAPES[:2], case="mean", expected=lambda x, labels: (_losses(
            x - np.log(np.exp(x).sum(axis=-1, keepdims=True)), labels, blank=2) / 2).mean()),
    Row("ctc_loss", lambda x, labels: _each(x, labels * 0), _OPERANDS, (((4, 1, 3), (1, 2)),),
        case="repeats", twice=True, expected=lambda x, labels: _losses(x, labels * 0 + 1)),
    Row("ctc_loss", partial(_each, zero_infinity=True), _OPERANDS,
        (((1, 2, 3), (2, 2)), ((0, 2, 3), (2, 1))), case="zero-infinity", twice=True,
        expected=lambda x, labels: np.zeros(2)),
    Row("ctc_loss", lambda x, labels: _each(x, labels, [9, -1], [3, 0]), (FIXED, _LABELS),
        (((2, 2, 3), (2, 2)),), case="beyond", expected=lambda x, labels: np.array([np.inf, 0])),
)  # fmt: skip

_X, _CLASSES = weft.placeholder((4, 2, 5)), weft.placeholder((2, 3), "int32")

REFUSALS: tuple[Refusal, ...] = (
    Refusal("ctc_loss", "rank", lambda: weft.ctc_loss(weft.placeholder((4, 5)), _CLASSES),
            AxesError, r"takes \(T, N, C\)"),
    Refusal("ctc_loss", "time", lambda: weft.ctc_loss(weft.placeholder([N, C]), _CLASSES),
            AxesError, "no axis left for time: pass time="),
    Refusal("ctc_loss", "samples", lambda: weft.ctc_loss(_X, weft.placeholder((3, 2), "int32")),
            AxesError, "labels has"),
    Refusal("ctc_loss", "fractions", lambda: weft.ctc_loss(_X, weft.placeholder((2, 3))),
            DTypeError, "integers, not float32"),
    Refusal("ctc_loss", "lengths", lambda: weft.ctc_loss(_X, _CLASSES, [4, 4, 4]), AxesError,
            "input_lengths"),
    Refusal("ctc_loss", "blank", lambda: weft.ctc_loss(_X, _CLASSES, blank=5), AxesError,
            "blank 5"),
    Refusal("ctc_loss", "blank-name", lambda: weft.ctc_loss(_X, _CLASSES, blank="-"), ArgumentError,
            "blank must be"),
    Refusal("ctc_loss", "reduction", lambda: weft.ctc_loss(_X, _CLASSES, reduction="median"),
            ArgumentError, "'mean', 'sum', 'none'"),
)  # fmt: skip
