"""Arrays of other libraries, by DLPack."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from weft.ir.dtypes import Array, as_dtype

_CODE = 20
"""The offset of the code of the dtype in a ``DLTensor``: after data, device and rank."""

_UNSIGNED, _BFLOAT = 1, 4
"""Codes of dtypes in ``dlpack.h``, which has their bits in another field."""

_address = ctypes.pythonapi.PyCapsule_GetPointer
_address.restype, _address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Bits:
    """An array of bfloat16, if it is one, as unsigned integers of as many bits."""

    def __init__(self, value: Any) -> None:
        self.value, self.capsule = value, value.__dlpack__()
        start: Any = _address(self.capsule, b"dltensor")
        code = ctypes.c_uint8.from_address(start + _CODE)
        self.is_bfloat16 = code.value == _BFLOAT
        if self.is_bfloat16:
            code.value = _UNSIGNED

    def __dlpack_device__(self) -> Any:
        return self.value.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


def from_dlpack(value: Any) -> Array:
    """Return an array of another library that is on the host, sharing its memory.

    Raises BufferError, RuntimeError or TypeError if it is elsewhere, or has a dtype that NumPy
    lacks and that is not bfloat16.
    """
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):
        bits = _Bits(value)
        if not bits.is_bfloat16:
            raise
        return np.from_dlpack(bits).view(as_dtype("bfloat16"))
