"""Tensors of the caller, NumPy's or torch's, and what a node says of its own.

torch is never imported: a tensor that has a `detach` method is taken for one of torch's, and the
package that it or a dtype comes from makes others.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir.op import Op
from weft_hamkaas.arguments import whole_numbers
from weft_hamkaas.errors import NodeError

Array = np.ndarray[Any, Any]

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
        A dtype as the caller names it: torch's, NumPy's or a string.
    shape
        One to three lengths, each at least 1.
    """

    type: Any
    shape: list[int]

    @property
    def dtype(self) -> str:
        """The name of the type, in the words of scripts."""
        return dtype_name(self.type)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize


def dtype_name(dtype: Any) -> str:
    """Return what scripts call a dtype of torch, of NumPy or of weft, or its name itself."""
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        dtype = np.dtype(dtype)
    if isinstance(dtype, np.dtype):
        dtype = dtype.name  # the same in either order of bytes
    return str(dtype).removeprefix("torch.")


def checked_meta(dtype: Any, shape: Any) -> TensorMeta:
    """Return what describes a tensor that is declared; raises NodeError if there is no such one."""
    if dtype_name(dtype) not in DTYPES:
        name = dtype_name(dtype)
        raise NodeError(f"Unsupported tensor type: {name:.60} (there are float32, int64)")
    return TensorMeta(dtype, checked_shape(shape, "tensor"))


def checked_shape(shape: Any, what: str = "") -> list[int]:
    """Return a shape as a list; raises NodeError for one that is none, or not supported."""
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
    """Whether a value is an array or a tensor of somebody's, with elements to be read."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, Op)


def is_torch(value: Any) -> bool:
    """Whether a value is a tensor of torch, or behaves like one."""
    return hasattr(value, "detach")


def as_array(tensor: Any) -> Array:
    """Return a tensor as a C-contiguous array in the machine's order of bytes.

    It may share the tensor's memory.
    """
    array = np.asarray(tensor.detach().cpu().numpy() if is_torch(tensor) else tensor)
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")


def like(array: Array, example: Any) -> Any:
    """Return an array as what a tensor is, or as what a dtype is of: of torch, or as it is."""
    make = None if isinstance(example, np.ndarray) else _maker(example)
    return array if make is None else make(array)


def is_torch_dtype(dtype: Any) -> bool:
    """Whether a dtype is an object of torch, or of a module that makes tensors as torch does."""
    return not isinstance(dtype, str | type | np.dtype) and _maker(dtype) is not None


def _maker(value: Any) -> Callable[[Array], Any] | None:
    """Return what makes tensors of arrays in the package that a value's class is from, if any.

    A value of torch is there only if torch has been imported.
    """
    for kind in type(value).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        make: Callable[[Array], Any] | None = getattr(module, "from_numpy", None)
        if make is not None:
            return make
    return None
