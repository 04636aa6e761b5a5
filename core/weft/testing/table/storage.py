"""Refusals of stored tensors, writes, order and effects."""

from __future__ import annotations

from functools import partial

import weft
from weft.errors import ArgumentError, AxesError, DTypeError
from weft.testing.table.rows import Refusal, Row

_TEXT = (DTypeError, "not made of numbers")

_X, _W = weft.placeholder((2, 3)), weft.variable((2, 3))

ROWS: tuple[Row, ...] = ()

REFUSALS = (
    Refusal("as_op", "text", lambda: weft.as_op("text"), *_TEXT),
    Refusal("as_op", "None", lambda: weft.as_op(None), *_TEXT),
    Refusal("as_ops", "text", lambda: weft.as_ops([1, "a"]), *_TEXT),
    Refusal("constant", "shape", lambda: weft.constant([1, 2], axes=(3,)), AxesError,
            "does not fit"),
    Refusal("constant", "ragged", lambda: weft.constant([[1], [2, 3]]), ArgumentError, "is ragged"),
    Refusal("constant", "fraction", lambda: weft.constant(1.5, dtype="int32"), DTypeError,
            "holds fractions"),
    Refusal("constant", "range", lambda: weft.constant(300, dtype="int8"), DTypeError,
            "-128 to 127"),
    Refusal("constant", "dtype", lambda: weft.constant(1, dtype="int7"), DTypeError, "use one of"),
    Refusal("placeholder", "negative", lambda: weft.placeholder((-1,)), AxesError, "negative"),
    Refusal("placeholder", "text", lambda: weft.placeholder("abc"), AxesError, "from the text"),
    Refusal("placeholder", "fraction", lambda: weft.placeholder((2.5,)), AxesError, "an integer"),
    Refusal("placeholder", "dtype", lambda: weft.placeholder((2,), "text"), DTypeError,
            "use one of"),
    *(
        Refusal(name, "initial-value", partial(getattr(weft, name), (2,), initial_value=[1]),
                AxesError, "initial value")
        for name in ("variable", "persistent_tensor", "temporary")
    ),
    Refusal("set_item", "text", lambda: weft.set_item(_W, "a", 1), ArgumentError, "an integer"),
    Refusal("sequential", "nothing", lambda: weft.sequential([]), ArgumentError, "at least one"),
    Refusal("sequential", "no-list", lambda: weft.sequential(_X), ArgumentError, "takes a list"),
    Refusal("doall", "number", lambda: weft.doall([3]), ArgumentError, "takes ops"),
    Refusal("computation", "number", lambda: weft.computation(3), ArgumentError, "returns ops"),
    Refusal("computation", "no-placeholder", lambda: weft.computation(_X, _X + 1), ArgumentError,
            "not a placeholder"),
    Refusal("print_op", "text", lambda: weft.print_op("a"), *_TEXT),
    Refusal("stop_gradient", "None", lambda: weft.stop_gradient(None), DTypeError, "not made of"),
    Refusal("check_finite", "text", lambda: weft.check_finite("a"), DTypeError, "not made of"),
)  # fmt: skip
