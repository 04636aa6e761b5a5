"""Checks of names and numbers in arguments: exactly those that scripts can express are valid."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Mapping, Set
from typing import Any

from weft_hamkaas.errors import KindError, NodeError

_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


def checked_name(name: Any) -> str:
    """Return the name if it is valid in a script; raises NodeError otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NodeError(
            f"{reprlib.repr(name)} is not a name: one has letters, digits, _ and ., and begins "
            "with a letter or _"
        )
    return name


def whole_number(value: Any, wanted: str) -> int:
    """Return a value as a 64-bit integer; `wanted` begins the error messages.

    Raises KindError for a value that is not an integer, NodeError for an integer out of range.
    """
    try:
        return _fitting(_whole(value), wanted)
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(value)}") from None


def whole_numbers(values: Any, wanted: str) -> list[int]:
    """Return values as a list of 64-bit integers; `wanted` begins the error messages.

    Raises KindError for values that are not an ordered collection of integers, NodeError for
    integers out of range.
    """
    try:
        if isinstance(values, Set | Mapping):
            raise TypeError("they have no order")
        numbers = [_whole(value) for value in values]
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(values)}") from None
    return [_fitting(number, wanted) for number in numbers]


def _fitting(number: int, wanted: str) -> int:
    """Return the number if it fits into 64 bits; the error omits it, since it may be very long."""
    if not -(2**63) <= number < 2**63:
        raise NodeError(f"{wanted}, not one outside of -2**63 to 2**63 - 1")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a bool is not a number")
    return operator.index(value)
