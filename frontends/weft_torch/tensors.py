"""Tensors of torch as arrays of NumPy, and back: the same memory, no copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

from weft.errors import ArgumentError
from weft.ir.dtypes import Array
from weft_torch.errors import UnsupportedOp

DTYPES = {
    getattr(torch, name): name
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    )
}  # fmt: skip
"""weft's name of each dtype that it has, which is torch's."""


_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def dtype_name(dtype: torch.dtype) -> str:
    """Return weft's name of a dtype; raises UnsupportedOp for one that weft does not have."""
    if dtype not in DTYPES:
        raise UnsupportedOp(f"weft has no dtype {dtype}")
    return DTYPES[dtype]


def require_host(tensor: torch.Tensor, what: str) -> None:
    """Raise ArgumentError for a tensor whose elements are not in the host's memory, or not dense.

    The message says how to get one that is.
    """
    if tensor.layout is not torch.strided:
        problem = f"{what} is a tensor of layout {tensor.layout}: pass tensor.to_dense()"
    elif tensor.is_quantized:
        problem = f"{what} is a quantized tensor: pass tensor.dequantize()"
    elif tensor.device.type != "cpu":
        problem = (
            f"{what} is on the device {tensor.device}, but weft takes arguments in the host's "
            "memory, whichever backend computes: call .cpu() on the model and its inputs"
        )
    else:
        return
    raise ArgumentError(problem)


def as_array(tensor: torch.Tensor) -> Array:
    """Return the memory of a tensor as an array; a copy only of lazily conjugated ones.

    Torch exchanges bfloat16 with NumPy only as integers.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(_BFLOAT16)
    try:
        array: Array = tensor.numpy()
    except RuntimeError:  # quicker than to ask each tensor whether it is conjugated or negated
        array = tensor.resolve_conj().resolve_neg().numpy()
    return array


def as_tensor(array: Array) -> torch.Tensor:
    """Return the memory of an array as a tensor, which keeps the array."""
    return maker(array.dtype)(array)


def maker(dtype: np.dtype[Any]) -> Callable[[Array], torch.Tensor]:
    """Return the function that gives the memory of an array of a dtype as a tensor."""
    return _as_bfloat16 if dtype == _BFLOAT16 else torch.from_numpy


def _as_bfloat16(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
