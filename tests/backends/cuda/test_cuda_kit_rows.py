"""Rows of the kit's table, executed in CUDA C and in the form of OpenCL C for parallel devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pretended import FORMS

from weft.testing.cases import make_cases, run_cases
from weft.testing.test_ops import ROWS

pytestmark = [pytest.mark.slow, pytest.mark.share(3)]

if TYPE_CHECKING:
    from conftest import Maker

EVERY = 40


@pytest.mark.parametrize("form", FORMS)
def test_rows_give_what_the_reference_gives(make: Maker, form: str) -> None:
    rows = [row for row in ROWS.values() if "float32" in row.dtypes]
    first = [*FORMS].index(form) * EVERY // len(FORMS)
    chosen = rows[first :: EVERY if form == "cuda" else 2 * EVERY]
    cases = [case for row in chosen for case in make_cases(row, "float32")]
    assert run_cases(make(FORMS[form]), cases) == []
