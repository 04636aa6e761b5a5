"""Symbolic lengths: polynomials, compared with the integers that they stand for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import weft
from weft.errors import AxesError
from weft.ir.lengths import Length, evaluate, floor_divide, product, substitute, symbol, symbols_of

NAMES = ("a", "b", "c")
OPERATIONS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod,
}  # fmt: skip

leaves = st.one_of(st.integers(-4, 6), st.sampled_from(NAMES))
trees = st.recursive(
    leaves, lambda below: st.tuples(st.sampled_from(list(OPERATIONS)), below, below), max_leaves=8
)
sizes = st.tuples(*(st.integers(0, 7) for _ in NAMES))


def compute(tree: Any, values: dict[str, Any]):
    """Evaluate a tree over what each name stands for: a number or a symbol."""
    if not isinstance(tree, tuple):
        return values.get(tree, tree)
    operation, left, right = tree
    left, right = compute(left, values), compute(right, values)
    if operation == "//" and isinstance(right, int):
        assume(right != 0)
    return OPERATIONS[operation](left, right)


@given(tree=trees, numbers=sizes)
def test_arithmetic_is_that_of_integers(tree: Any, numbers: tuple[int, ...]):
    symbols = {name: symbol(name) for name in NAMES}
    known = dict(zip(NAMES, numbers, strict=True))
    try:
        expected = compute(tree, known)
    except ZeroDivisionError:
        assume(False)
    length = compute(tree, symbols)
    assert isinstance(length, int | Length)
    got = evaluate(length, {symbols[name]: size for name, size in known.items()})
    assert got == expected
    assert type(got) is int


@given(tree=trees, numbers=sizes)
def test_symbols_can_be_solved_one_after_the_other(tree: Any, numbers: tuple[int, ...]):
    symbols = {name: symbol(name) for name in NAMES}
    try:
        length = compute(tree, symbols)
        expected = compute(tree, dict(zip(NAMES, numbers, strict=True)))
        for name, size in zip(NAMES, numbers, strict=True):
            length = substitute(length, {symbols[name].as_symbol(): size})
    except ZeroDivisionError:
        assume(False)
    assert length == expected


@given(left=trees, right=trees, numbers=sizes)
def test_equal_lengths_are_equal_numbers_and_hash_alike(
    left: Any, right: Any, numbers: tuple[int, ...]
):
    symbols = {name: symbol(name) for name in NAMES}
    known = {symbols[name]: size for name, size in zip(NAMES, numbers, strict=True)}
    try:
        a, b = compute(left, symbols), compute(right, symbols)
        if a == b:
            assert hash(a) == hash(b)
            assert evaluate(a, known) == evaluate(b, known)
        assert a - a == 0
        assert a + b == b + a
        assert a * b == b * a
        assert (a + b) - b == a
        assert a * 2 == a + a
    except ZeroDivisionError:
        assume(False)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (lambda n, m: n + 2 - 2, lambda n, m: n),
        (lambda n, m: n * m, lambda n, m: m * n),
        (lambda n, m: (n * m) // m, lambda n, m: n),
        (lambda n, m: (4 * n + 2) // 2, lambda n, m: 2 * n + 1),
        (lambda n, m: (6 * n * m) // (2 * n), lambda n, m: 3 * m),
        (lambda n, m: n // 2, lambda n, m: n // 2),
        (lambda n, m: n - n, lambda n, m: 0),
        (lambda n, m: (n + 1) * (n - 1), lambda n, m: n * n - 1),
        (lambda n, m: n // n, lambda n, m: 1),
        (lambda n, m: (n - 2) // 2 + 1, lambda n, m: n // 2),
        (lambda n, m: (4 * n + 2) // 4, lambda n, m: n),
        (lambda n, m: (2 * n + 1) // 4, lambda n, m: n // 2),
        (lambda n, m: (n * m + 5) // n, lambda n, m: m + 5 // n),
        (lambda n, m: ((n - 1) // 2 - m) // 2, lambda n, m: (n - 2 * m - 1) // 4),
        (lambda n, m: (m - (n + 3) // 2) // 4, lambda n, m: (2 * m - n - 2) // 8),
        (lambda n, m: n // -2, lambda n, m: -((n + 1) // 2)),
        (lambda n, m: n // np.int64(2), lambda n, m: n // 2),
        (lambda n, m: product((n, 2, m)), lambda n, m: 2 * n * m),
    ],
)
def test_simplification(length: Callable[..., Any], expected: Callable[..., Any]):
    n, m = symbol("n"), symbol("m")
    assert length(n, m) == expected(n, m)


@given(length=trees, remainder=st.integers(0, 20), outer=st.integers(1, 9), inner=st.integers(1, 9))
def test_quotients_by_integers_have_a_normal_form(
    length: Any, remainder: int, outer: int, inner: int
):
    symbols = {name: symbol(name) for name in NAMES}
    try:
        x = compute(length, symbols)
    except ZeroDivisionError:
        assume(False)
    n = symbol("n")
    assert (outer * x + remainder % outer) // outer == x
    assert (inner * x) // (inner * outer) == x // outer
    assert -(-x // outer) == (x + outer - 1) // outer
    assert (n // inner + remainder) // outer == (n + inner * remainder) // (inner * outer)


def test_a_network_of_unknown_height_and_width_is_one_graph(transformer: weft.Transformer):
    """A residual block of stride 2 adds two convolutions, whose lengths are found equal."""
    height, width = weft.symbol("height"), weft.symbol("width")
    x = weft.placeholder((1, 2, height, width))
    w, short = weft.placeholder((2, 2, 3, 3)), weft.placeholder((2, 2, 1, 1))

    def network(x: Any, w: Any, short: Any):
        for _ in range(2):
            x = weft.conv(x, w, 2, padding=1) + weft.conv(x, short, 2)
        return weft.max_pool(x, 3, 2, padding=1)

    result = network(x, w, short)
    assert result.axes.lengths[2:] == ((height + 7) // 8, (width + 7) // 8)
    c = transformer.computation(result, x, w, short)
    rng = np.random.default_rng(0)
    filters = [rng.standard_normal(op.axes.shape).astype(np.float32) for op in (w, short)]
    for size in ((8, 9), (5, 16)):
        image = rng.standard_normal((1, 2, *size)).astype(np.float32)
        known = weft.jit(network)(image, *filters)
        np.testing.assert_allclose(c(image, *filters), known, rtol=1e-5, atol=1e-5)


def test_symbols_are_equal_only_to_themselves():
    n = symbol("n")
    assert n == n
    assert n != symbol("n")
    assert n != 3
    assert n.as_symbol() is not None
    assert (n + 1).as_symbol() is None
    assert (2 * n).as_symbol() is None
    assert list(symbols_of([n * 2, 3, n // 2])) == [n.as_symbol(), n.as_symbol()]


def test_lengths_read_like_arithmetic():
    n, m = symbol("n"), symbol("m")
    assert str(n) == "n"
    assert str(2 * n + 1) == "2*n + 1"
    assert str(n - 1) == "n - 1"
    assert str((n + 1) // 2) == "(n + 1)//(2)"
    assert str(n * m) in ("n*m", "m*n")


def test_division_of_integers():
    assert floor_divide(7, 2) == 3
    assert floor_divide(-7, 2) == -4


def test_a_computation_is_specialized_for_each_solution(transformer: weft.Transformer):
    n = weft.symbol("n")
    x, y = weft.placeholder((n, 3)), weft.placeholder((n,))
    flat = weft.reshape(x, (-1,))
    assert flat.axes.lengths == (3 * n,)
    c = transformer.computation([weft.sum(x, 1) + y, flat[::2], weft.concat([y, y])], x, y)
    for size in (1, 4, 7, 4, 0):
        a = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        b = np.arange(size, dtype=np.float32)
        got = c(a, b)
        np.testing.assert_array_equal(got[0], a.sum(1) + b)
        np.testing.assert_array_equal(got[1], a.reshape(-1)[::2])
        np.testing.assert_array_equal(got[2], np.concatenate([b, b]))
    assert len(c.programs) == 4


@pytest.mark.parametrize(
    "take",
    [
        lambda x: x[:3],
        lambda x: x[-3:],
        lambda x: x[2],
        lambda x: x[2::-1],
        lambda x: weft.update_slice(x, (slice(0, 3),), 1),
    ],
    ids=["start", "end", "index", "backwards", "update"],
)
def test_a_slice_that_reaches_outside_a_solved_length_is_refused(
    transformer: weft.Transformer, take: Callable[..., Any]
):
    n = weft.symbol("n")
    x = weft.placeholder((n,))
    y = take(weft.tanh(x))
    c = transformer.computation(y, x)
    with pytest.raises(AxesError, match="reaches outside") as caught:
        c([1, 2])
    assert y.file_info in str(caught.value)
    value = np.arange(4, dtype=np.float32)
    alone = transformer.computation(take(weft.tanh(weft.constant(value))))
    np.testing.assert_allclose(c(value), alone(), rtol=1e-6)


def test_lengths_can_be_given(transformer: weft.Transformer):
    n = weft.Axis(None, "N")
    w = weft.variable((n,), initial_value=2)
    c = transformer.computation(weft.sum(w, (n,)), axes={n: 6})
    assert c().item() == 12


@pytest.mark.parametrize("most", [0, -1, 2.0, True, "8"])
def test_a_maximum_is_a_positive_integer(most: Any):
    with pytest.raises(AxesError, match="max= of the symbol n must be an integer above 0"):
        weft.symbol("n", max=most)
    assert weft.symbol("n", max=np.int64(8)).as_symbol().maximum == 8


def test_a_length_is_a_number_where_a_tensor_computes_with_it(transformer: weft.Transformer):
    n = weft.symbol("n")
    x = weft.placeholder((n,), weft.float64)
    results = [x / n, n - x, x * (n // 2), weft.as_op(n * n + 1), weft.sum(x) / x.shape[0]]
    assert all(op.dtype == weft.float64 for op in results[:3])
    for count in (4, 7):
        row = np.arange(float(count))
        found = transformer.computation(results, x)(row)
        wanted = row / count, count - row, row * (count // 2), count * count + 1, row.mean()
        for one, two in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, two)
