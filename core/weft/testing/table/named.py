"""Rows of the op table: operations with roles, on named axes."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError
from weft.ir.axes import Axis
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import REC, C, H, N, Operand, Refusal, Row, Shapes, W, operands

_K, _R, _S = Axis(2, "K"), Axis(2, "R"), Axis(3, "S")
_LINE, _T, _LABELS = Axis(2, "W"), Axis(3, "T"), Axis(1, "L")
_UNITS = Axis(2, "units")
_LAYERS = {
    "rnn": (1, Axis(2, "gates")),
    "gru": (1, Axis(6, "gates")),
    "lstm": (2, Axis(8, "gates")),
}
"""By layer, the number of states, and the axis of gates for two units."""
_IMAGES: Shapes = (((W, N, C, H),), ((C, W),))
_CLASS = Operand("unit", dtype="int32", differentiable=False)
_windows = np.lib.stride_tricks.sliding_window_view


def _row(function: str, build: Any, shapes: Shapes, expected: Any = None) -> Row:
    return Row(
        function, build, operands(*["any"] * len(shapes[0])), shapes, ("float32",), expected,
        "roles", is_generic=False,
    )  # fmt: skip


def _image_row(function: str, *options: Any) -> Row:
    return _row(function, lambda x: getattr(weft, function)(x, *options), _IMAGES)


def _cell_row(name: str) -> Row:
    states, rows = _LAYERS[name]

    def build(*args: TensorOp) -> Any:
        result = getattr(weft, f"{name}_cell")(*args)
        return result.hidden if name == "lstm" else result

    shapes = ((C, N), *[(_UNITS, N)] * states, (C, rows), (rows, _UNITS))
    return _row(f"{name}_cell", build, (shapes,))


def _layer_row(name: str) -> Row:
    rows = _LAYERS[name][1]

    def build(x: TensorOp, *weights: TensorOp) -> Any:
        return getattr(weft, name)(x, weights).outputs

    return _row(name, build, (((N, REC, C), (C, rows), (rows, _UNITS)),))


def _attended(query: Array, key: Array, value: Array) -> Any:
    scores = np.einsum("cqn,cnt->qtn", query, key) / 2
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.einsum("qtn,ktn->kqn", powers / powers.sum(axis=1, keepdims=True), value)


ROWS: tuple[Row, ...] = (
    _row("conv", lambda x, w: weft.conv(x, w, stride=(1, 2)), (((C, H, N, W), (C, _R, _S, _K)),),
         lambda x, w: np.einsum(
             "cinjrs,crsk->kinj", _windows(x, (2, 3), (1, 3))[:, :, :, ::2], w)),
    _row("conv1d", weft.conv1d, (((C, W, N), (_LINE, _K, C)),),
         lambda x, w: np.einsum("cjnw,wkc->kjn", _windows(x, 2, 1), w)),
    _row("conv_transpose", weft.conv_transpose, (((N, W, C), (_K, C, _S)),)),
    _image_row("max_pool", 2),
    _image_row("avg_pool", 2),
    _image_row("lp_pool", 2, 2),
    _image_row("adaptive_avg_pool", 1),
    _image_row("avg_unpool", 2),
    _image_row("lp_unpool", 2, 2),
    _row("max_unpool", lambda x: weft.max_unpool(*weft.max_pool_with_indices(x, 2), (2, 5)),
         (((W, N, C, H),),)),
    _row("pixel_shuffle", lambda x: weft.pixel_shuffle(x, 2), (((W, C, N),),),
         lambda x: x.reshape(5, 2, 2, 3).transpose(0, 2, 1, 3).reshape(10, 2, 3)),
    _row("pixel_unshuffle", lambda x: weft.pixel_unshuffle(x, 2), (((H, C, N),),),
         lambda x: x.reshape(1, 2, 4, 3).transpose(0, 2, 1, 3).reshape(1, 8, 3)),
    *map(_cell_row, _LAYERS),
    *map(_layer_row, _LAYERS),
    _row("attention", weft.attention,
         (((C, REC, N), (C, N, _T), (_K, _T, N)), ((C, REC), (REC, C), (REC, C))), _attended),
    _row("multi_head_attention",
         lambda x, y, *weights: weft.multi_head_attention(x, y, y, weights, 2),
         (((C, REC, N), (C, N, _T), (C, _K), (C, _K), (C, _K), (_K, C)),)),
    Row("ctc_loss", lambda x, labels: weft.ctc_loss(x, labels + 1, reduction="none"),
        (Operand(), _CLASS), (((N, C, REC), (_LABELS, N)),), ("float32",), case="roles",
        is_generic=False),
    _row("matmul", weft.matmul, (((C, N, H), (N, W, C)), ((H, C), (C,)), ((N, H, C), (4, 3))),
         lambda x, y: np.einsum("cnh,nwc->wnh", x, y)),
    _row("einsum", lambda x, y: weft.einsum("NHC,WC->WNH", x, y), (((C, N, H), (C, W)),),
         lambda x, y: np.einsum("cnh,cw->wnh", x, y)),
)  # fmt: skip

_X = weft.placeholder((N, C, H))
_WEIGHTS = [weft.placeholder((2, 4)), weft.placeholder((2, 2))]

REFUSALS: tuple[Refusal, ...] = (
    Refusal("conv1d", "roles", lambda: weft.conv1d(_X, weft.placeholder((_T, _S, C))), AxesError,
            "axes T, S have no role in .*: pass filters= or spatial="),
    Refusal("conv1d", "role", lambda: weft.conv1d(_X, _X, features="C"), ArgumentError,
            "no argument 'features'; the roles of named axes are batch=, channels="),
    Refusal("conv1d", "channels",
            lambda: weft.conv1d(_X, weft.placeholder((_K, Axis(3, "C"), Axis(1, "H")))),
            AxesError, "2 filters of 3 channels.*\n  with batch N, channels C, spatial H"),
    Refusal("max_pool", "absent", lambda: weft.max_pool(_X, 2, batch="B"), AxesError,
            "no operand has the axes B, given by batch="),
    Refusal("max_pool", "twice", lambda: weft.max_pool(_X, 2, batch="C", channels=C), AxesError,
            "axis 'C' is given for two roles, batch= and channels="),
    Refusal("max_pool", "number", lambda: weft.max_pool(_X, 2, spatial=2), ArgumentError,
            "spatial= takes an axis, its name or a list of them, not 2"),
    Refusal("lstm", "batch-first",
            lambda: weft.lstm(_X, _WEIGHTS, batch_first=True), ArgumentError,
            "batch_first is for positional axes"),
    Refusal("rnn", "time", lambda: weft.rnn(_X, _WEIGHTS), AxesError,
            "axes C, H have no role in .*: pass time= or features="),
    Refusal("matmul", "nothing-shared", lambda: weft.matmul(_X, weft.placeholder((N, W))),
            AxesError, "share no axis besides N"),
    Refusal("matmul", "vector", lambda: weft.matmul(_X, weft.placeholder((2,))), AxesError,
            "a positional matrix has two axes"),
    Refusal("einsum", "unnamed", lambda: weft.einsum("abc,cd->abd", _X, weft.placeholder((2, 3))),
            AxesError, "'d' is in the result, but stands for no named axis"),
    Refusal("einsum", "same-names", lambda: weft.einsum("abc,d->abcd", _X, weft.placeholder((N,))),
            AxesError, "need different names"),
)  # fmt: skip
