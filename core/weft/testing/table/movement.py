"""Rows of the op table: views, movement, padding and joining."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, WeftError
from weft.ir.dtypes import Array
from weft.testing.samples import CLASSES
from weft.testing.table.rows import (
    ALL,
    CUBE,
    FIXED,
    MATRIX,
    C,
    H,
    N,
    Operand,
    Refusal,
    Row,
    Shapes,
    W,
)

_CN: Shapes = (((C, H),),)
_PAIR = (Operand(), Operand())


def _row(
    function: str,
    case: str,
    build: Callable[..., Any],
    expected: Callable[..., Any],
    shapes: Shapes = CUBE,
    operands: tuple[Operand, ...] = (Operand(),),
) -> Row:
    return Row(function, build, operands, shapes, ALL, expected, case)


def _hot(x: Array, count: int) -> Any:
    index = np.arange(count).reshape(-1, *([1] * np.ndim(x)))
    return (index == x).astype(np.float32)


def _updated(x: Array, item: Any, value: Array) -> Any:
    result = np.array(x)
    result[item] = value
    return result


_SLICES: dict[str, Any] = {
    "index": (1,),
    "negative-index": (slice(None), -1),
    "range": (slice(None), slice(1, 3)),
    "step": (slice(None), slice(None), slice(0, 4, 2)),
    "odd-step": (slice(None), slice(None), slice(1, None, 2)),
    "backwards": (slice(None, None, -1),),
    "backwards-step": (slice(None), slice(None), slice(None, None, -2)),
    "backwards-range": (slice(None), slice(None), slice(2, 0, -1)),
    "mixed": (0, slice(None, None, -1), slice(-3, -1)),
    "ellipsis": (..., 2),
    "empty": (slice(None), slice(2, 1)),
    "beyond": (slice(-10, 10), slice(1, 100)),
}

_SHAPE_ROWS = [
    _row("reshape", "shape", lambda x: weft.reshape(x, (4, 6)), lambda x: x.reshape(4, 6)),
    _row("reshape", "free", lambda x: weft.reshape(x, (3, -1)), lambda x: x.reshape(3, -1)),
    _row("reshape", "after-transpose", lambda x: weft.reshape(weft.transpose(x), (8, 3)),
         lambda x: x.T.reshape(8, 3)),
    _row("reshape", "scalar", lambda x: weft.reshape(x, ()), lambda x: x.reshape(()), (((1, 1),),)),
    _row("reshape", "empty", lambda x: weft.reshape(x, (3, 0, 5)), lambda x: x.reshape(3, 0, 5),
         (((0, 2),),)),
    _row("transpose", "reversed", weft.transpose, np.transpose,
         (((2, 3, 4),), ((),), ((5,),), ((2, 1, 3, 2, 2),), ((0, 3),))),
    _row("transpose", "permuted", lambda x: weft.transpose(x, (2, 0, 1)),
         lambda x: x.transpose(2, 0, 1)),
    _row("transpose", "named", lambda x: weft.transpose(x, (H, C)), np.transpose, _CN),
    _row("axes_with_order", "named", lambda x: weft.axes_with_order(x, (W, C, H)),
         lambda x: x.transpose(2, 0, 1), (((C, H, W),),)),
    _row("expand_dims", "front", weft.expand_dims, lambda x: x[None]),
    _row("expand_dims", "inside", lambda x: weft.expand_dims(x, dim=-2), lambda x: x[:, :, None]),
    _row("expand_dims", "by-place", lambda x: weft.expand_dims(x, 1), lambda x: x[:, None]),
    _row("expand_dims", "items", lambda x: x[None, ..., 1:, None, 0],
         lambda x: x[None, ..., 1:, None, 0]),
    _row("expand_dims", "repeated", lambda x: weft.expand_dims(x, N, 1),
         lambda x: np.repeat(x[:, None], 3, axis=1), _CN),
    _row("flatten", "positional", weft.flatten, np.ravel, (((2, 3, 4),), ((),), ((0, 2),))),
    _row("flatten", "named", weft.flatten, np.ravel, _CN),
    _row("flatten_at", "inside", lambda x: weft.flatten_at(x, 1), lambda x: x.reshape(2, 12)),
    _row("flatten_at", "end", lambda x: weft.flatten_at(x, 3), np.ravel),
    _row("unflatten", "named", lambda x: weft.unflatten(weft.flatten(x)), np.asarray, _CN),
    _row("unflatten", "transposed",
         lambda x: weft.unflatten(weft.transpose(weft.flatten_at(x, 1))),
         lambda x: x.transpose(1, 2, 0), (((C, H, W),),)),
    _row("cast_axes", "named", lambda x: weft.cast_axes(x, (H, C)), lambda x: x.reshape(2, 4),
         (((2, 4),),)),
    _row("cast_role", "named", lambda x: weft.cast_role(x, (weft.Axis(4, "K"), H)), np.asarray,
         _CN),
    _row("map_roles", "named", lambda x: weft.map_roles(x, {"C": "K"}), np.asarray, _CN),
    _row("contiguous", "transposed", lambda x: weft.contiguous(weft.transpose(x)), np.transpose),
    _row("broadcast", "positional", lambda x: weft.broadcast(x, (2, 3, 4)),
         lambda x: np.broadcast_to(x, (2, 3, 4)), (((3, 1),), ((),), ((4,),), ((2, 3, 4),))),
    _row("broadcast", "named", lambda x: weft.broadcast(x, (N, C, H)),
         lambda x: np.broadcast_to(x.T, (3, 4, 2)), (((H, C),), ((C,),), ((),))),
]  # fmt: skip

_SLICE_ROWS = [
    *(
        _row("tensor_slice", case, lambda x, s=slices: weft.tensor_slice(x, s),
             lambda x, s=slices: x[s])
        for case, slices in _SLICES.items()
    ),
    _row("tensor_slice", "renamed", lambda x: weft.tensor_slice(x, (1,), axes=(C,)),
         lambda x: x[1], (((2, 4),),)),
    _row("tensor_slice", "operator", lambda x: x[1:, ::-2][..., 0] + x[0, 0, 0],
         lambda x: x[1:, ::-2][..., 0] + x[0, 0, 0]),
    _row("slice_along_axis", "positional", lambda x: weft.slice_along_axis(x, 1, 2),
         lambda x: x[:, 2]),
    _row("slice_along_axis", "named", lambda x: weft.slice_along_axis(x, H, -1),
         lambda x: x[:, -1], _CN),
    *(
        _row("update_slice", case,
             lambda x, y, s=slices: weft.update_slice(x, s, weft.tensor_slice(y, s)),
             lambda x, y, s=slices: _updated(x, s, y[s]), (((2, 3, 4), (2, 3, 4)),), _PAIR)
        for case, slices in _SLICES.items()
    ),
    _row("update_slice", "broadcast", lambda x, y: weft.update_slice(x, (slice(0, 3, 2),), y),
         lambda x, y: _updated(x, slice(0, 3, 2), y), (((3, 4), ()), ((3, 4), (4,))), _PAIR),
]  # fmt: skip

_JOIN_ROWS = [
    _row("pad", "both", lambda x: weft.pad(x, [(1, 2), 0, (0, 3)]),
         lambda x: np.pad(x, [(1, 2), (0, 0), (0, 3)])),
    _row("pad", "value", lambda x: weft.pad(x, [1, 1], 1),
         lambda x: np.pad(x, 1, constant_values=1), MATRIX),
    _row("pad", "named", lambda x: weft.pad(x, [(0, 1), (2, 0)]),
         lambda x: np.pad(x, [(0, 1), (2, 0)]), _CN),
    _row("pad", "empty", lambda x: weft.pad(x, [1, 2]), lambda x: np.pad(x, [(1, 1), (2, 2)]),
         (((0, 2),),)),
    _row("pad", "some-axes", lambda x: weft.pad(x, {"H": 1, C: (0, 2)}),
         lambda x: np.pad(x, [(0, 2), (1, 1)]), _CN),
    *(
        Row("pad", lambda x, m=mode, w=widths: weft.square(weft.pad(x, w, mode=m)), shapes=shapes,
            expected=lambda x, m=mode, w=widths: np.pad(x, w, m) ** 2, case=f"{mode}-{case}",
            twice=True)
        for mode in ("edge", "reflect", "symmetric", "wrap")
        for case, widths, shapes in (
            ("matrix", [(1, 2), (0, 3)], (((3, 4),), ((W, C),))),
            ("vector", [(2, 0)], (((3,),), ((5,),))),
        )
    ),
    *(
        _row("pad", mode, lambda x, m=mode: weft.pad(x, [1, (0, 1)], mode=m),
             lambda x, m=same: np.pad(x, [(1, 1), (0, 1)], m), MATRIX)
        for mode, same in (("edge", "edge"), ("replicate", "edge"), ("reflect", "reflect"),
                           ("symmetric", "symmetric"), ("circular", "wrap"))
    ),
    _row("pad", "edge-of-one", lambda x: weft.pad(x, [3], mode="edge"),
         lambda x: np.pad(x, 3, "edge"), (((1,),),)),
    _row("concat", "first", lambda *x: weft.concat(x), lambda *x: np.concatenate(x),
         (((2, 3), (1, 3)), ((0, 3), (2, 3))), _PAIR),
    _row("concat", "last", lambda *x: weft.concat(x, -1), lambda *x: np.concatenate(x, -1),
         (((2, 3), (2, 2)),), _PAIR),
    _row("concat", "same", lambda x: weft.concat([x, x[::-1], x]),
         lambda x: np.concatenate([x, x[::-1], x])),
    _row("concat", "one", lambda x: weft.concat([x], 1), np.asarray),
    _row("concat", "flat", lambda *x: weft.concat(x, axis=None),
         lambda *x: np.concatenate(x, None), (((2, 3), (1, 4)), ((), (2,))), _PAIR),
    _row("concat", "named", lambda x, y: weft.concat([x, y], H),
         lambda x, y: np.concatenate([x, y.T], 1), (((C, H), (H, C)),), _PAIR),
    _row("stack", "front", lambda *x: weft.stack(x), lambda *x: np.stack(x),
         (((2, 3), (2, 3)), ((), ())), _PAIR),
    _row("stack", "last", lambda *x: weft.stack(x, pos=-1), lambda *x: np.stack(x, -1),
         (((2, 3), (2, 3)),), _PAIR),
    _row("stack", "place", lambda *x: weft.stack(x, axis=1), lambda *x: np.stack(x, 1),
         (((2, 3), (2, 3)),), _PAIR),
    _row("stack", "named", lambda *x: weft.stack(x, H, 1), lambda *x: np.stack(x, 1),
         (((C, N), (C, N)),), _PAIR),
    Row("one_hot", lambda x: weft.one_hot(x, CLASSES), (Operand("index", "int32", False),),
        (((2, 3),), ((),), ((0,),), ((4,),)), expected=lambda x: _hot(x, CLASSES)),
    Row("one_hot", lambda x: weft.one_hot(x, C, "int32"), (Operand("index", "int64", False),),
        (((N,),),), expected=lambda x: _hot(x, 4).astype(np.int32), case="named"),
    Row("one_hot", lambda x: weft.one_hot(x, CLASSES), (Operand("index", None, False),),
        (((6,),),), expected=lambda x: _hot(x, CLASSES), case="floats"),
    Row("one_hot", lambda x: weft.one_hot(x, CLASSES, "int32", -1, 3, -2),
        (Operand("index", "int8", False),), (((2, 3),), ((),), ((0,),)),
        expected=lambda x: np.where(np.moveaxis(_hot(x, CLASSES), 0, -1) > 0, 3, -2),
        case="values"),
    Row("one_hot", lambda x: weft.one_hot(x, C, pos=1), (Operand("index", "uint8", False),),
        (((N, H),),), expected=lambda x: np.moveaxis(_hot(x, 4), 0, 1), case="place"),
    Row("stop_gradient", lambda x: weft.stop_gradient(x) + 1, (FIXED,), expected=lambda x: x + 1),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_SHAPE_ROWS, *_SLICE_ROWS, *_JOIN_ROWS)

_X, _NAMED = weft.placeholder((2, 3)), weft.placeholder((C, H))
_WHOLE = weft.placeholder((2,), "int32")

_WRONG: dict[str, dict[str, tuple[Callable[[], Any], type[WeftError], str]]] = {
    "reshape": {
        "size": (lambda: weft.reshape(_X, (4, 2)), AxesError, "has 6 elements, .* 8"),
        "free": (lambda: weft.reshape(_X, (-1, -1)), AxesError, "only one of the sizes"),
        "uneven": (lambda: weft.reshape(_X, (4, -1)), AxesError, "has 6 elements"),
        "negative": (lambda: weft.reshape(_X, (-2, -3)), AxesError, "must not be negative"),
        "fraction": (lambda: weft.reshape(_X, (1.5, 4)), AxesError, "must be an integer"),
        "none": (lambda: weft.reshape(_X, None), AxesError, "None is not a shape"),
    },
    "transpose": {
        "few": (lambda: weft.transpose(_X, (0,)), AxesError, "needs all of"),
        "twice": (lambda: weft.transpose(_X, (0, 0)), AxesError, "twice"),
        "axis": (lambda: weft.transpose(_X, (0, 2)), AxesError, "out of range"),
        "name": (lambda: weft.transpose(_NAMED, ("C", "Z")), AxesError, "unknown axis 'Z'"),
    },
    "axes_with_order": {
        "few": (lambda: weft.axes_with_order(_NAMED, (C,)), AxesError, "needs all of"),
        "other": (lambda: weft.axes_with_order(_NAMED, (C, W)), AxesError, "unknown axis W"),
    },
    "expand_dims": {
        "place": (lambda: weft.expand_dims(_X, dim=3), AxesError, "out of range"),
        "fraction": (lambda: weft.expand_dims(_X, dim=0.5), AxesError, "out of range"),
        "name": (lambda: weft.expand_dims(_NAMED), AxesError, "mix named and positional"),
        "twice": (lambda: weft.expand_dims(_NAMED, C), AxesError, "more than once"),
    },
    "flatten": {"text": (lambda: weft.flatten("ab"), DTypeError, "not made of numbers")},
    "flatten_at": {
        "place": (lambda: weft.flatten_at(_X, 3), AxesError, "not a position between"),
        "text": (lambda: weft.flatten_at(_X, "C"), AxesError, "not a position"),
    },
    "unflatten": {"none": (lambda: weft.unflatten(None), DTypeError, "not made of numbers")},
    "cast_axes": {
        "size": (lambda: weft.cast_axes(_X, (7,)), AxesError, "has 6 elements"),
        "none": (lambda: weft.cast_axes(_X, None), AxesError, "cannot be made from None"),
    },
    "cast_role": {
        "lengths": (lambda: weft.cast_role(_X, (3, 2)), AxesError, "keeps lengths"),
    },
    "map_roles": {
        "unknown": (lambda: weft.map_roles(_NAMED, {"Z": "K"}), AxesError, "unknown axis 'Z'"),
        "twice": (lambda: weft.map_roles(_NAMED, {"C": "H"}), AxesError, "more than once"),
        "list": (lambda: weft.map_roles(_NAMED, ["C"]), ArgumentError, "in a dictionary"),
    },
    "contiguous": {"text": (lambda: weft.contiguous("ab"), DTypeError, "not made of numbers")},
    "broadcast": {
        "length": (lambda: weft.broadcast(_X, (3, 3)), AxesError, "does not broadcast to"),
        "rank": (lambda: weft.broadcast(_X, (3,)), AxesError, "cannot be broadcast to"),
        "named": (lambda: weft.broadcast(_NAMED, (4, 2)), AxesError, "cannot be broadcast to"),
        "text": (lambda: weft.broadcast(_X, "C"), AxesError, "the text 'C'"),
    },
    "tensor_slice": {
        "rank": (lambda: weft.tensor_slice(_X, (0, 0, 0)), AxesError, "3 indices for the 2 axes"),
        "range": (lambda: weft.tensor_slice(_X, (2,)), AxesError, "index 2 is out of range"),
        "text": (lambda: weft.tensor_slice(_X, ("a",)), ArgumentError, "integer or a slice"),
        "step": (lambda: weft.tensor_slice(_X, (slice(0, 2, 0),)), ArgumentError, "not be 0"),
        "tensor": (lambda: weft.tensor_slice(_X, (_WHOLE,)), ArgumentError, "take.. and scatter"),
        "mask": (lambda: _X[_X > 0], ArgumentError, "where"),
        "floats": (lambda: _X[[0.5]], ArgumentError, "cast"),
    },
    "slice_along_axis": {
        "range": (lambda: weft.slice_along_axis(_X, 0, -3), AxesError, "index -3 is out of range"),
        "axis": (lambda: weft.slice_along_axis(_X, 2, 0), AxesError, "out of range"),
        "fraction": (lambda: weft.slice_along_axis(_X, 0, 0.5), ArgumentError, "an integer"),
    },
    "update_slice": {
        "shape": (lambda: weft.update_slice(_X, (0,), [1, 2]), AxesError, "does not broadcast"),
        "complex": (lambda: weft.update_slice(_X, (0,), 1j), DTypeError, "do not fit float32"),
        "tensor": (lambda: weft.update_slice(_X, (_WHOLE,), 0), ArgumentError, "scatter.. accept"),
    },
    "pad": {
        "count": (lambda: weft.pad(_X, [1]), ArgumentError, "for each axis"),
        "negative": (lambda: weft.pad(_X, [1, -1]), AxesError, "at least 0, not -1"),
        "fraction": (lambda: weft.pad(_X, [1, 0.5]), ArgumentError, "a pair of numbers, not 0.5"),
        "axis": (lambda: weft.pad(_NAMED, {"Z": 1}), AxesError, "unknown axis 'Z'"),
        "mode": (lambda: weft.pad(_X, [1, 1], mode="mirror"), ArgumentError, "edge, reflect"),
        "reflect": (lambda: weft.pad(_X, [2, 0], mode="reflect"), AxesError, "needs 3 elements"),
        "wrap": (lambda: weft.pad(_X, [0, 4], mode="wrap"), AxesError, "needs 4 elements"),
        "edge": (lambda: weft.pad(weft.zeros(0), [1], mode="edge"), AxesError, "needs 1 elements"),
        "value": (lambda: weft.pad(_X, [1, 1], 2, "wrap"), ArgumentError, "takes no value"),
        "values": (lambda: weft.pad(_X, [1, 1], [1, 2]), ArgumentError, "must be a scalar"),
        "infinity": (lambda: weft.pad(_WHOLE, [1], float("inf")), DTypeError, "infinity"),
    },
    "concat": {
        "mixed": (lambda: weft.concat([_X, _NAMED]), AxesError, "cannot concatenate"),
        "length": (lambda: weft.concat([_X, [[1, 2]]]), AxesError, "all others must be equal"),
        "tensor": (lambda: weft.concat(_X), ArgumentError, "a list of tensors"),
        "empty": (lambda: weft.concat([]), ArgumentError, "at least one tensor"),
        "axis": (lambda: weft.concat([_X], 2), AxesError, "out of range"),
    },
    "stack": {
        "axes": (lambda: weft.stack([_X, [[1.0]] * 4]), AxesError, "equal axes"),
        "place": (lambda: weft.stack([_X, _X], pos=3), AxesError, "out of range"),
        "axis": (lambda: weft.stack([_X, _X], axis=3), AxesError, "out of range"),
        "length": (lambda: weft.stack([_X, _X], axis=C), AxesError, "must have length 2"),
        "empty": (lambda: weft.stack([]), ArgumentError, "at least one tensor"),
    },
    "one_hot": {
        "negative": (lambda: weft.one_hot(_WHOLE, -1), AxesError, "must not be negative"),
        "place": (lambda: weft.one_hot(_WHOLE, 3, pos=2), AxesError, "out of range"),
        "name": (lambda: weft.one_hot(_NAMED, 3), AxesError, "needs a name"),
        "complex": (lambda: weft.one_hot(1j, 2), DTypeError, "do not fit int32"),
        "value": (lambda: weft.one_hot(_WHOLE, 2, "int32", 0, 0.5), DTypeError, "fractions"),
    },
    "stop_gradient": {"text": (lambda: weft.stop_gradient("a"), DTypeError, "made of numbers")},
}  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(function, case, build, error, words)
    for function, cases in _WRONG.items()
    for case, (build, error, words) in cases.items()
)
