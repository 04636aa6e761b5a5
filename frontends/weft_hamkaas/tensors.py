"""Tensors of the caller (NumPy or torch), and the types and shapes of nodes.

torch is never imported: a value with a `detach` method counts as a torch tensor, and the
package of its class, or of a dtype's class, creates others.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir.dtypes import Array
from weft.ir.op import Op
from weft_hamkaas.arguments import whole_numbers
from weft_hamkaas.errors import NodeError

FLOAT, INTEGER = "float32", "int64"
DTYPES: dict[str, np.dtype[Any]] = {FLOAT: np.dtype(np.float32), INTEGER: np.dtype(np.int64)}
"""The dtypes of HamKaas, by name."""

MOST_BYTES = 2**62


@dataclass(frozen=True)
class TensorMeta:
    """The type and the shape of a tensor.

    Attributes
    ----------
    type
        A dtype in the form given by the user: torch's, NumPy's or a string.
    shape
        One to three lengths, each at least 1.
    """

    type: Any
    shape: list[int]

    @property
    def dtype(self) -> str:
        """The name of the type in scripts."""
        return dtype_name(self.type)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


def dtype_name(dtype: Any) -> str:
    """Return the name in scripts of a dtype of torch, NumPy or weft, or a name unchanged."""
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        dtype = np.dtype(dtype)
    if isinstance(dtype, np.dtype):
        dtype = dtype.name  # ignores the byte order
    return str(dtype).removeprefix("torch.")


def checked_meta(dtype: Any, shape: Any) -> TensorMeta:
    """Return the description of a declared tensor; raises NodeError if it is invalid."""
    if dtype_name(dtype) not in DTYPES:
        name = dtype_name(dtype)
        raise NodeError(f"Unsupported tensor type: {name:.60} (there are float32, int64)")
    return TensorMeta(dtype, checked_shape(shape, "tensor"))


def checked_shape(shape: Any, what: str = "") -> list[int]:
    """Return a shape as a list; raises NodeError if it is invalid or unsupported."""
    what = f"Invalid {what} shape" if what else "Invalid shape"
    lengths = whole_numbers(shape, f"{what}: a list of integers is wanted, as in [2, 3]")
    if not 1 <= len(lengths) <= 3:
        raise NodeError(f"Unsupported tensor dimension: {len(lengths)} (one to three are)")
    if min(lengths) <= 0:
        raise NodeError(f"{what}: {lengths} (every length is written out, 1 or more)")
    if prod(lengths) * 8 > MOST_BYTES:
        raise NodeError(f"{what}: {reprlib.repr(lengths)} is more than any memory holds")
    return lengths


def is_tensor(value: Any) -> bool:
    """Whether a value is an array or a tensor of any library."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, Op)


def is_torch(value: Any) -> bool:
    """Whether a value is a torch tensor, or looks like one."""
    return hasattr(value, "detach")


def as_array(tensor: Any) -> Array:
    """Return a tensor as a C-contiguous array in native byte order.

    It may share the tensor's memory.
    """
    array = np.asarray(tensor.detach().cpu().numpy() if is_torch(tensor) else tensor)
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def like(array: Array, example: Any) -> Any:
    """Return an array as a torch tensor if the example is a tensor or dtype of torch."""
    make = None if isinstance(example, np.ndarray) else _maker(example)
    return array if make is None else make(array)


def is_torch_dtype(dtype: Any) -> bool:
    """Whether a dtype is torch's, or of a module with torch's functions."""
    return not isinstance(dtype, str | type | np.dtype) and _maker(dtype) is not None


def _maker(value: Any) -> Callable[[Array], Any] | None:
    """Return the function that makes tensors of arrays in the package of a value, or None.

    A torch value exists only if torch has been imported.
    """
    for kind in type(value).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        make: Callable[[Array], Any] | None = getattr(module, "from_numpy", None)
        if make is not None:
            return make
    return None
