"""The optional rival numexpr, used at its best: compiled once, and in float32 throughout."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def compiled(
    expression: str, arrays: str, numbers: Mapping[str, float] | None = None
) -> Callable[..., Any] | None:
    """Return a float32 expression as a function of its arrays, or None without numexpr.

    `arrays` names them in order, separated by spaces. A number has a name too, since one written
    into an expression makes it float64.
    """
    try:
        numexpr = importlib.import_module("numexpr")
    except ImportError:
        return None
    numbers = numbers or {}
    values = [np.float32(number) for number in numbers.values()]
    # numexpr's name for float32 is float.
    signature = [(name, float) for name in (*arrays.split(), *numbers)]
    function = numexpr.NumExpr(expression, signature)
    return lambda *given: function(*given, *values)
