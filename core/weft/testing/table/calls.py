"""Rows of the op table: calls of graphs, loops and conditionals."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.ops.control.calls import call_op
from weft.testing.table.rows import FLOATS, Refusal, Row, fixed, operands

_TWO = (((2, 3), (2, 3)), ((), ()), ((0, 3), (0, 3)))


def _like(x: TensorOp) -> Any:
    return weft.placeholder(x.axes, x.dtype)


def _layer(x: TensorOp, y: TensorOp) -> weft.Graph:
    """Return a graph of two results, too large to be inlined."""
    a, b = _like(x), _like(y)
    first = weft.tanh(a * b) + weft.sin(a) * weft.cos(b) - weft.square(b) * 0.5
    second = weft.tanh(first + b) * weft.sin(b - a) + weft.cos(first) * 0.25
    return weft.capture([weft.tanh(second), weft.tanh(b * 0.5 + first)], [a, b], "layer")


def _layer_in_numpy(a: Array, b: Array) -> Any:
    first = np.tanh(a * b) + np.sin(a) * np.cos(b) - np.square(b) * 0.5
    second = np.tanh(first + b) * np.sin(b - a) + np.cos(first) * 0.25
    return np.tanh(second), np.tanh(b * 0.5 + first)


def _called_twice(x: TensorOp, y: TensorOp) -> Any:
    layer = _layer(x, y)
    one, other = weft.call(layer, *weft.call(layer, x, y))
    return one * other


def _called_twice_in_numpy(x: Array, y: Array) -> Any:
    one, other = _layer_in_numpy(*_layer_in_numpy(x, y))
    return one * other


def _rounds(x: TensorOp, y: TensorOp) -> Any:
    one, other = weft.loop(_layer(x, y), 3, x, y)
    return one + other


def _rounds_in_numpy(x: Array, y: Array) -> Any:
    for _ in range(3):
        x, y = _layer_in_numpy(x, y)
    return x + y


def _chosen(x: TensorOp, y: TensorOp) -> Any:
    a, b = _like(x), _like(y)
    other = weft.capture([a * 3.0 + b, weft.sin(a - b)], [a, b], "other")
    wanted = weft.greater(weft.sum(x), weft.sum(x) - 1.0)
    one, two = weft.cond(wanted, _layer(x, y), other, [x, y], [y, x])
    three, four = weft.cond(weft.logical_not(wanted), _layer(x, y), other, [x, y], [y, x])
    return one * two + three * four


def _chosen_in_numpy(x: Array, y: Array) -> Any:
    one, two = _layer_in_numpy(x, y)
    return one * two + (y * 3 + x) * np.sin(y - x)


def _until(x: TensorOp, y: TensorOp) -> Any:
    """Return a while loop that adds y to x until a counter is five."""
    count, a, b = weft.placeholder((), "int32"), _like(x), _like(y)
    more = weft.capture([weft.less(count, 5)], [count, a, b], "more")
    step = weft.capture([count + 1, a + b], [count, a, b], "step")
    return weft.while_loop(more, step, weft.constant(2, dtype="int32"), x, y)[1]


def _inside(x: TensorOp, y: TensorOp) -> Any:
    layer = _layer(x, y)
    made = call_op(layer, x, y)
    inner = next(op for op in layer.ops if isinstance(op, weft.ops.TanhOp))
    return weft.saved(made, inner) + made.results[0]


ROWS = (
    Row("call", _called_twice, operands("any", "any"), _TWO, FLOATS, _called_twice_in_numpy,
        twice=True),
    Row("loop", _rounds, operands("any", "any"), _TWO, FLOATS, _rounds_in_numpy),
    Row("cond", _chosen, operands("any", "any"), _TWO[:1], FLOATS, _chosen_in_numpy),
    Row("while_loop", _until, fixed("any", "any"), _TWO, FLOATS, lambda x, y: x + 3 * y),
    Row("saved", _inside, operands("any", "any"), _TWO, FLOATS,
        lambda x, y: np.tanh(x * y) + _layer_in_numpy(x, y)[0]),
)  # fmt: skip

_X = weft.placeholder((2, 3))
_GRAPH = _layer(_X, _X)
_MORE = weft.capture([weft.sum(_X)], [_X, weft.placeholder((2, 3))])

REFUSALS = (
    Refusal("call", "no-graph", lambda: weft.call(_X, _X), ArgumentError, "takes a graph"),
    Refusal("call", "too-few", lambda: weft.call(_GRAPH, _X), ArgumentError, "2 inputs"),
    Refusal("call", "shape", lambda: weft.call(_GRAPH, _X, weft.placeholder((4,))), AxesError,
            "the input"),
    Refusal("call", "dtype", lambda: weft.call(_GRAPH, _X, weft.placeholder((2, 3), "float64")),
            DTypeError, "use cast"),
    Refusal("loop", "count", lambda: weft.loop(_GRAPH, -1, _X, _X), ArgumentError, "at least 0"),
    Refusal("loop", "carried", lambda: weft.loop(_MORE, 2, _X, _X), AxesError, "to its input"),
    Refusal("cond", "no-bool", lambda: weft.cond(_X, _GRAPH, _GRAPH, [_X, _X], [_X, _X]),
            DTypeError, "must be a bool"),
    Refusal("cond", "types", lambda: weft.cond(weft.any(_X), _GRAPH, _MORE, [_X, _X], [_X, _X]),
            AxesError, "yields"),
    Refusal("while_loop", "no-bool", lambda: weft.while_loop(_GRAPH, _GRAPH, _X, _X), ArgumentError,
            "one output"),
    Refusal("saved", "foreign", lambda: weft.saved(call_op(_GRAPH, _X, _X), _X), ArgumentError,
            "not an op of"),
)  # fmt: skip
