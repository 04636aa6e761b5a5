"""Factors say what views show: moves between axis splits give what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.ir.axes import make_axes
from weft.ir.description import contiguous
from weft.ir.dtypes import float32
from weft.ir.views import Layouts
from weft.ops.shape.movement import BroadcastOp, ReshapeOp, TransposeOp
from weft.testing.reference import evaluate
from weft_passes.axis_splitting import (
    Factor,
    align,
    flat,
    lengths,
    moved,
    moves,
    settled,
    translated,
    unsplit,
    view_of,
)
from weft_passes.strides import last_row, suits_products


def value_of(op: weft.TensorOp, x: weft.TensorOp, array: np.ndarray):
    (value,), _ = evaluate(weft.capture([op], [x]), [array])
    return value


def counted(shape: tuple[int, ...]):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@st.composite
def axis_splits(draw: st.DrawFn, factors: list[Any]):
    """Draw axes, of which some have length 1, that consist of the given factors in any order."""
    order = draw(st.permutations(factors))
    cuts = sorted(draw(st.lists(st.integers(0, len(order)), max_size=4)))
    edges = [0, *cuts, len(order)]
    return tuple(tuple(order[a:b]) for a, b in pairwise(edges))


@st.composite
def pairs_of_splits(draw: st.DrawFn):
    """Draw two axis splits, of which the second may have more factors."""
    factors = [Factor(length) for length in draw(st.lists(st.sampled_from((2, 3, 4)), max_size=5))]
    present = (
        [factor for factor in factors if draw(st.booleans())] if draw(st.booleans()) else factors
    )
    return draw(axis_splits(present)), draw(axis_splits(factors))


def shown(array: np.ndarray, split: tuple[Any, ...], target: tuple[Any, ...]):
    """Return an array of one axis split in another, by way of an axis for each factor."""
    have, wanted = flat(split), flat(target)
    order = [have.index(factor) for factor in wanted if factor in have]
    turned = array.reshape([factor.length for factor in have]).transpose(order)
    apart = turned.reshape([factor.length if factor in have else 1 for factor in wanted])
    return np.broadcast_to(apart, [factor.length for factor in wanted]).reshape(lengths(target))


@settings(deadline=None)
@given(pair=pairs_of_splits())
def test_moves_lead_from_one_form_to_another(pair: tuple[Any, ...]):
    split, target = pair
    array = counted(lengths(split))
    x = weft.placeholder(lengths(split))
    op = moved(x, moves(split, target), make_axes(lengths(target)))
    assert op.axes.shape == lengths(target)
    np.testing.assert_array_equal(value_of(op, x, array), shown(array, split, target))


@settings(deadline=None)
@given(pair=pairs_of_splits())
def test_moves_describe_views_as_well(pair: tuple[Any, ...]):
    split, target = pair
    array = counted(lengths(split))
    lies = contiguous(lengths(split), float32)
    for kind, given_ in moves(split, target):
        lies = lies and getattr(lies, kind)(*given_)
    if lies is not None:
        view = np.ndarray(lies.shape, lies.dtype, array, lies.offset, lies.strides)
        np.testing.assert_array_equal(view, shown(array, split, target))


def test_the_same_form_needs_no_move():
    split = unsplit(make_axes((2, 1, 3)))
    assert moves(split, split) == []
    assert [kind for kind, _ in moves(split, split[::-1])] == ["transpose"]


@st.composite
def views(draw: st.DrawFn, x: weft.TensorOp):
    """Draw transpositions, reshapes and broadcasts of a tensor."""
    y = x
    for kind in draw(st.lists(st.sampled_from("trb"), max_size=5)):
        if kind == "t":
            y = TransposeOp(y, permutation=tuple(draw(st.permutations(range(y.rank)))))
        elif kind == "r":
            y = ReshapeOp(y, target_axes=make_axes(draw(splits(y.axes.size))))
        elif y.axes.size < 100:
            place = draw(st.integers(0, y.rank))
            shape = (*y.axes.shape[:place], draw(st.sampled_from((1, 2))), *y.axes.shape[place:])
            dims = tuple(d for d in range(y.rank + 1) if d != place)
            y = BroadcastOp(y, target_axes=make_axes(shape), dims=dims)
    return y


@st.composite
def splits(draw: st.DrawFn, size: int):
    shape = [size]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(shape) - 1))
        part = draw(
            st.sampled_from([n for n in range(1, shape[place] + 1) if not shape[place] % n])
        )
        shape[place : place + 1] = [part, shape[place] // part]
    return tuple(shape)


@settings(deadline=None)
@given(data=st.data(), shape=splits(24))
def test_a_view_is_known_by_its_form(data: st.DataObject, shape: tuple[int, ...]):
    x = weft.placeholder(shape)
    graph = weft.capture([data.draw(views(x))], [x])
    known = {}
    for op in graph.ops[1:]:
        view = view_of(op, known)
        if view is None:
            break
        known[op] = view
    again = [
        moved(view.root, moves(view.root_split, view.split), op.axes) for op, view in known.items()
    ]
    assert all(view.root is graph.inputs[0] for view in known.values())
    both = graph.replace(outputs=[*known, *again])
    values, _ = evaluate(both, [counted(shape)])
    for one, other in zip(values[: len(known)], values[len(known) :], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((24,), (2, 3, 4), (2, 3, 4)),
        ((6, 4), (2, 12), (2, 3, 4)),
        ((4, 6), (8, 3), (4, 2, 3)),
        ((6, 4), (8, 3), None),
        ((2, 3), (3, 2), None),
    ],
)
def test_common_factors_are_found_where_lengths_divide(
    one: tuple[int, ...], other: tuple[int, ...], expected: tuple[int, ...] | None
):
    rows = [tuple(map(Factor, sizes)) for sizes in (one, other)]
    assert align((rows[0],), (rows[1],)) == (expected is not None)
    found = [tuple(factor.length for factor in flat(settled((row,)))) for row in rows]
    assert found == ([one, other] if expected is None else [expected] * 2)
    if expected:
        assert settled((rows[0],)) == settled((rows[1],))


def test_a_form_is_translated_by_what_is_known_of_one_tensor():
    known, other = unsplit(make_axes((4, 6))), unsplit(make_axes((4, 6)))
    assert translated(known[::-1], known, other) == settled(other[::-1])
    a, b = (Factor(2), Factor(3)), (Factor(3), Factor(2))
    assert translated((a,), (a,), (b,)) is None


def test_a_long_chain_of_merged_factors_is_followed_without_recursion():
    first = last = Factor(2)
    for _ in range(10_000):
        last.parts = (Factor(2),)
        (last,) = last.parts
    assert settled(((first,),)) == ((last,),)


@pytest.mark.parametrize(
    ("build", "row", "suits"),
    [
        (lambda x: x, (24, 4), True),
        (weft.transpose, (4, 24), True),
        (lambda x: x[:, ::2], (12, 8), False),
        (lambda x: x[:, :3], (3, 4), True),
        (lambda x: x[::2, :], (6, 4), True),
        (lambda x: x[:, ::-1], (6, -4), False),
        (lambda x: weft.broadcast(x[:1, 0], (4, 6)), (24, 0), False),
    ],
)
def test_strides_are_followed_through_views(
    build: Callable[..., Any], row: tuple[int, ...], suits: bool
):
    x = weft.placeholder((4, 6))
    (output,) = weft.capture([build(x)], [x]).outputs
    lies = Layouts().of(output)
    assert last_row(lies) == row
    assert suits_products(lies) == suits


def test_each_op_that_is_no_view_has_memory_of_its_own():
    x = weft.placeholder((4, 6))
    y = weft.transpose(weft.tanh(weft.transpose(x)))
    (output,) = weft.capture([y], [x]).outputs
    lies = Layouts().of(output)
    assert (lies.strides, type(lies.base).__name__) == ((4, 16), "TanhOp")
