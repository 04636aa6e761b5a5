"""Batches of rows computed in one program, because compilers take long for each program.

A test is of one row and reports by itself. The first test of a batch computes all its rows in one
program; the others look up their outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

import weft
from weft.ir.target import Target
from weft.testing.cases import Case, Finding, examine, make_cases
from weft.testing.levels import TOGETHER
from weft.testing.table.rows import Row

MOST = 12
"""The maximal number of rows in a program. With PoCL that saves 30 % of the compilation time of
single rows; more rows save no more."""

together: pytest.MarkDecorator = getattr(pytest.mark, TOGETHER)
"""The mark of tests with a `row`, a `dtype`, a `backend` and the `batch` of the row."""


class Batch:
    """Rows in one dtype, computed in one program of a backend.

    Attributes
    ----------
    rows
        The rows.
    dtype
        The dtype of their operands.
    target
        The target of the backend, set by the computation.
    """

    target: Target

    def __init__(self, rows: Sequence[Row], dtype: str) -> None:
        self.rows = rows
        self.dtype = dtype
        self._found: dict[str, list[Finding] | Exception] = {}

    def findings(
        self, row: Row, backend: str, with_gradients: bool, brief: bool = False
    ) -> list[Finding]:
        """Return the outcome of each case of a row; raises the error if its cases cannot be built.

        There are no outcomes if the target does not support the dtype. For `brief` see
        `make_cases`.
        """
        if not self._found:
            self._compute(backend, with_gradients, brief)
        found = self._found[row.name]
        if isinstance(found, Exception):
            raise found
        return found

    def _compute(self, backend: str, with_gradients: bool, brief: bool) -> None:
        found: dict[str, list[Finding] | Exception] = {row.name: [] for row in self.rows}
        made: list[tuple[Row, list[Case]]] = []
        with weft.make_transformer(backend) as transformer:
            self.target = transformer.target
            for row in self.rows if self.dtype in self.target.dtypes else ():
                try:
                    made.append((row, make_cases(row, self.dtype, brief, with_gradients)))
                except Exception as error:
                    found[row.name] = error
            findings = iter(examine(transformer, [case for _, cases in made for case in cases]))
        for row, cases in made:
            found[row.name] = [next(findings) for _ in cases]
        self._found = found


BATCH = pytest.StashKey[Batch]()


def put_together(items: Iterable[pytest.Item]) -> None:
    """Assign each marked test its batch: tests of the same dtype on the same backend."""
    batches: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker(TOGETHER) is None:
            continue
        parameters = item.callspec.params  # type: ignore[attr-defined]
        key = item.parent, parameters["backend"], parameters["dtype"]
        batches.setdefault(key, []).append(item)
    for (*_, dtype), all_of_them in batches.items():
        for first in range(0, len(all_of_them), MOST):
            chosen = all_of_them[first : first + MOST]
            rows = [item.callspec.params["row"] for item in chosen]  # type: ignore[attr-defined]
            batch = Batch(rows, str(dtype))
            for item in chosen:
                item.stash[BATCH] = batch
