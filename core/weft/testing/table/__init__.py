"""The table of ops: every public function of weft, the operands it takes, and what comes out.

The conformance tests run each row on every backend, in several dtypes, ranks and layouts, and see
each refusal refused. A function without a row, or one that refuses nothing, fails a test, so the
table cannot fall behind.
"""

from __future__ import annotations

import inspect
from typing import Any

import weft
from weft.testing.table import (
    activation,
    arrangement,
    attention,
    calls,
    complex_numbers,
    control,
    convolutions,
    creation,
    ctc,
    cumulative,
    decompositions,
    distances,
    distributions,
    edges,
    elementwise,
    functions,
    gathering,
    initializers,
    linalg,
    losses,
    movement,
    named,
    normalization,
    optimizers,
    pooling,
    recurrent,
    reduction,
    regions,
    resampling,
    schedules,
    sorting,
    state,
    storage,
    windows,
)
from weft.testing.table.rows import Refusal, Row

_FAMILIES = (
    elementwise,
    edges,
    functions,
    complex_numbers,
    activation,
    reduction,
    cumulative,
    sorting,
    movement,
    creation,
    arrangement,
    gathering,
    linalg,
    decompositions,
    windows,
    convolutions,
    pooling,
    resampling,
    regions,
    normalization,
    losses,
    distances,
    ctc,
    attention,
    recurrent,
    named,
    distributions,
    initializers,
    state,
    storage,
    control,
    calls,
    optimizers,
    schedules,
)

TABLE: tuple[Row, ...] = tuple(row for family in _FAMILIES for row in family.ROWS)
"""Every row."""

REFUSALS: tuple[Refusal, ...] = tuple(each for family in _FAMILIES for each in family.REFUSALS)
"""Every use that is refused while the graph is built."""


def public_functions() -> dict[str, Any]:
    """Return by name the functions of `weft` that make ops."""
    found = ((name, getattr(weft, name)) for name in weft.__all__)
    return {
        name: value
        for name, value in found
        if inspect.isfunction(value) and value.__module__.startswith("weft.ops.")
    }


def functions_without_row() -> list[str]:
    """Return the names of the public functions that the table lacks; an alias needs no row.

    Nor does `weft.computation`, which yields no tensor; the conformance tests call it.
    """
    covered = {getattr(weft, row.function) for row in TABLE} | {weft.computation}
    return sorted(name for name, value in public_functions().items() if value not in covered)


def functions_without_refusal() -> list[str]:
    """Return the names of the public functions of which no wrong use is in the table."""
    covered = {getattr(weft, refusal.function) for refusal in REFUSALS}
    return sorted(name for name, value in public_functions().items() if value not in covered)
