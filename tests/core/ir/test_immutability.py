"""Ops stay as they were built, whatever is computed from them; what is remembered is in a memo."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.traversal import postorder


def program() -> tuple[Any, Any, list[Any]]:
    """Return a loss of a model with states, a loop, a call and random numbers, and its parts."""
    x = weft.placeholder((4, 3), name="x")
    w = weft.variable((3, 3), initial_value=np.eye(3), name="w")
    f = weft.capture([weft.tanh(x @ w)], [x])
    (y,) = weft.call(f, x)
    (y,) = weft.loop(f, 3, y)
    loss = weft.mean(weft.square(y + weft.uniform((4, 3)) + np.ones((4, 3), np.float32)))
    weft.assign(w, w - 0.1 * weft.deriv(loss, w))
    return x, loss, postorder([loss], lambda op: op.args)


def stored(op: Any) -> dict[str, Any]:
    """Return the attributes of an op, except properties that follow from the others."""
    return {
        name: value
        for name, value in vars(op).items()
        if not hasattr(getattr(type(op), name, None), "attrname")
    }


def test_an_op_is_as_it_was_built() -> None:
    x, loss, ops = program()
    before = [stored(op) for op in ops]
    weft.deriv(loss, x)
    with weft.make_transformer("numpy") as transformer:
        transformer.computation([loss, weft.deriv(loss, x)], x)(np.ones((4, 3), np.float32))
    after = [stored(op) for op in ops]
    assert len(ops) > 10
    for op, one, other in zip(ops, before, after, strict=True):
        assert one.keys() == other.keys(), op
        assert all(one[name] is other[name] for name in one), op


def test_what_is_remembered_is_made_once_and_not_copied() -> None:
    op = weft.exp(weft.placeholder((2,)))
    assert op.memo("key", list) is op.memo("key", list)
    copy = op.with_args(op.args)
    assert copy.memo("key", list) is not op.memo("key", list)
    assert vars(op).keys() == vars(copy).keys() | {"_name"} & vars(op).keys()


def test_threads_get_the_same() -> None:
    for _ in range(50):
        op = weft.exp(weft.placeholder((2,)))
        start, found = threading.Barrier(4), []

        def ask(op: Any = op, start: Any = start, found: Any = found) -> None:
            start.wait()
            found.append(op.memo("key", list))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(each is found[0] for each in found)


def test_a_field_cannot_have_the_name_of_what_every_op_has() -> None:
    with pytest.raises(TypeError, match="every op has memo: rename the field"):

        class Odd(weft.Op):
            memo: int
