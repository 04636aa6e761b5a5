"""Arrays of other libraries are read by DLPack, those of bfloat16 as well."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import weft
from weft.ir.dlpack import from_dlpack


class DLTensor(ctypes.Structure):
    """The beginning of the structure of the same name in ``dlpack.h``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class Exporter:
    """Exports an array of integers as one of another kind with as many bits."""

    def __init__(self, array: Any, code: int) -> None:
        self.array, self.code = array, code

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        DLTensor.from_address(pointer(capsule, b"dltensor")).code = self.code
        return capsule


def test_bfloat16_shares_the_memory_of_its_exporter() -> None:
    bits = np.array([[0x3F80, 0x4000, 0x4040], [0, 0xBF80, 0x7F80]], np.uint16)
    found = from_dlpack(Exporter(bits[:, ::2], 4))
    assert found.dtype.name == "bfloat16"
    assert found.tolist() == [[1, 3], [0, float("inf")]]
    bits[0, 0] = 0x4000
    assert found[0, 0] == 2


def test_every_way_in_takes_bfloat16() -> None:
    array = Exporter(np.array([0x3F80, 0x4000], np.uint16), 4)
    state = weft.persistent_tensor((2,), "bfloat16", name="state")
    transformer = weft.make_transformer("numpy")
    run = transformer.computation(state * 1)
    transformer.load_states({"state": array})
    for found in (run(), weft.jit(lambda x: x + 0, backend="numpy")(array)):
        assert found.dtype.name == "bfloat16"
        assert found.tolist() == [1, 2]
    assert weft.from_dlpack(array).dtype.name == "bfloat16"


def test_dtypes_that_weft_lacks_are_refused() -> None:
    with pytest.raises((BufferError, RuntimeError), match=r"[Uu]nsupported dtype"):
        from_dlpack(Exporter(np.zeros(2, np.uint16), 3))  # handles
