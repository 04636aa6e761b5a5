"""Names and numbers that a caller gives: what may stand in a script, and nothing else."""

from __future__ import annotations

import operator
import re
import reprlib
from collections.abc import Mapping, Set
from typing import Any

from weft_hamkaas.errors import KindError, NodeError

_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)


def checked_name(name: Any) -> str:
    """Return a name if it may stand in a script; raises NodeError for any other one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise NodeError(
            f"{reprlib.repr(name)} is no name: one has letters, digits, _ and ., and begins with "
            "a letter or _"
        )
    return name


def whole_number(value: Any, wanted: str) -> int:
    """Return an integer of 64 bits; the errors say what is wanted.

    Raises KindError for anything but an integer, NodeError for one that is too large.
    """
    try:
        return _fitting(_whole(value), wanted)
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(value)}") from None


def whole_numbers(values: Any, wanted: str) -> list[int]:
    """Return a list of integers of 64 bits; the errors say what is wanted.

    Raises KindError for anything but integers in order, NodeError for one that is too large.
    """
    try:
        if isinstance(values, Set | Mapping):
            raise TypeError("they have no order")
        numbers = [_whole(value) for value in values]
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(values)}") from None
    return [_fitting(number, wanted) for number in numbers]


def _fitting(number: int, wanted: str) -> int:
    """Return a number if it fits; others are not shown, as Python writes no very long ones."""
    if not -(2**63) <= number < 2**63:
        raise NodeError(f"{wanted}, not one outside of -2**63 to 2**63 - 1")
    return number


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    return operator.index(value)
