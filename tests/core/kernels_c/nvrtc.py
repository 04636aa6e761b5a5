"""NVIDIA's compiler for CUDA C at run time, which needs neither a driver nor a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

ARCHITECTURES = ("sm_80", "compute_90")
"""Machine code of the first, which takes most of the time, and of the second only PTX."""
QUICKLY = ("--Ofast-compile=max",)
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
    return "\n".join(log_of(source, each, QUICKLY + HARMLESS) for each in ARCHITECTURES).strip()


def log_of(source: str, architecture: str = ARCHITECTURES[0], options: Sequence[str] = ()) -> str:
    """Compile a source; returns the compiler's complaints, which are empty where it had none."""
    nvrtc, program = library(), ctypes.c_void_p()
    text = source.encode()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"weft.cu", 0, None, None)
    named = [f"-arch={architecture}", "--std=c++17", *options]
    given = (ctypes.c_char_p * len(named))(*(each.encode() for each in named))
    failed = nvrtc.nvrtcCompileProgram(program, len(named), given)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or ("failed without a word" if failed else "")
