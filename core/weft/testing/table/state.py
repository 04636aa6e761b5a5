"""Rows of the op table: stored tensors, writes, order, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from weft.testing.table.rows import ALL, NUMBERS, ONE, Refusal, Row, Shapes, fixed, operands

_NOTHING: Shapes = ((),)


def _like(x: Any) -> Any:
    return weft.variable(x.axes, x.dtype)


def _after(write: Any, value: Any) -> Any:
    return weft.sequential([write, value])


def _assigned(x: Any) -> Any:
    state = _like(x)
    return _after(weft.assign(state, x), state + state)


def _assigned_twice(x: Any) -> Any:
    state = _like(x)
    weft.SetItem(state, x)
    before = weft.value_of(state)
    weft.SetItem(state, state + x)
    return state + before


def _assigned_slice(x: Any) -> Any:
    state = _like(x)
    weft.assign(state, x)
    state[..., ::-2] = 0
    weft.set_item(state, (0,), x[1])
    return state + 0


def _filled(x: Any) -> Any:
    state = _like(x)
    weft.fill(state, 1)
    return state + x


def _old_value(x: Any) -> Any:
    state = _like(x)
    weft.assign(state, x)
    old = weft.value_of(state)
    weft.assign(state, state + 1)
    return old + state


def _all_done(x: Any) -> Any:
    first, second = _like(x), _like(x)
    with weft.saved_user_deps():
        both = weft.doall([weft.assign(first, x), weft.assign(second, x + x)])
    return weft.sequential([both, first + second])


def _in_order(x: Any) -> Any:
    state = _like(x)
    with weft.saved_user_deps():
        members = [weft.assign(state, x), weft.assign(state, state + state), state + 1]
    return weft.sequential(members)


def _stored(kind: Any) -> Any:
    def build(x: Any) -> Any:
        initial = np.ones(x.axes.shape, x.dtype)
        return kind(x.axes, x.dtype, initial_value=initial) + x

    return build


def _plus_one(x: Any) -> Any:
    return x + np.ones((), x.dtype)


def _with_slices(x: Any) -> Any:
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
    Row("random_bits", lambda: weft.random_bits((2, 3), seed=7, stream=3), (), _NOTHING,
        ("float32",)),
    Row("random_bits", lambda: weft.random_bits((5,), 2**32 - 1, 1), (), _NOTHING, ("float32",),
        case="large-seed"),
    Row("uniform", lambda: weft.uniform((3, 5), -1, 3, "float32", 1, 2), (), _NOTHING,
        ("float32",)),
    Row("normal", lambda: weft.normal((3, 5), 1, 2, "float32", 1, 2), (), _NOTHING, ("float32",)),
)  # fmt: skip

REFUSALS: tuple[Refusal, ...] = ()
