"""Every composite in the op table has the value of its decomposition into primitives."""

from __future__ import annotations

import pytest

import weft
from weft import plugins
from weft.ir.axes import make_axes
from weft.ir.graph import Graph
from weft.ir.target import Target
from weft.ir.tensor import CompositeOp
from weft.testing.cases import Case, difference, expectations, make_case, make_special_case
from weft.testing.reference import evaluate
from weft.testing.table import TABLE
from weft.testing.table.rows import Row

PRIMITIVES = Target("primitives", supports=lambda op: not isinstance(op, CompositeOp))
"""A target that supports primitives only."""

CHECKED = ("float64", "int32")


def _dtypes(row: Row) -> tuple[str, ...]:
    return tuple(name for name in CHECKED if name in row.dtypes) or row.dtypes[:1]


def has_composites(row: Row) -> bool:
    """Whether the ops of a row contain composites, in the first dtype that is checked."""
    dtype = _dtypes(row)[0]
    placeholders = [
        weft.placeholder(make_axes(axes), operand.dtype or dtype)
        for operand, axes in zip(row.operands, row.shapes[0], strict=True)
    ]
    graph = weft.capture([row.build(*placeholders)], placeholders)
    return any(isinstance(op, CompositeOp) for op in graph.ops)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Build the graphs of the table when the tests are collected, not for who imports a helper."""
    rows: dict[str, list[Row]] = {}
    for row in filter(has_composites, TABLE):
        rows.setdefault(row.function, []).append(row)
    metafunc.parametrize("rows", rows.values(), ids=rows)


def test_decomposition_has_the_value_of_the_composite(rows: list[Row]) -> None:
    """Values agree at samples, and at special values if a row is defined there."""
    cases = []
    for row in rows:
        for dtype in _dtypes(row):
            cases.append(make_case(row, row.shapes[0], dtype, with_gradients=False))
            if row.is_special:
                cases.append(make_special_case(row, dtype))
    problems = [problem for case in cases if (problem := _problem(case)) is not None]
    assert not problems, "\n".join(problems)


def _problem(case: Case) -> str | None:
    graph = weft.capture([case.value], case.placeholders)
    simple = decomposed(graph)
    left = {type(op).__name__ for op in simple.ops if isinstance(op, CompositeOp)}
    assert not left, f"{case.label}: {left} are still there"
    (wanted,) = expectations(graph, case.arrays, PRIMITIVES)
    (got,), _ = evaluate(simple, case.arrays)
    found = difference(got, case.value, wanted, PRIMITIVES)
    return found and f"{case.label}: {found}"


def decomposed(graph: Graph) -> Graph:
    """Return a graph decomposed into primitives."""
    made: Graph = plugins.load(plugins.PASSES, "decompose")().do_pass(graph, PRIMITIVES)
    return made
