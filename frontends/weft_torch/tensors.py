"""Tensors of torch as arrays of NumPy, and back: the same memory, no copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from weft.errors import ArgumentError

Array = np.ndarray[Any, Any]

AS_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
}
"""Dtypes that torch does not exchange with NumPy: integers of as many bits, and NumPy's dtype."""

FROM_BITS = {
    np.dtype(numpy_dtype).name: (np.dtype(f"int{8 * bits.itemsize}"), dtype)
    for dtype, (bits, numpy_dtype) in AS_BITS.items()
}


def dtype_name(dtype: torch.dtype) -> str:
    """Return weft's name of a dtype, which is torch's."""
    return str(dtype).removeprefix("torch.")


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
    """Return the memory of a tensor as an array; a copy only of lazily conjugated ones."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype in AS_BITS:
        bits, dtype = AS_BITS[tensor.dtype]
        of_bits: Array = tensor.view(bits).numpy()
        return of_bits.view(dtype)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    array: Array = tensor.numpy()
    return array


def as_tensor(array: Array) -> torch.Tensor:
    """Return the memory of an array as a tensor, which keeps the array."""
    if array.dtype.name in FROM_BITS:
        bits, dtype = FROM_BITS[array.dtype.name]
        return torch.from_numpy(array.view(bits)).view(dtype)
    return torch.from_numpy(array)
