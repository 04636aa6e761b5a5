"""The errors of data that a device reports in a word of memory, raised when the call ends.

A kernel that meets an index out of range cannot raise. It writes into an error word and goes on
with any element in reach, so no launch waits for another. The backend reads the words once, at the
end of the call, and `raise_reported` gives the message that the host would have given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from weft.errors import BackendError
from weft.ir.dtypes import Array
from weft.ir.op import Op


def raise_reported(op: Op, operands: Sequence[Array] = (), index: int | None = None) -> NoReturn:
    """Raise the error that a kernel reported for an op.

    Parameters
    ----------
    op
        The op of the step that reported, with the user's line.
    operands
        The values of its operands, if they are still there. The op's NumPy reference, which checks
        them in the same way, is evaluated for its error.
    index
        Instead of operands, the index out of range that the kernel left in its error word.

    Raises
    ------
    IndexOutOfRange
        With the index, the axis, and the user's line.
    BackendError
        If the host finds no error there.
    """
    checked: Any = op
    if index is not None:
        checked.places(np.array([index]))
    else:
        with np.errstate(all="ignore"):
            checked.reference(*operands)
    raise BackendError(op.explain("the device reported an error that the host cannot reproduce"))
