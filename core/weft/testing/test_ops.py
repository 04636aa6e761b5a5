"""Every row of the op table on a backend, and in the reference alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir import dtypes
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.runtime.transformer import Transformer
from weft.testing.cases import Case, make_case, make_cases, run_cases, seeded
from weft.testing.levels import DTYPES, GRADIENTS, VALUES, includes, level
from weft.testing.numeric import ACCURACY, numeric_derivative
from weft.testing.reference import evaluate
from weft.testing.table import (
    REFUSALS,
    TABLE,
    functions_without_refusal,
    functions_without_row,
)
from weft.testing.table.rows import INTEGERS, NARROW, Refusal, Row
from weft.testing.together import Batch, together
from weft_pytest import LACKING_PROPERTY

KIT = Path(__file__).parent
ROWS = {row.name: row for row in TABLE}
RUNS = [pytest.param(row, dtype, id=f"{row.name}-{dtype}") for row in TABLE for dtype in row.dtypes]
WITH_EXPECTED = [
    pytest.param(row, dtype, id=f"{row.name}-{dtype}")
    for row in TABLE
    if row.expected is not None
    for dtype in row.dtypes
]
REFUSING = sorted({refusal.function for refusal in REFUSALS})
DIFFERENTIABLE = [pytest.param(row, id=row.name) for row in TABLE if row.gradients]


def test_every_public_function_has_a_row() -> None:
    """The table covers every function that weft exports."""
    assert functions_without_row() == []


def test_every_public_function_refuses_something() -> None:
    """The table has a wrong use of every function."""
    assert functions_without_refusal() == []


def test_rows_have_names_of_their_own() -> None:
    """The names of rows and refusals are unique."""
    assert len(ROWS) == len(TABLE)
    assert len({refusal.name for refusal in REFUSALS}) == len(REFUSALS)


def test_it_has_a_device(backend: str) -> None:
    """Without a device the tests of levels are not collected for a backend, and this one skips."""
    assert backend


@level(VALUES)
@together
@pytest.mark.parametrize(("row", "dtype"), RUNS)
def test_row_gives_what_the_reference_gives(
    batch: Batch,
    backend: str,
    row: Row,
    dtype: str,
    highest_level: str,
    is_brief: bool,
    record_property: Any,
) -> None:
    """Value and gradients equal the reference in every shape and layout."""
    with_gradients = includes(highest_level, GRADIENTS)
    findings = batch.findings(row, backend, with_gradients, is_brief)
    target = batch.target
    if dtype not in target.dtypes:
        pytest.skip(f"{target.name} does not compute with {dtype}")
    if not any(finding.is_within for finding in findings):
        pytest.skip(f"{target.name} lacks a dtype that this needs beside {dtype}")
    lacking = {kind for finding in findings for kind in finding.lacking}
    if lacking:
        said = ", ".join(f"{kind} ({target.lacks[kind]})" for kind in sorted(lacking))
        record_property(LACKING_PROPERTY, said)
    problems = [problem for finding in findings for problem in finding.problems]
    assert not problems, "\n".join(problems)


TOGETHER = 25
"""The number of cases in a computation: compilers take long for large programs."""
BRIEFLY = 32
"""The quick mode takes one row in this many."""
PARTS = 4
"""The number of tests for a dtype, so that none takes a minute."""


@pytest.mark.share(40)
@level(DTYPES)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [*NARROW, *INTEGERS])
def test_rows_in_a_rarer_dtype(
    transformer: Transformer, dtype: str, part: int, is_brief: bool
) -> None:
    """Rows of floats or integers have the right values in a rarer dtype, for their first shapes."""
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"{transformer.target.name} does not compute with {dtype}")
    model = "float32" if dtype in NARROW else "int32"
    rows = [row for row in TABLE if row.is_generic and model in row.dtypes][part::PARTS]
    rows = rows[::BRIEFLY] if is_brief else rows
    cases = [case for row in rows for case in make_cases(row, dtype, True)]
    parts = [cases[first : first + TOGETHER] for first in range(0, len(cases), TOGETHER)]
    problems = [problem for each in parts for problem in run_cases(transformer, each)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("function", REFUSING)
def test_wrong_use_is_refused(function: str) -> None:
    """The error has the class and the words of the row, and a line."""
    refusals = [refusal for refusal in REFUSALS if refusal.function == function]
    problems = [problem for refusal in refusals if (problem := _problem(refusal))]
    assert not problems, "\n".join(problems)


def _problem(refusal: Refusal) -> str:
    try:
        refusal.build()
    except refusal.error as error:
        message = str(error)
        is_named = refusal.function.rpartition(".")[2] in message or "Op:" in message
        if is_named and f'File "{KIT}' in message and re.search(refusal.words, message):
            return ""
        return f"{refusal.name} has the message {message}"
    return f"{refusal.name} is not refused"


@pytest.mark.parametrize(("row", "dtype"), WITH_EXPECTED)
def test_reference_is_what_numpy_gives(row: Row, dtype: str) -> None:
    """The reference of the op agrees with the NumPy expression of the row."""
    assert row.expected is not None
    case = make_case(row, row.shapes[0], dtype, with_gradients=False)
    graph = weft.capture([case.value], case.placeholders)
    (got,), _ = evaluate(graph, case.arrays)
    with np.errstate(all="ignore"):
        expected = np.asarray(row.expected(*case.arrays)).astype(got.dtype)
    accuracy = 100 * float(np.finfo(got.dtype).eps) if dtypes.is_inexact(got.dtype) else 0
    np.testing.assert_allclose(got, expected, rtol=accuracy, atol=accuracy)


@pytest.mark.parametrize("row", DIFFERENTIABLE)
def test_gradient_is_a_central_difference(row: Row) -> None:
    """The gradient agrees with central differences of the value, in float64."""
    _check_gradients([make_case(row, row.shapes[0], "float64")])


@pytest.mark.long
@pytest.mark.parametrize("row", DIFFERENTIABLE)
def test_gradient_of_other_operands_is_a_central_difference(row: Row) -> None:
    """The gradient agrees with central differences for other shapes and for views."""
    cases = [make_case(row, shapes, "float64") for shapes in row.shapes[1:4]]
    if len(row.shapes[0][0]) > 1:
        cases += [
            make_case(row, row.shapes[0], "float64", name) for name in ("transposed", "sliced")
        ]
    _check_gradients(cases)


def _check_gradients(cases: list[Case]) -> None:
    for case in cases:
        for number, gradient in case.gradients.items():
            assert case.weights is not None
            _check_slope(case, case.value, case.weights, number, gradient)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in TABLE if row.twice])
def test_second_derivative_is_a_central_difference(row: Row) -> None:
    """The second derivative agrees with central differences of the gradient."""
    case = make_case(row, row.shapes[0], "float64")
    random = seeded(row.name)
    for gradient in case.gradients.values():
        weights = weft.constant(random.uniform(0.5, 1.5, gradient.axes.shape), gradient.axes)
        for number in case.gradients:
            second = weft.deriv(gradient, case.placeholders[number], error=weights)
            _check_slope(case, gradient, weights, number, second)


def _check_slope(
    case: Case, value: TensorOp, weights: TensorOp, number: int, gradient: TensorOp
) -> None:
    graph = weft.capture([value], case.placeholders)

    def total(*arrays: Array) -> float:
        (result,), _ = evaluate(graph, arrays, wide=True)
        return float(np.sum(result * weights.const))

    (got,), _ = evaluate(weft.capture([gradient], case.placeholders), case.arrays, wide=True)
    expected = numeric_derivative(total, case.arrays, number)
    scale = max(1.0, float(np.max(np.abs(expected), initial=0)))
    np.testing.assert_allclose(
        got, expected, rtol=ACCURACY, atol=ACCURACY * scale, err_msg=f"{case.label} by {number}"
    )
