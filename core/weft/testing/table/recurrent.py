"""Rows of the op table: recurrent cells and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FIXED, Refusal, Row, Shapes, operands


def _logistic(x: Array) -> Any:
    return 1 / (1 + np.exp(-x))


def _rnn_step(x: Array, states: Sequence[Array], w: Array, u: Array, b: Array | float = 0.0,
              c: Array | float = 0.0, activation: Callable[..., Any] = np.tanh) -> Any:  # fmt: skip
    return (activation(x @ w.T + b + states[0] @ u.T + c),)


def _gru_step(x: Array, states: Sequence[Array], w: Array, u: Array, b: Array | float = 0.0,
              c: Array | float = 0.0, linear_before_reset: bool = True) -> Any:  # fmt: skip
    (h,) = states
    (wr, wz, wn), (ur, uz, un) = np.split(w, 3), np.split(u, 3)
    br, bz, bn, cr, cz, cn = (
        part for bias in (b, c) for part in np.split(bias + np.zeros(len(w)), 3)
    )
    r = _logistic(x @ wr.T + br + h @ ur.T + cr)
    z = _logistic(x @ wz.T + bz + h @ uz.T + cz)
    inner = r * (h @ un.T + cn) if linear_before_reset else (r * h) @ un.T + cn
    return ((1 - z) * np.tanh(x @ wn.T + bn + inner) + z * h,)


def _lstm_step(x: Array, states: Sequence[Array], w: Array, u: Array, b: Array | float = 0.0,
               c: Array | float = 0.0) -> Any:  # fmt: skip
    hidden, cell = states
    i, f, g, o = np.split(x @ w.T + b + hidden @ u.T + c, 4, axis=-1)
    cell = _logistic(f) * cell + _logistic(i) * np.tanh(g)
    return _logistic(o) * np.tanh(cell), cell


def _along(step: Any, x: Array, states: Any, *weights: Array, reverse: bool = False, **fields: Any):  # type: ignore[no-untyped-def]
    """Return the outputs of one layer in one direction, and its last states."""
    outputs = np.zeros((*x.shape[:-1], weights[1].shape[1]))
    for place in range(len(x))[:: -1 if reverse else 1]:
        states = step(x[place], states, *weights, **fields)
        outputs[place] = states[0]
    return outputs, states


def _flat(results: Any) -> Any:
    return np.concatenate([np.ravel(each) for each in results])


def _flat_tensor(results: Any) -> Any:
    return weft.concat([weft.reshape(each, (-1,)) for each in results])


_STEPS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "rnn": (_rnn_step, 1, 1), "gru": (_gru_step, 3, 1), "lstm": (_lstm_step, 4, 2)
}  # fmt: skip
"""By layer: one step in NumPy, the number of gates, and the number of states."""


def _shapes(gates: int, features: int, units: int) -> Any:
    rows = gates * units
    return (rows, features), (rows, units), (rows,), (rows,)


def _cell_rows(name: str) -> list[Row]:
    step, gates, states = _STEPS[name]
    cell = f"{name}_cell"
    function = getattr(weft, cell)

    def build(x: TensorOp, *rest: TensorOp, **options: Any) -> Any:
        result = function(x, *rest, **options)
        return _flat_tensor(result) if name == "lstm" else result

    def arrays(x: Array, *rest: Array, **options: Any) -> Any:
        found = step(x, rest[:states], *rest[states:], **options)
        return _flat(found) if name == "lstm" else found[0]

    parameters = _shapes(gates, 2, 2)
    with_batch: Any = ((2, 2), *[(2, 2)] * states, *parameters)
    alone: Any = ((2,), *[(2,)] * states, *parameters)
    several: Any = ((2, 3, 3), *[(2, 3, 1)] * states, *_shapes(gates, 3, 1))
    empty: Any = ((0, 2), *[(0, 2)] * states, *parameters)
    count = states + 5
    rows = [
        Row(cell, build, operands(*["any"] * count), (with_batch, alone, several, empty),
            expected=arrays, twice=True),
        Row(cell, build, operands(*["any"] * (count - 2)), (with_batch[:-2],), expected=arrays,
            case="no-biases"),
        Row(cell, build, (FIXED,) * (count - 1), (with_batch[:-1],), expected=arrays,
            case="input-bias"),
    ]  # fmt: skip
    options: dict[str, Any] = {
        "rnn": {"activation": "relu"}, "gru": {"linear_before_reset": False}
    }  # fmt: skip
    option: dict[str, Any] | None = options.get(name)
    if option:
        wanted = {"activation": lambda x: np.maximum(x, 0)} if name == "rnn" else option
        rows.append(
            Row(cell, lambda *args: build(*args, **option), operands(*["any"] * count),
                (with_batch,), expected=lambda *args: arrays(*args, **wanted),
                case=next(iter(option)), twice=True)
        )  # fmt: skip
    return rows


def _layer_rows(name: str) -> list[Row]:
    step, gates, states = _STEPS[name]
    function = getattr(weft, name)
    own = _shapes(gates, 2, 1)
    initial: Any = [(1, 2, 1)] * states

    def given(first: Any) -> Any:
        return tuple(first) if name == "lstm" else first[0]

    def plain(x: TensorOp, *rest: TensorOp) -> Any:
        return _flat_tensor(function(x, rest[states:], given(rest[:states])))

    def plain_arrays(x: Array, *rest: Array) -> Any:
        outputs, last = _along(step, x, [state[0] for state in rest[:states]], *rest[states:])
        return _flat([outputs, *last])

    def backwards(x: TensorOp, *weights: TensorOp) -> Any:
        return _flat_tensor(function(x, weights, reverse=True, batch_first=True))

    def backwards_arrays(x: Array, *weights: Array) -> Any:
        zeros = [np.zeros((x.shape[0], 1))] * states
        turned = np.swapaxes(x, 0, 1)
        outputs, last = _along(step, turned, zeros, *weights, reverse=True)
        return _flat([np.swapaxes(outputs, 0, 1), *last])

    def alone(x: TensorOp, *weights: TensorOp) -> Any:
        return _flat_tensor(function(x, weights))

    def alone_arrays(x: Array, *weights: Any) -> Any:
        outputs, last = _along(step, x, [np.zeros(1)] * states, *weights)
        return _flat([outputs, *last])

    def deep(x: TensorOp, *weights: TensorOp) -> Any:
        sets = [weights[at : at + 2] for at in range(0, 8, 2)]
        return _flat_tensor(function(x, sets, bidirectional=True))

    def deep_arrays(x: Array, *weights: Array) -> Any:
        lasts = []
        for layer in (weights[:4], weights[4:]):
            zeros = [np.zeros((x.shape[1], 1))] * states
            sides = [_along(step, x, zeros, *layer[:2]),
                     _along(step, x, zeros, *layer[2:], reverse=True)]  # fmt: skip
            x = np.concatenate([outputs for outputs, _ in sides], axis=-1)
            lasts += [last for _, last in sides]
        return _flat([x, *(np.stack([last[number] for last in lasts]) for number in range(states))])

    two_layers: Any = ((2, 2, 2), *own[:2] * 2, *_shapes(gates, 2, 1)[:2] * 2)
    return [
        Row(name, plain, operands(*["any"] * (5 + states)),
            (((3, 2, 2), *initial, *own), ((1, 2, 2), *initial, *own),
             ((2, 0, 2), *[(1, 0, 1)] * states, *own)), expected=plain_arrays, twice=True),
        Row(name, backwards, operands(*["any"] * 5), (((2, 3, 2), *own), ((2, 1, 2), *own)),
            ("float32",), expected=backwards_arrays, case="backwards"),
        Row(name, alone, (FIXED,) * 3, (((3, 2), *own[:2]),), ("float32",),
            expected=alone_arrays,
            case="no-batch"),
        Row(name, deep, operands(*["any"] * 9) if name == "rnn" else (FIXED,) * 9, (two_layers,),
            ("float32",), expected=deep_arrays, case="layers"),
    ]  # fmt: skip


def _with_option(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return lambda x, *weights: function(x, weights, **options)[0]


_THREE_BY_TWO: Shapes = (((3, 2, 2), *_shapes(3, 2, 2)),)

ROWS: tuple[Row, ...] = (
    *(row for name in _STEPS for row in (*_cell_rows(name), *_layer_rows(name))),
    Row("rnn", _with_option(weft.rnn, activation="relu"), operands(*["any"] * 5),
        (((3, 2, 2), *_shapes(1, 2, 2)),), case="relu",
        expected=lambda x, *weights: _along(
            _rnn_step, x, [np.zeros((2, 2))], *weights, activation=lambda y: np.maximum(y, 0))[0]),
    Row("gru", _with_option(weft.gru, linear_before_reset=False), operands(*["any"] * 5),
        _THREE_BY_TWO, case="reset-before",
        expected=lambda x, *weights: _along(
            _gru_step, x, [np.zeros((2, 2))], *weights, linear_before_reset=False)[0]),
)  # fmt: skip

_X, _W, _U = (weft.placeholder(shape) for shape in ((3, 2, 2), (4, 2), (4, 4)))
_NAMED = weft.placeholder((weft.Axis(3, "T"), weft.Axis(2, "F")))
_EMPTY, _UNKNOWN = weft.placeholder((0, 2, 2)), weft.placeholder((weft.symbol("t"), 2, 2))


def _cell_refusals(name: str) -> list[Refusal]:
    _, gates, states = _STEPS[name]
    cell = getattr(weft, f"{name}_cell")
    fit, unfit = [_X] * states, [_X[0]] * states
    square = [weft.placeholder((2 * gates, 2))] * 2
    return [
        Refusal(f"{name}_cell", case, build, error, words)
        for case, build, error, words in (
            ("weights", lambda: cell(_X, *fit, _W, _W), AxesError, "must have the shape"),
            ("states", lambda: cell(_X, *unfit, *square), AxesError, "state must have the shape"),
            (
                "role",
                lambda: cell(_NAMED, *fit, _W, _U, features="Z"),
                AxesError,
                "no axis 'Z', given by features=",
            ),
            ("text", lambda: cell("x", *fit, _W, _U), DTypeError, "not made of numbers"),
        )
    ]


def _layer_refusals(name: str) -> list[Refusal]:
    _, gates, states = _STEPS[name]
    layer = getattr(weft, name)
    fit = [weft.placeholder((2 * gates, 2))] * 2
    initial = (_X, _X) if states == 2 else _X
    return [
        Refusal(name, case, build, error, words)
        for case, build, error, words in (
            ("weights", lambda: layer(_X, (_W, _X)), AxesError, "must have the shape"),
            ("no-weights", lambda: layer(_X, _W), ArgumentError, "must be a tuple"),
            ("three-weights", lambda: layer(_X, [(_W, _U, _W)]), ArgumentError, "must be a tuple"),
            ("one-direction", lambda: layer(_X, fit, bidirectional=True), ArgumentError,
             "not two for each layer"),
            ("directions", lambda: layer(_X, [fit, fit], bidirectional=True, reverse=True),
             ArgumentError, "exclude each other"),
            ("flag", lambda: layer(_X, fit, batch_first="yes"), ArgumentError, "True or False"),
            ("rank", lambda: layer(_X[0, 0], fit), AxesError, "time, batch, features"),
            ("no-steps", lambda: layer(_EMPTY, fit), AxesError, "known length of 1 or more"),
            ("unknown-steps", lambda: layer(_UNKNOWN, fit), AxesError, "known length"),
            ("initial", lambda: layer(_X, fit, initial), AxesError, "initial state must have"),
        )
    ]  # fmt: skip


REFUSALS: tuple[Refusal, ...] = (
    *(each for name in _STEPS for each in (*_cell_refusals(name), *_layer_refusals(name))),
    Refusal("lstm", "pair", lambda: weft.lstm(_X, (_W, _W), _X), ArgumentError, "must be a pair"),
    Refusal("rnn", "activation", lambda: weft.rnn(_X, (_W, _W), activation="sin"), ArgumentError,
            "one of tanh, relu"),
    Refusal("rnn_cell", "activation", lambda: weft.rnn_cell(_X, _X, _W, _W, activation=None),
            ArgumentError, "one of tanh, relu"),
    Refusal("gru_cell", "flag", lambda: weft.gru_cell(_X, _X, _W, _W, linear_before_reset=None),
            ArgumentError, "True or False"),
)  # fmt: skip
