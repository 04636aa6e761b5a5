"""Einstein's notation: any equation gives what NumPy's einsum gives, through few plain products."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import AxesError
from weft.ops.pointwise.elementwise import MultiplyOp
from weft.ops.products.linalg import DotOp
from weft.testing.reference import evaluate

LETTERS = "ijKl"


class Example(NamedTuple):
    equation: str
    shapes: list[tuple[int, ...]]


@st.composite
def examples(draw: Any) -> Example:
    """Return an equation, and shapes that it takes; some axes of length 1 broadcast."""
    sizes = {letter: draw(st.integers(0, 3)) for letter in LETTERS}
    around = draw(st.lists(st.integers(0, 2), max_size=2))
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        letters = draw(st.lists(st.sampled_from(LETTERS), max_size=3))
        mine = {letter: draw(st.sampled_from([sizes[letter]] * 3 + [1])) for letter in letters}
        shape = [mine[letter] for letter in letters]
        if draw(st.booleans()):
            count = draw(st.integers(0, len(around)))
            dots = around[len(around) - count :]
            dots = [draw(st.sampled_from([length, 1])) for length in dots]
            place = draw(st.integers(0, len(letters)))
            letters.insert(place, "...")
            shape[place:place] = dots
        terms.append("".join(letters))
        shapes.append(tuple(shape))
    equation = ",".join(terms)
    if draw(st.booleans()):
        return Example(equation, shapes)
    found = sorted(set(equation) & set(LETTERS))
    result = draw(st.permutations(found))[: draw(st.integers(0, len(found)))]
    if "..." in equation:
        result.insert(draw(st.integers(0, len(result))), "...")
    return Example(f"{equation}->{''.join(result)}", shapes)


def arrays_for(shapes: list[tuple[int, ...]]) -> list[Any]:
    random = np.random.default_rng(len(shapes))
    return [random.integers(-3, 4, shape).astype("float64") for shape in shapes]


def value_of(op: Any, placeholders: list[Any], arrays: list[Any]) -> Any:
    (value,), _ = evaluate(weft.capture([op], placeholders), arrays)
    return value


@settings(deadline=None, derandomize=True, database=None, max_examples=300)
@given(example=examples())
def test_einsum_is_that_of_numpy(example: Any):
    arrays = arrays_for(example.shapes)
    placeholders = [weft.placeholder(shape, "float64") for shape in example.shapes]
    result = weft.einsum(example.equation, *placeholders)
    expected = np.einsum(example.equation, *arrays)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(value_of(result, placeholders, arrays), expected)


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(example=examples())
def test_a_compiled_einsum_and_its_gradients(example: Any):
    """The sum is linear in each operand, so operand times gradient adds up to the sum again."""
    arrays = arrays_for(example.shapes)
    placeholders = [weft.placeholder(shape, "float64") for shape in example.shapes]
    result = weft.einsum(example.equation, *placeholders)
    total = weft.sum(result)
    gradients = [weft.deriv(total, x) for x in placeholders]
    compute = weft.make_transformer("numpy").computation([result, *gradients], *placeholders)
    value, *slopes = compute(*arrays)
    np.testing.assert_array_equal(value, np.einsum(example.equation, *arrays))
    for array, slope in zip(arrays, slopes, strict=True):
        assert np.sum(array * slope) == np.sum(value)


def products(op: Any, placeholders: list[Any]) -> list[Any]:
    ops = weft.capture([op], placeholders).ops
    return [each for each in ops if isinstance(each, DotOp | MultiplyOp)]


@pytest.mark.parametrize(
    ("shapes", "first"),
    [([(2, 9), (9, 9), (9, 9)], (2, 9)), ([(9, 9), (9, 9), (9, 2)], (9, 2))],
)
def test_the_cheapest_order_is_taken(shapes: list[Any], first: tuple[int, ...]):
    xs = [weft.placeholder(shape) for shape in shapes]
    found = products(weft.einsum("ij,jk,kl->il", *xs), xs)
    assert [type(op) for op in found] == [DotOp, DotOp]
    assert found[0].shape == first


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ki"])
def test_two_operands_with_a_shared_sum_are_one_product(equation: str):
    x, y = weft.placeholder((3, 4)), weft.placeholder((4, 2))
    result = weft.einsum(equation, x, y)
    assert isinstance(result, DotOp)
    assert set(result.args) == {x, y}


def test_a_diagonal_and_a_transpose_are_views():
    x = weft.placeholder((3, 3))
    for equation in ("ii->i", "ij->ji", "...->..."):
        source = weft.make_transformer("numpy").computation(weft.einsum(equation, x), x).source
        assert "matmul" not in source
        assert source.count("r0[...] = ") == 1


def test_unknown_lengths():
    n = weft.symbol("n")
    x, y, z = (weft.placeholder(shape) for shape in ((n, n), (n, 3), (3, n)))
    equations = {
        "ii->i": (x,),
        "ij,jk->ki": (x, y),
        "ij,jk,kl->il": (x, y, z),
        "ii,ik,kl->": (x, y, z),
    }
    results = [weft.einsum(equation, *operands) for equation, operands in equations.items()]
    compute = weft.make_transformer("numpy").computation(results, x, y, z)
    for size in (2, 0, 5):
        arrays = [
            np.arange(np.prod(shape)).reshape(shape)
            for shape in ((size, size), (size, 3), (3, size))
        ]
        values = compute(*arrays)
        by_op = dict(zip((x, y, z), arrays, strict=True))
        for value, (equation, operands) in zip(values, equations.items(), strict=True):
            expected = np.einsum(equation, *(by_op[op] for op in operands))
            np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_an_unknown_length_fits_only_itself():
    x, y = weft.placeholder((weft.symbol("n"),)), weft.placeholder((weft.symbol("m"),))
    with pytest.raises(AxesError, match="an unknown length equals only itself"):
        weft.einsum("i,i->", x, y)


def test_opt_einsum_is_imported_for_three_operands_only():
    program = """
import sys, weft
x = weft.placeholder((3, 3))
weft.einsum("ij,jk->ik", x, x)
assert "opt_einsum" not in sys.modules
weft.einsum("ij,jk,kl->il", x, x, x)
assert "opt_einsum" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_message_marks_the_place():
    x = weft.placeholder((2, 3))
    with pytest.raises(AxesError) as caught:
        weft.einsum("ij,jk->ik", x, x)
    assert str(caught.value).splitlines()[:3] == [
        "einsum: 'j' has length 2 in operand 1, but 3 before",
        "  ij,jk->ik",
        "     ^",
    ]
    assert "test_einsum.py" in str(caught.value)
