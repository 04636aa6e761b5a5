"""The op table of the kit as programs, one of each function."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.testing.cases import make_case
from weft.testing.table import TABLE

FUNCTIONS = list(dict.fromkeys(row.function for row in TABLE))


class Program(NamedTuple):
    """Results, the placeholders that they follow from, and arrays for these."""

    results: list[Any]
    placeholders: list[Any]
    arrays: list[Any]


def program_of(function: str) -> Program:
    """Return what all rows of a function compute from their first operands and dtypes."""
    program = Program([], [], [])
    for row in TABLE:
        if row.function == function:
            case = make_case(row, row.shapes[0], row.dtypes[0], with_gradients=False)
            program.results.extend(case.results)
            program.placeholders.extend(case.placeholders)
            program.arrays.extend(case.arrays)
    return program
