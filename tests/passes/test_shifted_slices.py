"""Shifted slices of cheap values are read from the operands of these."""

from typing import Any

import numpy as np
import pytest
from fusing import fuse, prepared
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.ops.indexing.slicing import SliceOp
from weft.testing.reference import evaluate

X, Y, ROW = weft.placeholder((9, 12)), weft.placeholder((9, 12)), weft.placeholder((12,))
SQUARE = weft.placeholder((12, 12))


def difference(x: Any) -> Any:
    return x[1:] - x[:-1]


FROM_OPERANDS = {
    "a flux": difference(X * X * 0.5),
    "of two operands": difference(X * Y),
    "of a broadcast": difference(X * weft.broadcast(ROW, (9, 12))),
    "along both axes": difference((X + Y)[:, 1:]) * difference((X + Y)[:, :-1]),
    "a difference of differences": difference(difference(X)),
    "of a slice": difference(X[:, 2:] * Y[:, :-2]),
    "three of one": (X + Y)[2:] - 2 * (X + Y)[1:-1] + (X + Y)[:-2],
}

IN_MEMORY = {
    "a function that is not cheap": difference(weft.exp(X) * 2),
    "halves": (X + Y)[:4] * (X + Y)[4:8],
    "what is a result": [X * Y, difference(X * Y)],
    "what is read whole": [difference(X * Y), weft.cumsum(X * Y, 0)],
    "an epilogue": difference((X @ SQUARE) + 1),
    "a long chain": difference(weft.maximum(((X + Y) * Y - X) * X + Y, 0) * 2),
    "each other element": (X * Y)[::2] + (X * Y)[1::2][:1],
    "what is reduced": difference(X * weft.sum(X, 1, keepdims=True)),
}


def slices_of_computed(results: Any) -> list[SliceOp]:
    """Return the slices of what kernels compute, after comparing results."""
    parameters = X, Y, ROW, SQUARE
    graph = prepared(results, *parameters)
    rng = np.random.default_rng(0)
    values = [rng.integers(-4, 5, x.axes.shape).astype("f4") for x in parameters]
    fused = fuse(graph)
    for found, wanted in zip(evaluate(fused, values)[0], evaluate(graph, values)[0], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    return [op for op in fused.ops if isinstance(op, SliceOp) and op.args[0].args]


@pytest.mark.parametrize("name", FROM_OPERANDS)
def test_computed_from_slices(name: str):
    assert not slices_of_computed(FROM_OPERANDS[name])


@pytest.mark.parametrize("name", IN_MEMORY)
def test_in_memory(name: str):
    assert slices_of_computed(IN_MEMORY[name])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_slices_of_sums_and_products(data: Any):
    values = [X, Y]
    for _ in range(data.draw(st.integers(1, 8))):
        left, right = (data.draw(st.sampled_from(values)) for _ in range(2))
        shape = [min(a, b) for a, b in zip(left.shape, right.shape, strict=True)]
        parts = []
        for each in (left, right):
            starts = [
                data.draw(st.integers(0, n - m)) for n, m in zip(each.shape, shape, strict=True)
            ]
            parts.append(each[tuple(slice(s, s + m) for s, m in zip(starts, shape, strict=True))])
        made = data.draw(st.sampled_from([weft.add, weft.multiply, weft.maximum]))(*parts)
        cut = data.draw(st.integers(0, 1))
        values += [made, made[cut:, : made.shape[1] - cut]] if min(made.shape) > 2 else [made]
    slices_of_computed([values[-1], data.draw(st.sampled_from(values))])
