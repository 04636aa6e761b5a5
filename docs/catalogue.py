"""Writes the page of all ops, `ops.md`, from signatures, docstrings and the op table.

Run it after a public function has changed: ``make docs``. A test fails while the page is stale.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.testing.table import TABLE

PAGE = Path(__file__).with_name("ops.md")

HEAD = """\
# Operations

Every public function that makes ops, by family; each is `weft.<name>`, and `help(weft.<name>)` says
the rest. This page is written by `docs/catalogue.py`. [Semantics](semantics.md) says what holds for
all of them: dtypes, broadcasting, NaN, overflow, ties, gradients. [Primitives](primitives.md) lists
what a backend must have, [support](support.md) what each backend was found to do.

*∂* marks what has a gradient. Axes may be positional or named, except where a function says
otherwise.
"""

FAMILIES = (
    "elementwise", "comparison", "bits", "math", "trigonometry", "special", "rounding",
    "complex_parts", "activation", "reduction", "statistics", "cumulative", "sorting", "counting",
    "creation", "movement", "arrangement", "joining", "indexing", "gathering", "multi_index",
    "dynamic_slices", "linalg", "contraction", "decompositions", "windows", "convolutions",
    "pooling", "unpooling", "resampling", "regions", "probabilities", "normalization", "losses",
    "distances", "ctc", "dot_product_attention", "positions", "cells", "recurrent", "random",
    "distributions", "initializers", "weft.ir.storage", "state", "clipping", "optimizers",
    "schedules", "control", "weft.transforms.computation_op", "calls", "recomputation",
)  # fmt: skip
"""The modules in the order of the page; those without a package are of `weft.ops`."""


def page() -> str:
    """Return the text of the page."""
    return HEAD + "".join(_family(name) for name in FAMILIES)


def functions(module: Any) -> dict[str, Callable[..., Any]]:
    """Return the public functions of a family by name, aliases included."""
    found = ((name, getattr(module, name)) for name in module.__all__)
    return {name: value for name, value in found if inspect.isfunction(value)}


def _family(name: str) -> str:
    module = importlib.import_module(name if "." in name else f"weft.ops.{name}")
    found = functions(module)
    if not found:
        return ""
    title = (module.__doc__ or "").partition("\n")[0].rstrip(".")
    lines = ["", f"## {title}", "", "| function | gives | |", "| --- | --- | --- |"]
    return "\n".join([*lines, *_rows(found)]) + "\n"


def _rows(found: dict[str, Callable[..., Any]]) -> Iterator[str]:
    for name, function in sorted(found.items(), key=lambda item: item[0].lower()):
        if name != function.__name__:
            yield f"| `{name}` | is `{function.__name__}` | |"
            continue
        mark = "∂" if has_gradient(name) else ""
        yield f"| `{name}{_signature(function)}` | {_gives(function)} | {mark} |"


def has_gradient(name: str) -> bool:
    """Whether any row of the op table differentiates a function."""
    function = getattr(weft, name)
    return any(row.gradients for row in TABLE if getattr(weft, row.function) is function)


def _signature(function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    parts = []
    for each in parameters:
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else f"={_shown(each.default)}"
        parts.append(f"{star}{each.name}{default}")
    return f"({', '.join(parts)})"


def _shown(default: Any) -> str:
    return default.name if isinstance(default, np.dtype) else repr(default).replace("'", '"')


def _gives(function: Callable[..., Any]) -> str:
    sentence = " ".join((function.__doc__ or "").strip().split("\n\n")[0].split())
    gives = sentence.removeprefix("Return ")
    return (gives[:1].lower() + gives[1:] if gives == sentence else gives).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
