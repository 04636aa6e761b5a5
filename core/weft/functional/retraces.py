"""Warnings about functions that are traced and compiled again and again."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from weft.support import source

LIMIT = 100
"""The number of traces at which there is a warning."""


class RetraceWarning(UserWarning):
    """A function is compiled over and over; the message says why, and what to do."""


_repeated: WeakKeyDictionary[Any, tuple[Any, int]] = WeakKeyDictionary()
"""By the code of a function, what it was traced for most recently, and how often in a row."""


def count_trace(
    function: Callable[..., Any], name: str, key: tuple[Any, ...], earlier: dict[Any, Any]
) -> None:
    """Warn once about a function that has been traced `LIMIT` times.

    `key` has the structure, static arguments, dtypes and shapes, and `earlier` the keys before.
    """
    if len(earlier) + 1 == LIMIT:
        differs = [own != before for own, before in zip(key, list(earlier)[-1], strict=True)]
        _, static, _, shapes = differs
        reason = "for other structures or dtypes of its arguments: give them alike"
        if static:
            reason = "for as many values of its static arguments: let the numbers be traced"
        elif shapes:
            reason = "for as many shapes: let a length vary by jit(f, dynamic=...), or pad"
        _warn(f"{name} has been traced and compiled {LIMIT} times, {reason}")
    innermost = inspect.unwrap(function)
    code = getattr(innermost, "__code__", None)
    if code is None or source.is_internal(innermost.__module__):
        return
    before, count = _repeated.get(code, (None, 0))
    count = count + 1 if before == key else 1
    _repeated[code] = key, count
    if count == LIMIT:
        reason = "call jit once, outside of the loop, and around grad and vmap"
        problem = f"has been traced and compiled {LIMIT} times for the same arguments: {reason}"
        _warn(f"{name} {problem}")


def _warn(problem: str) -> None:
    warnings.warn_explicit(problem, RetraceWarning, *source.user_location())
