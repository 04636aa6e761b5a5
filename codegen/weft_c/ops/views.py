"""Views of layouts: elements as unsigned integers for copies, and collapsed dimensions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.kernels.collapse import collapse
from weft_tiling.lines import merge_dims

_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def bits(tensor: TensorDescription) -> TensorDescription:
    """Return a layout with the elements as unsigned integers of the same size."""
    return tensor.with_dtype(_BITS[tensor.dtype.itemsize])


def bits_of(value: Any, dtype: DType) -> int:
    """Return the bits of a scalar of a dtype as an integer."""
    return int(np.asarray(value).astype(dtype).view(_BITS[dtype.itemsize]))


def collapse_dims(
    *tensors: TensorDescription, roles: Sequence[Hashable] | None = None
) -> tuple[list[TensorDescription], tuple[tuple[int, ...], ...]]:
    """Return tensors of one shape with dimensions collapsed where all allow it, and the groups.

    Dimensions of different roles are not merged; those of length 1 are dropped.
    """
    shape = tensors[0].shape
    groups = collapse(shape, roles or [0] * len(shape), [each.strides for each in tensors])
    return [merge_dims(each, groups) for each in tensors], groups
