"""Checks of arguments other than tensors: numbers, sequences, flags, strings and mappings.

`what` begins each message and names function and argument, as in ``split: the number of parts``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from weft_popxl.errors import refuse_type, refuse_value


def whole(what: str, value: Any, least: int | None = None) -> int:
    """Return a value as an int; raises TypeError for others, ValueError below `least`."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        refuse_type(f"{what} must be a whole number, not {value!r}")
    if least is not None and number < least:
        refuse_value(f"{what} must be at least {least}, not {number}")
    return number


def real(what: str, value: Any) -> Any:
    """Return a number unchanged; raises TypeError for other values."""
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        refuse_type(f"{what} must be a number, not {value!r}")
    try:
        math.isinf(value)
    except OverflowError:
        refuse_value(f"{what} is too large: {value!r}")
    return value


def several(what: str, values: Any) -> list[Any]:
    """Return the elements of a list, tuple or other iterable; raises TypeError for others."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        refuse_type(f"{what} must be a list or tuple, not {values!r}")
    if isinstance(values, np.ndarray) and not values.ndim:
        refuse_type(f"{what} must be a list or tuple, not {values!r}")
    return list(values)


def wholes(what: str, values: Any, least: int | None = None) -> list[int]:
    """Return several integers; raises as `several` and `whole`."""
    return [whole(what, value, least) for value in several(what, values)]


def flag(what: str, value: Any) -> bool:
    """Return a bool, also for 0 and 1; raises TypeError for others."""
    if not isinstance(value, int | np.bool_) or value not in (0, 1):
        refuse_type(f"{what} must be True or False, not {value!r}")
    return bool(value)


def text(what: str, value: Any) -> str:
    """Return a string; raises TypeError for others."""
    if not isinstance(value, str):
        refuse_type(f"{what} must be a text, not {value!r}")
    return value


def one_of(what: str, value: Any, choices: Sequence[str]) -> str:
    """Return a string that is one of the choices; raises ValueError for others."""
    if not isinstance(value, str) or value not in choices:
        named = ", ".join(map(repr, choices[:-1]))
        refuse_value(f"{what} must be {named} or {choices[-1]!r}, not {value!r}")
    return value


def mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """Return a mapping, empty for None; raises TypeError for others."""
    if value is not None and not isinstance(value, Mapping):
        refuse_type(f"{what} must be a dictionary, not {value!r}")
    return value or {}
