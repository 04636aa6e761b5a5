"""Rows of the op table: learning-rate schedules."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import Operand, Refusal, Row

_STEP = Operand("index", dtype="int32", differentiable=False)


def _row(name: str, build: Any, expected: Any, case: str = "") -> Row:
    """Return a row for three steps, including step 0."""

    def several(step: TensorOp) -> Any:
        return weft.stack([build(at) for at in (step * 0, weft.absolute(step), step * 0 + 25)])

    def wanted(step: Array) -> Any:
        return np.array([expected(float(at)) for at in (0, abs(step), 25)])

    return Row(name, several, (_STEP,), (((),),), ("float32",), wanted, case, is_generic=False)


def _share(step: float, steps: float) -> float:
    return min(step / steps, 1)


ROWS: tuple[Row, ...] = (
    _row("step_decay", lambda x: weft.step_decay(x, 0.5, 2, 0.25),
         lambda x: 0.5 * 0.25 ** (x // 2)),
    _row("exponential_decay", lambda x: weft.exponential_decay(x, 0.5, 8),
         lambda x: 0.5 * 0.1 ** (x / 8)),
    _row("exponential_decay", lambda x: weft.exponential_decay(x, 2, 2, 0.5, True),
         lambda x: 2 * 0.5 ** (x // 2), "staircase"),
    _row("inverse_time_decay", lambda x: weft.inverse_time_decay(x, 0.5, 8, 3),
         lambda x: 0.5 / (1 + 3 * x / 8)),
    _row("inverse_time_decay", lambda x: weft.inverse_time_decay(x, 0.5, 2, staircase=True),
         lambda x: 0.5 / (1 + x // 2), "staircase"),
    _row("polynomial_decay", lambda x: weft.polynomial_decay(x, 0.5, 10),
         lambda x: 0.5 * (1 - _share(x, 10))),
    _row("polynomial_decay", lambda x: weft.polynomial_decay(x, 0.5, 10, 0.1, 2),
         lambda x: 0.1 + 0.4 * (1 - _share(x, 10)) ** 2, "squared"),
    _row("cosine_decay", lambda x: weft.cosine_decay(x, 0.5, 10, 0.1),
         lambda x: 0.1 + 0.2 * (1 + np.cos(np.pi * _share(x, 10)))),
    _row("piecewise_constant", lambda x: weft.piecewise_constant(x, [2, 3], [1, 0.5, 0.1]),
         lambda x: 1 if x < 2 else 0.5 if x < 3 else 0.1),
    _row("warm_up", lambda x: weft.warm_up(x, 0.5, 8, 0.2),
         lambda x: 0.5 * (0.2 + 0.8 * _share(x, 8))),
    _row("warm_up", lambda x: weft.warm_up(x, weft.step_decay(x, 0.5, 10), 8),
         lambda x: 0.5 * 0.1 ** (x // 10) * _share(x, 8), "of-schedule"),
)  # fmt: skip

_VECTOR, _BOOL = weft.placeholder((2,)), weft.placeholder((), "bool")
_PLAIN = ("step_decay", "exponential_decay", "inverse_time_decay", "polynomial_decay",
          "cosine_decay", "warm_up")  # fmt: skip


def _refusal(name: str, case: str, error: type[Any], words: str, *args: Any, **options: Any) -> Any:
    return Refusal(name, case, partial(getattr(weft, name), *args, **options), error, words)


REFUSALS: tuple[Refusal, ...] = (
    *(
        _refusal(name, *rest)
        for name in _PLAIN
        for rest in (
            ("step", AxesError, "step must be a scalar", _VECTOR, 0.1, 10),
            ("bool", DTypeError, "step must be a number, not bool", _BOOL, 0.1, 10),
            ("rate", ArgumentError, "rate must be a finite number of at least 0", 0, -0.1, 10),
            ("steps", ArgumentError, "steps must be more than 0", 0, 0.1, 0),
        )
    ),
    *(
        _refusal(name, "staircase", ArgumentError, "staircase must be True or False", 0, 1, 1,
                 staircase=1)
        for name in ("exponential_decay", "inverse_time_decay")
    ),
    _refusal("step_decay", "factor", ArgumentError, "factor must be more than 0", 0, 1, 1, 0),
    _refusal("warm_up", "schedule", AxesError, "a number or a scalar", 0, _VECTOR, 10),
    _refusal("warm_up", "start", ArgumentError, "start must be a finite number from 0 to 1", 0, 1,
             10, 2),
    _refusal("piecewise_constant", "count", ArgumentError, "one more rate", 0, [1], [1.0]),
    _refusal("piecewise_constant", "order", ArgumentError, "increasing boundaries", 0, [2, 2],
             [1, 2, 3]),
    _refusal("piecewise_constant", "list", ArgumentError, "must be a list", 0, 3, [1, 2]),
)  # fmt: skip
