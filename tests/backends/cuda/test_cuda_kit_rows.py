"""Some rows of the kit's table on a GPU that is made up, whose kernels an OpenCL device runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.testing.cases import make_cases, run_cases
from weft.testing.test_ops import ROWS

if TYPE_CHECKING:
    from conftest import Maker

EVERY = 40


def test_rows_give_what_the_reference_gives(make: Maker) -> None:
    rows = [row for row in ROWS.values() if "float32" in row.dtypes][::EVERY]
    cases = [case for row in rows for case in make_cases(row, "float32", brief=True)]
    assert run_cases(make(), cases) == []
