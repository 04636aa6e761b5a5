"""Checks of arguments that belong to a tensor: its axes, and numbers of its dtype.

`kind` and `what` begin each message, as in `arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from weft_popxl.arguments import real, several, whole
from weft_popxl.errors import popart_exception, refuse_value
from weft_popxl.program import Tensor


def number_for(what: str, value: Any, t: Tensor) -> Any:
    """Return a number that a tensor's dtype can hold; raises as `real`, ValueError for others.

    An integer tensor cannot hold a fraction.
    """
    number = real(what, value)
    if t.dtype.is_float or math.isinf(number):
        return number
    if number != number or number != int(number):
        refuse_value(f"{what} is {number!r}, and {t!r} holds no fractions: ops.cast it to a float")
    return int(number)


def axis_of(kind: str, t: Tensor, axis: Any, *, added: int = 0) -> int:
    """Return a nonnegative axis of a tensor, or of one with `added` more axes.

    Negative axes count from the end. Raises TypeError if the value is not an integer, and
    popart_exception for an axis out of range.
    """
    number, rank = whole(f"{kind}: an axis of {t!r}", axis), t.rank + added
    if -rank <= number < rank:
        return number % rank
    there_are = f"say one from {-rank} to {rank - 1}" if rank else "it is a scalar, which has none"
    raise popart_exception(
        f"{kind}: {t!r}{' with a new axis' if added else ''} has no axis {number}: {there_are}"
    )


def axes_of(kind: str, t: Tensor, axes: Any) -> tuple[int, ...]:
    """Return nonnegative axes of a tensor, from one number or several; refuses duplicates."""
    given = several(f"{kind}: the axes of {t!r}", axes) if isinstance(axes, Iterable) else [axes]
    found = tuple(axis_of(kind, t, axis) for axis in given)
    if len(set(found)) < len(found):
        raise popart_exception(f"{kind}: the axes {given} name one of {t!r} twice")
    return found
