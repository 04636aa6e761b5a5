"""Which kernels read paddings and concatenations piece by piece, and which do not."""

from typing import Any

import numpy as np
import pytest
from fusing import fuse, fusible, kernels, prepared

import weft
from weft.ir.op import Op
from weft.kernels import PiecewiseOp
from weft.ops.shape.joining import ConcatOp, PadOp
from weft.testing.reference import evaluate

X, Y = weft.placeholder((40, 60)), weft.placeholder((40, 60))
SMALL, SQUARE = weft.placeholder((4, 4)), weft.placeholder((60, 60))
STATE = weft.variable((40, 60), initial_value=np.zeros((40, 60), np.float32))


def takes_pieces(op: Op) -> bool:
    return isinstance(op, PadOp | ConcatOp) or fusible(op)


def below(x: Any) -> Any:
    """Return the rows moved down by one."""
    return weft.pad(x, ((1, 0), (0, 0)))[:-1]


PIECEWISE = {
    "a slice of a padding": (weft.tanh(below(X)) + X, ["piecewise_tanh_add"]),
    "two slices of one": (
        X + weft.pad(X, ((1, 1), (0, 0)))[2:] * weft.pad(X, ((1, 1), (0, 0)))[:-2],
        ["piecewise_multiply_add"]),
    "a padding": (weft.exp(weft.pad(X, ((1, 1), (0, 0)))), ["piecewise_exp"]),
    "two readers": (
        [weft.exp(below(X)), weft.cumsum(weft.tanh(below(X)) * Y, 0)],
        ["piecewise_exp_tanh_multiply"]),
    "a concatenation": (weft.exp(weft.concat([X, Y], 0)), ["piecewise_exp"]),
    "what is rolled": (X - weft.roll(X, 1, 1), ["piecewise_subtract"]),
    "what is computed, in a kernel of its own": (
        weft.tanh(below(weft.exp(X) * 2)), ["exp_multiply", "piecewise_tanh"]),
}  # fmt: skip

IN_MEMORY = {
    "a padding that is a result": [weft.pad(X, ((1, 0), (0, 0))), below(X) * 2],
    "a reader that is not a kernel": [weft.cumsum(below(X), 0), below(X) * 2],
    "a reduction": weft.sum(below(X) * 2, axis=1),
    "a product": weft.tanh(below(X) * 2) @ SQUARE,
    "rows that are mostly border": weft.tanh(weft.pad(SMALL, ((0, 0), (1, 1)))),
    "halves of rows": weft.tanh(weft.concat([X, Y], 1)),
    "many parts": weft.tanh(weft.concat([X] * 5, 0)),
    "a broadcast of it": weft.tanh(weft.broadcast(weft.pad(X[0], ((1, 1),)), (9, 62)) + 1),
    "what is overwritten": [weft.assign(STATE, below(STATE) + STATE)],
}


@pytest.mark.parametrize("name", PIECEWISE)
def test_read_piece_by_piece(name: str):
    results, titles = PIECEWISE[name]
    graph = prepared(results, X, Y)
    found = fuse(graph, fusible=takes_pieces)
    assert [each.title for each in kernels(found)] == titles
    assert not any(isinstance(op, PadOp | ConcatOp) for op in found.ops)
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((40, 60), np.float32) for _ in found.inputs]
    for mine, wanted in zip(evaluate(found, arrays)[0], evaluate(graph, arrays)[0], strict=True):
        np.testing.assert_array_equal(mine, wanted)


@pytest.mark.parametrize("name", IN_MEMORY)
def test_padded_in_memory(name: str):
    found = fuse(prepared(IN_MEMORY[name]), fusible=takes_pieces)
    assert any(isinstance(op, PadOp | ConcatOp) for op in found.ops)
    assert not any(isinstance(each.op, PiecewiseOp) for it in kernels(found) for each in it.body)


def test_a_target_that_cannot_choose_pieces_has_none():
    found = fuse(prepared(PIECEWISE["a slice of a padding"][0]))
    assert [each.title for each in kernels(found)] == ["tanh_add"]
