"""The op table: every public function of weft, with operands and expected values.

The conformance tests run each row on every backend, in several dtypes, ranks and layouts, and check
the error of each refusal. A function without a row or a refusal fails a test, so the table is
complete.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from operator import attrgetter
from pkgutil import iter_modules
from typing import Any

import weft
from weft.testing.table.rows import Refusal, Row

_MODULES = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
_FAMILIES = [module for module in _MODULES if hasattr(module, "ROWS")]

TABLE: tuple[Row, ...] = tuple(row for family in _FAMILIES for row in family.ROWS)
"""All rows."""

REFUSALS: tuple[Refusal, ...] = tuple(each for family in _FAMILIES for each in family.REFUSALS)
"""All wrong uses, refused while the graph is built."""


_PACKAGES = (
    "weft.fft", "weft.linalg.", "weft.ops.", "weft.nn.", "weft.ranks.", "weft.signal",
    "weft.special", "weft.train.",
)  # fmt: skip


def public_functions() -> dict[str, Any]:
    """Return the functions of `weft` that build ops, by name."""
    modules = (weft.fft, weft.linalg, weft.signal, weft.special)
    inner = (f"{module.__name__}.{name}" for module in modules for name in module.__all__)
    names = (*weft.__all__, *(name.removeprefix("weft.") for name in inner))
    found = ((name, attrgetter(name)(weft)) for name in names)
    return {
        name: value
        for name, value in found
        if inspect.isfunction(value) and value.__module__.startswith(_PACKAGES)
    }


def functions_without_row() -> list[str]:
    """Return the names of the public functions without a row; an alias needs none.

    Neither does `weft.computation`, which yields no tensor and is tested separately.
    """
    covered = {attrgetter(row.function)(weft) for row in TABLE} | {weft.computation}
    return sorted(name for name, value in public_functions().items() if value not in covered)


def functions_without_refusal() -> list[str]:
    """Return the names of the public functions without a refusal."""
    covered = {attrgetter(each.function)(weft) for each in REFUSALS}
    return sorted(name for name, value in public_functions().items() if value not in covered)
