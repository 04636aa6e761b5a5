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
    """Return an integer; raises KindError, which says what is wanted, for anything else."""
    try:
        return _whole(value)
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(value)}") from None


def whole_numbers(values: Any, wanted: str) -> list[int]:
    """Return a list of integers; raises KindError, which says what is wanted, for anything else."""
    try:
        if isinstance(values, Set | Mapping):
            raise TypeError("they have no order")
        return [_whole(value) for value in values]
    except TypeError:
        raise KindError(f"{wanted}, not {reprlib.repr(values)}") from None


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a bool is no number")
    return operator.index(value)
