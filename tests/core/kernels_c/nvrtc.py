"""NVIDIA's compiler for CUDA C at run time, which needs neither a driver nor a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from functools import cache
from pathlib import Path

ARCHITECTURES = ("sm_80", "sm_90")


@cache
def library():
    """Return the library, from the package nvidia-cuda-nvrtc or the system; None without it."""
    found = [
        str(path)
        for folder in sys.path
        for path in sorted(Path(folder).glob("nvidia/*/lib/libnvrtc.so.*"))
        if "builtins" not in path.name
    ]
    name = found[0] if found else ctypes.util.find_library("nvrtc")
    return ctypes.CDLL(name) if name else None


def log_of(source, architecture=ARCHITECTURES[0]):
    """Compile a source; returns the compiler's complaints, which are empty where it had none."""
    nvrtc, program = library(), ctypes.c_void_p()
    text = source.encode()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"weft.cu", 0, None, None)
    options = [f"-arch={architecture}".encode(), b"--std=c++17"]
    given = (ctypes.c_char_p * len(options))(*options)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or ("failed without a word" if failed else "")
