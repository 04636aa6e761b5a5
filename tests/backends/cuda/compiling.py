"""NVRTC without CuPy: whether CUDA C compiles, which needs neither a driver nor a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache
from pathlib import Path
from typing import Any

ARCHITECTURES = ("sm_80", "sm_90")
OPTIONS = ("--std=c++17", "--Ofast-compile=max")
"""Without optimisation: what is refused is the same, and machine code comes six times as fast."""

HARMLESS = ("-diag-suppress=177", "-diag-suppress=186")
"""Names without use, and unsigned numbers compared with 0, as functions for all types have them."""


@cache
def library() -> Any:
    """Return the library, from the package nvidia-cuda-nvrtc or the system; None without it."""
    found = [
        str(path)
        for folder in sys.path
        for path in sorted(Path(folder).glob("nvidia/*/lib/libnvrtc.so.*"))
        if "builtins" not in path.name
    ]
    name = found[0] if found else ctypes.util.find_library("nvrtc")
    return ctypes.CDLL(name) if name else None


def complaints(source: str) -> str:
    """Return what the compiler says of a source for all architectures; nothing if it is content."""
    return "\n".join(_log(source, each) for each in ARCHITECTURES).strip()


def _log(source: str, architecture: str) -> str:
    nvrtc, program = library(), ctypes.c_void_p()
    named = [f"-arch={architecture}", *OPTIONS, *HARMLESS]
    options = (ctypes.c_char_p * len(named))(*(each.encode() for each in named))
    text = source.encode()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"weft.cu", 0, None, None)
    failed = nvrtc.nvrtcCompileProgram(program, len(named), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or ("failed without a word" if failed else "")
