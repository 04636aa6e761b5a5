"""Rows of the op table: initial weights, from the bits of the first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.axes import Axis
from weft.ir.dtypes import Array
from weft.testing.table.distributions import KEY, box_muller, truncated, unit
from weft.testing.table.rows import C, H, Refusal, Row

_SHAPE = (4, 3, 2)
_FANS = 3 * 2, 4 * 2
_DEVIATION = 0.8796256610342398


def _even(shape: tuple[int, ...], bound: float) -> Any:
    return bound * (2 * unit(shape) - 1)


def _row(name: str, expected: Array, case: str = "", axes: Any = _SHAPE, **options: Any) -> Row:
    function = getattr(weft, name)
    return Row(name, lambda: function(axes, **options, **KEY), (), ((),), ("float32",),
               lambda: expected, case, is_generic=False)  # fmt: skip


def _orthonormal(rows: int, columns: int) -> Any:
    q, r = np.linalg.qr(box_muller((rows, columns)))
    return q * np.sign(np.diag(r))


_IN, _OUT = _FANS
_K = Axis(5, "K")

ROWS: tuple[Row, ...] = (
    _row("glorot_uniform", _even(_SHAPE, np.sqrt(6 / (_IN + _OUT)))),
    _row("glorot_uniform", _even((4, 5), 2 * np.sqrt(6 / 9)), "named", (C, _K), gain=2.0,
         out_axes="K"),
    _row("glorot_normal", box_muller(_SHAPE) * np.sqrt(2 / (_IN + _OUT))),
    _row("he_uniform", _even(_SHAPE, np.sqrt(6 / _IN))),
    _row("he_uniform", _even(_SHAPE, np.sqrt(6 / (1.25 * _OUT))), "leaky", slope=0.5,
         mode="fan_out"),
    _row("he_normal", box_muller(_SHAPE) * np.sqrt(2 / _IN)),
    _row("he_normal", box_muller((4, 2, 5)) * np.sqrt(2 / 8), "named", (C, H, _K), in_axes=[C],
         out_axes=[_K]),
    _row("lecun_uniform", _even(_SHAPE, np.sqrt(3 / _IN))),
    _row("lecun_normal", box_muller(_SHAPE) * np.sqrt(1 / _IN)),
    _row("lecun_normal", box_muller(_SHAPE) * np.sqrt(1 / 8), "inputs-first", in_axes=0),
    _row("variance_scaling", truncated(_SHAPE, -2, 2) * np.sqrt(1 / _IN) / _DEVIATION),
    _row("variance_scaling", _even(_SHAPE, np.sqrt(3 * 5 / 7)), "average", scale=5,
         mode="fan_avg", distribution="uniform"),
    _row("orthogonal", _orthonormal(4, 3), axes=(4, 3)),
    _row("orthogonal", 2 * _orthonormal(8, 3).T.reshape(3, 4, 2), "wide", (3, 4, 2), gain=2.0),
    _row("orthogonal", _orthonormal(8, 5).T.reshape(5, 4, 2).transpose(1, 2, 0), "named",
         (C, H, _K), out_axes="K"),
)  # fmt: skip

_RANDOM = ("glorot_uniform", "glorot_normal", "he_uniform", "he_normal", "lecun_uniform",
           "lecun_normal", "variance_scaling")  # fmt: skip
_UNKNOWN = (3, weft.symbol("n"))


def _refusal(name: str, case: str, error: type[Any], words: str, *args: Any, **options: Any) -> Any:
    function: Callable[..., Any] = getattr(weft, name)
    return Refusal(name, case, partial(function, *args, **options), error, words)


REFUSALS: tuple[Refusal, ...] = (
    *(
        _refusal(name, *rest, **options)
        for name in _RANDOM
        for rest, options in (
            (("rank", AxesError, "need an axis of inputs and another", (3,)), {}),
            (("unknown", AxesError, "must be known", _UNKNOWN), {}),
            (("same-axis", AxesError, "need an axis of inputs", (3, 2)),
             {"in_axes": 0, "out_axes": 0}),
            (("no-axis", AxesError, "unknown axis 'Z'", (C, H)), {"in_axes": "Z"}),
            (("dtype", DTypeError, "are not floats", (3, 2)), {"dtype": "int32"}),
        )
    ),
    *(
        _refusal(name, "gain", ArgumentError, "gain must be a finite number", (3, 2), gain="relu")
        for name in ("glorot_uniform", "glorot_normal", "orthogonal")
    ),
    *(
        _refusal(name, "mode", ArgumentError, "the mode 'fan' must be one of fan_in", (3, 2),
                 mode="fan")
        for name in ("he_uniform", "he_normal", "variance_scaling")
    ),
    _refusal("variance_scaling", "distribution", ArgumentError, "must be one of uniform, normal",
             (3, 2), distribution="cauchy"),
    _refusal("orthogonal", "rank", AxesError, "an axis of outputs and another", (3,)),
    _refusal("orthogonal", "scalar", AxesError, "an axis of outputs and another", ()),
    _refusal("orthogonal", "unknown", AxesError, "must have known lengths", _UNKNOWN),
)  # fmt: skip
