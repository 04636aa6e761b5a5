"""The binding of programs to Python: a builtin function for each, where Python is CPython.

A call through it costs a tenth of a microsecond, one through `ctypes` about one.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any

from weft_native.library import address, runtime

FUNCTIONS = (
    "PyObject_Vectorcall",
    "PyCFunction_NewEx",
    "PyCapsule_New",
    "PyCapsule_GetPointer",
    "PyErr_NoMemory",
    "Py_IncRef",
    "Py_DecRef",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
"""The functions of Python that the binding calls, in the order of ``python`` in binding.c."""


@cache
def binder() -> Callable[..., Any] | None:
    """Return ``weft_bind`` of binding.c; None where Python is another one, or without its lock."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    library = runtime().library
    addresses = [address(getattr(ctypes.pythonapi, name)) for name in FUNCTIONS]
    library["weft_python"](
        (ctypes.c_void_p * len(addresses))(*addresses),
        ctypes.c_void_p(id(None)),
        ctypes.c_size_t(object.__basicsize__),
    )
    prototype = ctypes.PYFUNCTYPE(
        ctypes.py_object,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
        ctypes.py_object, ctypes.py_object,
    )  # fmt: skip
    return prototype(("weft_bind", library))
