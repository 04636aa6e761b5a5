"""NVRTC, the run-time compiler of CUDA C, which needs neither a driver nor a GPU."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from weft_cupy.compiler import OPTIONS

ARCHITECTURES = ("sm_80", "compute_90")
"""Machine code for the first, which takes most of the time, and only PTX for the second."""
NEWEST = "sm_90"
"""Architectures for which fewer sources are compiled."""
QUICKLY = ("--Ofast-compile=max",)
"""Options without optimization: the same errors, six times as fast."""
HARMLESS = ("-diag-suppress=177", "-diag-suppress=186")
"""Ignored warnings: unused names, and comparisons of unsigned numbers with 0."""


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


def complaints(source: str, architectures: Sequence[str] = ARCHITECTURES) -> str:
    """Return the compiler's log of a source for all architectures; empty without complaints."""
    return "\n".join(log_of(source, each, QUICKLY + HARMLESS) for each in architectures).strip()


def log_of(source: str, architecture: str = ARCHITECTURES[0], options: Sequence[str] = ()) -> str:
    """Compile a source; returns the compiler's log, empty without complaints."""
    log, ptx = _compiled(source, architecture, options)
    return log or ("" if ptx else "failed without a word")


class Usage(NamedTuple):
    """The resources of a kernel: registers for each thread, shared bytes for each block."""

    registers: int
    shared: int


def usage_of(source: str, architecture: str) -> dict[str, Usage]:
    """Return the resources of kernels by name, as the assembler reports; none without code."""
    log, _ = _compiled(source, architecture, (*QUICKLY, *HARMLESS, "--ptxas-options=-v"))
    return {
        name: Usage(int(registers), sum(map(int, re.findall(r"(\d+) bytes smem", others))))
        for name, registers, others in _USED.findall(log)
    }


_USED = re.compile(r"entry function '(\w+)'[\s\S]*?Used (\d+) registers(.*)")


def ptx_of(source: str) -> str:
    """Return the optimized PTX of a source."""
    log, ptx = _compiled(source, "compute_90", ())
    assert ptx, log
    return ptx


def _compiled(source: str, architecture: str, options: Sequence[str]) -> tuple[str, str]:
    """Return the compiler's log, and PTX, which is empty if it failed."""
    nvrtc, program = library(), ctypes.c_void_p()
    text = source.encode()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"weft.cu", 0, None, None)
    named = [*OPTIONS, f"-arch={architecture}", *options]
    given = (ctypes.c_char_p * len(named))(*(each.encode() for each in named))
    failed = nvrtc.nvrtcCompileProgram(program, len(named), given)
    log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    ptx = "" if failed else _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return log, ptx


def _text(size_of: Any, copy: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    found = ctypes.create_string_buffer(size.value)
    copy(program, found)
    return found.value.decode()
