"""Rows of the op table: stored tensors, writes, order."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import weft
from weft.errors import AxesError, DTypeError, StateError
from weft.ir.dtypes import Array
from weft.ir.op import Op
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import ALL, CUBE, NUMBERS, ONE, Refusal, Row, fixed, operands


def _like(x: TensorOp) -> Any:
    return weft.variable(x.axes, x.dtype)


def _after(write: Op, value: TensorOp) -> Any:
    return weft.sequential([write, value])


def _assigned(x: TensorOp) -> Any:
    state = _like(x)
    return _after(weft.assign(state, x), state + state)


def _assigned_twice(x: TensorOp) -> Any:
    state = _like(x)
    weft.SetItem(state, x)
    before = weft.value_of(state)
    weft.SetItem(state, state + x)
    return state + before


def _assigned_slice(x: TensorOp) -> Any:
    state = _like(x)
    weft.assign(state, x)
    state[..., ::-2] = 0
    weft.set_item(state, (0,), x[1])
    return state + 0


def _filled(x: TensorOp) -> Any:
    state = _like(x)
    weft.fill(state, 1)
    return state + x


def _old_value(x: TensorOp) -> Any:
    state = _like(x)
    weft.assign(state, x)
    old = weft.value_of(state)
    weft.assign(state, state + 1)
    return old + state


def _all_done(x: TensorOp) -> Any:
    first, second = _like(x), _like(x)
    with weft.saved_user_deps():
        both = weft.doall([weft.assign(first, x), weft.assign(second, x + x)])
    return weft.sequential([both, first + second])


def _in_order(x: TensorOp) -> Any:
    state = _like(x)
    with weft.saved_user_deps():
        members = [weft.assign(state, x), weft.assign(state, state + state), state + 1]
    return weft.sequential(members)


def _changed(write: Any) -> Any:
    """Return a builder of a state of ones after a write of the operand."""

    def build(x: TensorOp) -> Any:
        state = weft.persistent_tensor(x.axes, x.dtype, 1)
        return _after(write(state, x), state + 0)

    return build


def _averaged_twice(x: TensorOp, decay: TensorOp) -> Any:
    state = weft.persistent_tensor(x.axes, x.dtype, 1)
    weft.moving_average(state, x, decay)
    weft.moving_average(state, x, decay)
    return weft.value_of(state)


def _function(name: str) -> Any:
    return getattr(weft, name)


def _stored(kind: Any) -> Any:
    def build(x: TensorOp) -> Any:
        initial = np.ones(x.axes.shape, x.dtype)
        return kind(x.axes, x.dtype, initial_value=initial) + x

    return build


def _plus_one(x: Any) -> Any:
    return x + np.ones((), x.dtype)


def _with_slices(x: Array) -> Any:
    result = np.array(x)
    result[..., ::-2] = 0
    result[0] = x[1]
    return result


ROWS: tuple[Row, ...] = (
    Row("assign", _assigned, fixed("any"), ONE, NUMBERS, lambda x: x + x),
    Row("SetItem", _assigned_twice, fixed("any"), dtypes=NUMBERS, expected=lambda x: 3 * x),
    Row("set_item", _assigned_slice, fixed("any"), dtypes=NUMBERS, expected=_with_slices),
    Row("fill", _filled, fixed("any"), dtypes=NUMBERS, expected=_plus_one),
    Row("value_of", _old_value, fixed("any"), dtypes=NUMBERS, expected=lambda x: 2 * x + 1),
    Row("doall", _all_done, fixed("any"), dtypes=NUMBERS, expected=lambda x: 3 * x),
    Row("sequential", _in_order, fixed("any"), dtypes=NUMBERS, expected=lambda x: 2 * x + 1),
    Row("sequential", lambda x: _after(x + 1, x * x), operands("any"), dtypes=NUMBERS,
        expected=lambda x: x * x, case="value"),
    *(
        Row(name, _stored(getattr(weft, name)), operands("any"), ONE, NUMBERS, lambda x: x + 1)
        for name in ("placeholder", "variable", "persistent_tensor")
    ),
    Row("constant", lambda x: x + weft.constant(1, x.axes, x.dtype), operands("any"), ONE, NUMBERS,
        lambda x: x + 1),
    Row("as_op", lambda x: weft.as_op(np.ones((), x.dtype)) + weft.as_op(x), operands("any"),
        dtypes=NUMBERS, expected=lambda x: x + 1),
    Row("as_ops", lambda x: weft.concat(weft.as_ops([x, x])), operands("any"), dtypes=ALL,
        expected=lambda x: np.concatenate([x, x])),
    Row("print_op", lambda x: weft.print_op(x + x, "twice:"), operands("any"), dtypes=NUMBERS,
        expected=lambda x: x + x),
    *(
        Row("accumulate", _changed(lambda state, x, f=factor: weft.accumulate(state, x, *f)),
            fixed("any"), shapes, NUMBERS, lambda x, f=factor: 1 + x * (f or (1,))[0], case)
        for case, factor, shapes in (("", (), ONE), ("factor", (2,), CUBE))
    ),
    Row("scaled_add", _changed(lambda state, x: weft.scaled_add(state, x, 3, 2)), fixed("any"),
        ONE, NUMBERS, lambda x: 3 + 2 * x),
    Row("scaled_add", _changed(lambda state, x: weft.scaled_add(state, 2, x, x)), fixed("any"),
        dtypes=NUMBERS, expected=lambda x: 3 * x, case="tensors"),
    Row("moving_average", _changed(lambda state, x: weft.moving_average(state, x, 0.75)),
        fixed("any"), ONE, expected=lambda x: 0.75 + 0.25 * x),
    Row("moving_average", _averaged_twice, fixed("any", "unit"), (((2, 3), ()),),
        expected=lambda x, d: (d * (d + (1 - d) * x) + (1 - d) * x), case="twice"),
)  # fmt: skip

_STATE, _COUNT, _UNFIT = (
    weft.persistent_tensor((2, 3)), weft.persistent_tensor((), "int32"), weft.placeholder((4,))
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal(name, case, partial(_function(name), target, value, *rest), error, words)
        for name, rest in (
            ("assign", ()), ("SetItem", ()), ("fill", ()), ("accumulate", ()), ("scaled_add", ()),
            ("moving_average", (0.5,)),
        )
        for case, target, value, error, words in (
            ("no-state", _STATE + 1, 1, StateError, "is not assignable, it is not a stored tensor"),
            ("constant", weft.constant(1), 1, StateError, "it is a constant"),
            ("shape", _STATE, _UNFIT, AxesError, "does not fit"),
            ("text", _STATE, "one", DTypeError, "not made of numbers"),
            ("complex", _STATE, 1j, DTypeError, "do not fit float32"),
        )
    ),
    Refusal("set_item", "no-state", lambda: weft.set_item(_STATE + 1, 0, 1), StateError,
            "is not assignable"),
    Refusal("set_item", "range", lambda: weft.set_item(_STATE, 2, 1), AxesError, "out of range"),
    Refusal("set_item", "shape", lambda: weft.set_item(_STATE, 0, _UNFIT), AxesError, "broadcast"),
    Refusal("value_of", "text", lambda: weft.value_of("x"), DTypeError, "not made of numbers"),
    Refusal("accumulate", "fraction", lambda: weft.accumulate(_COUNT, 0.5), DTypeError,
            "holds fractions"),
    Refusal("moving_average", "integers", lambda: weft.moving_average(_COUNT, 1, 0.5), DTypeError,
            "needs a float dtype"),
)  # fmt: skip
