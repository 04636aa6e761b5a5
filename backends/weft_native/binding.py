"""The binding of programs to Python: a builtin function for each, where Python's headers are there.

A call through it costs a tenth of a microsecond, one through `ctypes` about one.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.errors import BackendError
from weft_native.shared_library import load

_LINKING = {
    "win32": (
        f"-L{Path(sys.base_prefix, 'libs')}",
        f"-lpython{sys.version_info.major}{sys.version_info.minor}",
    ),
    "darwin": ("-undefined", "dynamic_lookup"),
}
"""By system, the options to link with the interpreter; elsewhere its symbols are found by name."""


@cache
def binder() -> Callable[..., Any] | None:
    """Return ``weft_bind`` of binding.c; None without Python's headers, or where it fails."""
    folder = Path(sysconfig.get_path("include"))
    if sys.implementation.name != "cpython" or not (folder / "Python.h").exists():
        return None
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    source = files("weft_native").joinpath("binding.c").read_text(encoding="utf-8")
    try:
        # The version is part of the text, since the layout of objects depends on it.
        text = f"// Python {sys.version}\n{source}"
        flags = (f"-I{folder}", *_LINKING.get(sys.platform, ()))
        library = load(text, "the binding to Python", ["weft_bind"], flags, is_permanent=True)
    except BackendError:
        return None
    prototype = ctypes.PYFUNCTYPE(
        ctypes.py_object,
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int,
        ctypes.py_object, ctypes.py_object,
    )  # fmt: skip
    return prototype(("weft_bind", library))
