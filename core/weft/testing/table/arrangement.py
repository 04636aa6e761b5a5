"""Rows of the op table: flipped, rolled, repeated, split; diagonals and triangles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.axes import Axis
from weft.ir.dtypes import Array
from weft.testing.table.rows import (
    ALL,
    CUBE,
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
_ONES: Shapes = (((1, 3, 1),),)


def _row(
    function: str,
    case: str,
    build: Callable[..., Any],
    expected: Callable[..., Any],
    shapes: Shapes = CUBE,
    operands: tuple[Operand, ...] = (Operand(),),
) -> Row:
    return Row(function, build, operands, shapes, ALL, expected, case)


def _differences(x: Array, /, **options: int) -> Any:
    is_bool = x.dtype == bool and options.get("n") != 0
    return np.diff(x.astype(np.int32) if is_bool else x, **options)


def _each(
    function: str, case: str, arguments: tuple[Any, ...], shapes: Shapes = CUBE, same: str = ""
) -> Row:
    """Return a row of a function with the same arguments in NumPy."""
    numpys = getattr(np, same or function)
    weft_function = getattr(weft, function)
    return _row(
        function,
        case,
        lambda *x: weft_function(*x, *arguments),
        lambda *x: numpys(*x, *arguments),
        shapes,
    )


_ORDER_ROWS = [
    _each("flip", "all", (), (*CUBE, ((),), ((0, 3),), ((C, H),))),
    _each("flip", "one", (1,)),
    _each("flip", "several", ((0, -1),)),
    _row("flip", "named", lambda x: weft.flip(x, "C"), lambda x: x[::-1], _CN),
    _each("roll", "all", (5,), (*CUBE, ((1,),), ((0, 2),), ((C, H),))),
    _each("roll", "one", (-1, 1)),
    _each("roll", "far", (10, 2)),
    _each("roll", "several", ((1, -2), (0, 2))),
    _each("roll", "same", (1, (1, 2))),
    _each("roll", "nothing", (0, 0)),
    _row("roll", "named", lambda x: weft.roll(x, 1, C), lambda x: np.roll(x, 1, 0), _CN),
    _each("moveaxis", "one", (0, -1)),
    _each("moveaxis", "several", ((0, 2), (1, 0))),
    _row("moveaxis", "named", lambda x: weft.moveaxis(x, "W", 0),
         lambda x: np.moveaxis(x, 2, 0), (((C, H, W),),)),
    _each("swapaxes", "positional", (0, -1)),
    _row("swapaxes", "named", lambda x: weft.swapaxes(x, C, H), np.transpose, _CN),
]  # fmt: skip

_REPEATED_ROWS = [
    _each("tile", "one", (2,), (*MATRIX, ((),), ((0, 2),), ((C, H),))),
    _each("tile", "each", ((2, 1, 3),)),
    _each("tile", "more", ((2, 1, 2),), MATRIX),
    _each("tile", "fewer", ((2,),), MATRIX),
    _each("tile", "ones", ((1, 1, 1),), MATRIX),
    _each("tile", "nothing", ((0, 2),), MATRIX),
    _each("repeat", "all", (2,), (*MATRIX, ((),), ((0, 2),))),
    _each("repeat", "axis", (3, 1), (*MATRIX, ((2, 0),), ((C, H),))),
    _each("repeat", "none", (0, 0), MATRIX),
    _each("repeat", "each", ((2, 0, 1), 0), MATRIX),
    _row("repeat", "named", lambda x: weft.repeat(x, [0, 2], H),
         lambda x: np.repeat(x, [0, 2], 1), _CN),
    *(
        _row("broadcast_arrays", f"{number}", lambda *x, n=number: weft.broadcast_arrays(*x)[n],
             lambda *x, n=number: np.broadcast_arrays(*x)[n],
             (((3, 1), (2, 1, 4)), ((), (2,)), ((C,), (H, C)), ((C,), (H,))), _PAIR)
        for number in range(2)
    ),
]  # fmt: skip

_SPLIT_ROWS = [
    _each("squeeze", "all", (), (*_ONES, ((2,),), ((Axis(1, "H"), C),))),
    _each("squeeze", "one", (0,), _ONES),
    _each("squeeze", "several", ((0, -1),), _ONES),
    _row("squeeze", "named", lambda x: weft.squeeze(x, "K"), lambda x: x[:, 0],
         (((C, Axis(1, "K")),),)),
    _each("unsqueeze", "one", (1,), same="expand_dims"),
    _each("unsqueeze", "last", (-1,), (*CUBE, ((),)), same="expand_dims"),
    _each("unsqueeze", "several", ((0, -2),), same="expand_dims"),
    *(
        _row("split", f"equal-{n}", lambda x, n=n: weft.split(x, 2, -1)[n],
             lambda x, n=n: np.split(x, 2, -1)[n], (*CUBE, ((1, 0),), ((H, C),)))
        for n in range(2)
    ),
    *(
        _row("split", f"lengths-{n}", lambda x, n=n: weft.split(x, (1, 0, 2), 1)[n],
             lambda x, n=n: np.split(x, [1, 1], 1)[n], (*CUBE, ((C, N),)))
        for n in range(3)
    ),
    *(
        _row("chunk", f"{n}", lambda x, n=n: weft.chunk(x, 2, 1)[n],
             lambda x, n=n: (x[:, :2], x[:, 2:])[n], (*CUBE, ((C, N),)))
        for n in range(2)
    ),
    _row("chunk", "fewer", lambda x: weft.concat(weft.chunk(x, 4)[1:]), lambda x: x[2:],
         (((6, 2),), ((5,),))),
    _row("chunk", "empty", lambda x: weft.chunk(x, 3)[0], lambda x: x, (((0, 2),),)),
    *(
        _row("diff", case, partial(weft.diff, **options), partial(_differences, **options), shapes)
        for case, options, shapes in (
            ("last", {}, (*CUBE, ((1,),), ((0, 3),))),
            ("twice", {"n": 2, "axis": 0}, (((4, 3),), ((1, 2),), ((0,),))),
            ("none", {"n": 0}, (((2, 3),),)),
        )
    ),
    _row("diff", "ends", lambda x: weft.diff(x, prepend=x[:, :1], append=x, axis=1),
         lambda x: _differences(np.concatenate((x[:, :1], x, x), 1), axis=1), (((2, 3),),)),
    _row("diff", "named", lambda x: weft.diff(x, axis=C), lambda x: _differences(x, axis=0), _CN),
    _row("unstack", "first", lambda x: weft.unstack(x)[1], lambda x: x[1]),
    _row("unstack", "last", lambda x: weft.unstack(x, -1)[0], lambda x: x[..., 0],
         (*CUBE, ((H, C),))),
]  # fmt: skip

_TALL: Shapes = (((4, 3),), ((2, 3, 4),), ((1, 1),), ((0, 2),), ((C, H),), ((C, H, W),))

_DIAGONAL_ROWS = [
    _each(function, case, arguments, _TALL)
    for function in ("tril", "triu")
    for case, arguments in (("main", ()), ("above", (1,)), ("below", (-2,)), ("far", (9,)))
] + [
    _each("diagonal", "axes", (1, 2, 0)),
    _each("diagonal", "first-axes", (0, 0, 1), (((2, 2, 3),), ((3, 0, 1),))),
    _each("diag", "vector", (), (((3,),), ((1,),), ((0,),))),
    _each("diag", "above", (2,), (((3,),), ((0,),))),
    _each("diag", "below", (-1,), (((3,),), ((0,),))),
    _each("diag", "matrix", (1,), (((3, 4),), ((2, 2),))),
]  # fmt: skip

ROWS: tuple[Row, ...] = (*_ORDER_ROWS, *_REPEATED_ROWS, *_SPLIT_ROWS, *_DIAGONAL_ROWS)

_X, _NAMED = weft.placeholder((2, 3)), weft.placeholder((C, H))
_UNKNOWN = weft.placeholder((weft.symbol("n"), 2))

_WRONG: dict[str, dict[str, tuple[Callable[[], Any], type[WeftError], str]]] = {
    "flip": {
        "axis": (lambda: weft.flip(_X, 2), AxesError, "dimension 2 is out of range"),
        "twice": (lambda: weft.flip(_X, (0, -2)), AxesError, "twice"),
        "name": (lambda: weft.flip(_NAMED, "W"), AxesError, "unknown axis 'W'"),
    },
    "roll": {
        "fraction": (lambda: weft.roll(_X, 0.5, 0), ArgumentError, "shift must be"),
        "count": (lambda: weft.roll(_X, (1, 2), 0), ArgumentError, "one for each of 1 axes"),
        "axis": (lambda: weft.roll(_X, 1, 5), AxesError, "out of range"),
        "text": (lambda: weft.roll(_X, "1"), ArgumentError, "whole number"),
    },
    "moveaxis": {
        "count": (lambda: weft.moveaxis(_X, (0, 1), 0), AxesError, "2 axes cannot be moved to 1"),
        "axis": (lambda: weft.moveaxis(_X, 3, 0), AxesError, "out of range"),
    },
    "swapaxes": {"axis": (lambda: weft.swapaxes(_X, 0, 2), AxesError, "out of range")},
    "tile": {
        "negative": (lambda: weft.tile(_X, -1), ArgumentError, "at least 0"),
        "fraction": (lambda: weft.tile(_X, (1, 0.5)), ArgumentError, "whole number"),
        "text": (lambda: weft.tile(_X, "2"), ArgumentError, "one for each axis"),
        "named": (lambda: weft.tile(_NAMED, (2, 1, 1)), AxesError, "without names"),
    },
    "repeat": {
        "negative": (lambda: weft.repeat(_X, -1, 0), ArgumentError, "at least 0"),
        "count": (lambda: weft.repeat(_X, [1, 2, 3], 0), ArgumentError, "a list of 2"),
        "fraction": (lambda: weft.repeat(_X, 1.5), ArgumentError, "one number, or a list"),
        "axis": (lambda: weft.repeat(_X, 2, 2), AxesError, "out of range"),
        "unknown": (lambda: weft.repeat(_UNKNOWN, [1], 0), AxesError, "known length"),
    },
    "broadcast_arrays": {
        "shapes": (lambda: weft.broadcast_arrays(_X, [1.0, 2]), AxesError, "3 against 2|2 against"),
        "named": (lambda: weft.broadcast_arrays(_X, _NAMED), AxesError, "named axes"),
    },
    "squeeze": {
        "length": (lambda: weft.squeeze(_X, 0), AxesError, "only axes of length 1"),
        "axis": (lambda: weft.squeeze(_X, 4), AxesError, "out of range"),
    },
    "unsqueeze": {
        "place": (lambda: weft.unsqueeze(_X, 3), AxesError, "out of range"),
        "twice": (lambda: weft.unsqueeze(_X, (0, -4)), AxesError, "twice"),
        "named": (lambda: weft.unsqueeze(_NAMED, 0), AxesError, "make_axis"),
        "fraction": (lambda: weft.unsqueeze(_X, (0.5,)), ArgumentError, "whole number"),
        "none": (lambda: weft.unsqueeze(_X, None), ArgumentError, "whole number"),
    },
    "split": {
        "uneven": (lambda: weft.split(_X, 2, 1), AxesError, "into 2 equal parts"),
        "lengths": (lambda: weft.split(_X, [1, 1], 1), AxesError, "do not add up"),
        "none": (lambda: weft.split(_X, 0), ArgumentError, "at least 1"),
        "negative": (lambda: weft.split(_X, [3, -1]), ArgumentError, "at least 0"),
        "text": (lambda: weft.split(_X, "2"), ArgumentError, "a list of lengths"),
        "unknown": (lambda: weft.split(_UNKNOWN, 2), AxesError, "known length"),
    },
    "chunk": {
        "none": (lambda: weft.chunk(_X, 0), ArgumentError, "at least 1"),
        "list": (lambda: weft.chunk(_X, [1, 1]), ArgumentError, "whole number"),
        "axis": (lambda: weft.chunk(_X, 2, "C"), AxesError, "unknown axis"),
    },
    "diff": {
        "axis": (lambda: weft.diff(_X, axis=2), AxesError, "out of range"),
        "order": (lambda: weft.diff(_X, n=-1), ArgumentError, "n must be a whole number"),
        "length": (lambda: weft.diff(_X, axis=0, append=[[1, 2]]), AxesError, "must be equal"),
    },
    "unstack": {
        "axis": (lambda: weft.unstack(_X, 2), AxesError, "out of range"),
        "unknown": (lambda: weft.unstack(_UNKNOWN), AxesError, "known length"),
    },
    "tril": {
        "rank": (lambda: weft.tril([1.0]), AxesError, "needs two axes"),
        "offset": (lambda: weft.tril(_X, 0.5), ArgumentError, "whole number"),
    },
    "triu": {
        "rank": (lambda: weft.triu(1.0), AxesError, "needs two axes"),
        "offset": (lambda: weft.triu(_X, "1"), ArgumentError, "whole number"),
    },
    "diagonal": {"same": (lambda: weft.diagonal(_X, 0, 1, -1), AxesError, "twice")},
    "diag": {
        "rank": (lambda: weft.diag(1.0), AxesError, "takes a vector"),
        "named": (lambda: weft.diag(weft.ones(C)), AxesError, "without a name"),
        "offset": (lambda: weft.diag(_X, None), ArgumentError, "whole number"),
    },
}  # fmt: skip

REFUSALS: tuple[Refusal, ...] = tuple(
    Refusal(function, case, build, error, words)
    for function, cases in _WRONG.items()
    for case, (build, error, words) in cases.items()
)
