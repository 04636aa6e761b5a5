"""Ops with a value that the host computes, whatever the device: the base class and its contract."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.tensor import TensorOp


class HostOp(TensorOp):
    """An op that NumPy computes on the host, from contiguous arrays.

    A backend has one rule for all of them: copy the operands to the host, call `write` with them
    and an array for the value, and copy that back. It may have a better rule for a subclass.
    """

    takes_contiguous = True

    def write(self, *arrays: Any) -> None:
        """Write the value for the other arrays into the last one."""
        *values, out = arrays
        np.copyto(out, self.reference(*values))
