"""Tests of this package where it is installed; weft's own kit tests the backend besides.

python -m pytest tests --pyargs weft.testing --weft-backend=toy
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from weft_toy.ops import PolynomialOp, polynomial
from weft_toy.passes import DirectCasts

import weft
from weft.errors import ArgumentError, DTypeError
from weft.testing.cases import make_cases, run_cases
from weft.testing.numeric import ACCURACY, numeric_derivative
from weft.testing.random_graphs import programs
from weft.testing.reference import evaluate
from weft.testing.table.rows import ONE, Row

COEFFICIENTS = (1.0, -2.0, 0.0, 0.5)
ROW = Row(
    "polynomial",
    lambda x: polynomial(x, COEFFICIENTS),
    shapes=ONE,
    expected=lambda x: np.polynomial.polynomial.polyval(x, COEFFICIENTS),
)


@pytest.mark.parametrize("dtype", [*ROW.dtypes, "float16", "bfloat16", "complex64"])
def test_value_and_gradient_are_those_of_the_reference(transformer: weft.Transformer, dtype: Any):
    assert run_cases(transformer, make_cases(ROW, dtype)) == []


def test_the_reference_is_the_polynomial():
    x = weft.placeholder((3,), "float64")
    graph = weft.capture([polynomial(x, COEFFICIENTS)], [x])
    array = np.array([-1.5, 0.0, 2.0])
    (value,), _ = evaluate(graph, [array])
    np.testing.assert_allclose(value, ROW.expected(array), rtol=1e-15)


def test_the_gradient_is_a_central_difference_and_so_is_the_second():
    x = weft.placeholder((3,), "float64")
    slope = weft.deriv(weft.sum(polynomial(x, COEFFICIENTS)), x)
    curvature = weft.deriv(weft.sum(slope), x)
    array = np.array([-1.5, 0.0, 2.0])

    def total(op: Any, values: Any):
        (value,), _ = evaluate(weft.capture([weft.sum(op)], [x]), [values])
        return value.item()

    for before, after in [(polynomial(x, COEFFICIENTS), slope), (slope, curvature)]:
        (value,), _ = evaluate(weft.capture([after], [x]), [array])
        wanted = numeric_derivative(lambda values, op=before: total(op, values), [array], 0)
        np.testing.assert_allclose(value, wanted, rtol=ACCURACY, atol=ACCURACY)


def test_numpy_runs_the_kernel_and_other_backends_the_decomposition(
    transformer: weft.Transformer, backend: str
):
    x = weft.placeholder((3,))
    computation = transformer.computation(polynomial(x, COEFFICIENTS), x)
    assert computation([0, 1, 2]).tolist() == [1, -0.5, 1]
    assert ("horner(" in computation.source) == (backend == "numpy")
    kept = [op for op in computation.program.graph.ops if isinstance(op, PolynomialOp)]
    assert bool(kept) == (backend == "numpy")


def test_the_result_does_not_take_the_memory_of_the_operand(transformer: weft.Transformer):
    x = weft.placeholder((3,))
    computation = transformer.computation(polynomial(x * 2, [1, 1, 1]) * 2, x)
    assert computation([0, 1, 2]).tolist() == [2, 14, 42]
    computation.plan.verify()


def test_a_printed_polynomial_is_read_back():
    x = weft.placeholder((3,))
    text = weft.capture([polynomial(x, COEFFICIENTS)], [x]).text(full=True)
    assert weft.parse(text).text(full=True) == text


def test_what_is_no_polynomial_is_refused():
    assert polynomial(weft.placeholder((), "int32"), [1]).dtype == "float32"
    with pytest.raises(ArgumentError, match="at least one coefficient"):
        polynomial(1.0, [])
    with pytest.raises(DTypeError, match="polynomials are of floats, not of int32"):
        PolynomialOp(weft.placeholder((), "int32"), coefficients=(1.0,))


@pytest.mark.parametrize(
    ("source", "middle", "target", "casts"),
    [
        ("float32", "float64", "float32", 0),
        ("float32", "float64", "int32", 1),
        ("int8", "int32", "float32", 1),
        ("float64", "float32", "float64", 2),
        ("float32", "int64", "float32", 2),
        ("uint8", "int32", "uint8", 2),
    ],
)
def test_casts_are_direct_where_the_first_one_widens(
    source: Any, middle: Any, target: Any, casts: Any
):
    x = weft.placeholder((3,), source)
    y = weft.cast(weft.cast(x, middle), target) + 1
    results = []
    for passes in ([], ["direct-casts"]):
        graph = weft.capture([y], [x])
        for name in passes:
            graph = weft.plugins.load("weft.passes", name)().do_pass(graph, None)
        found = [op for op in graph.ops if type(op).__name__ == "CastOp"]
        results.append(evaluate(graph, [np.array([0, 3, 100], source)])[0][0].tolist())
    assert len(found) == casts
    assert results[0] == results[1]


@settings(deadline=None, derandomize=True, database=None)
@given(program=programs())
def test_the_pass_keeps_every_bit_of_random_programs(program: Any):
    graph = weft.capture(program.results, program.placeholders)
    changed = DirectCasts().do_pass(graph, None)
    before, after = (evaluate(each, program.arrays)[0] for each in (graph, changed))
    for one, other in zip(before, after, strict=True):
        assert one.tobytes() == other.tobytes()


def test_the_pass_takes_part_once_the_package_is_installed(transformer: weft.Transformer):
    x = weft.placeholder((3,))
    y = weft.cast(weft.cast(x, "float64"), "float32") * 2
    computation = transformer.computation(y, x)
    assert computation([1, 2, 3]).tolist() == [2, 4, 6]
    assert not any(type(op).__name__ == "CastOp" for op in computation.program.graph.ops)
