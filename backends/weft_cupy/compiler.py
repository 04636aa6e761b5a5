"""NVRTC by its bindings, since modules that CuPy compiles flush subnormal numbers to zero.

CuPy appends ``-ftz=true`` to the options, and of contradicting options NVRTC takes the last one.
"""

from __future__ import annotations

from weft.cache.store import Cache
from weft.report.progress import Stage
from weft.support.digest import digest_of
from weft_cupy import drivers
from weft_cupy.errors import build_error

OPTIONS = ("--std=c++17", "-ftz=false")
"""The compiler options besides the architecture."""


def compiled(source: str, name: str, capability: int, device: str, cache: Cache | None) -> bytes:
    """Return the machine code of a program for a compute capability, cached if a cache is given.

    For devices newer than NVRTC it is PTX, which the driver compiles. Raises BackendError with the
    compiler's log and an excerpt.
    """
    nvrtc = drivers.nvrtc()
    architecture, is_machine_code = _architecture(capability)
    options = (*OPTIONS, f"-arch={architecture}")
    key = digest_of("\n".join(["cuda", str(nvrtc.getVersion()), *options, source]).encode())
    found = None if cache is None else cache.read(key)
    if found is None:
        program = nvrtc.createProgram(source, "kernels.cu", (), ())
        try:
            with Stage(f"compiling {name}"):
                nvrtc.compileProgram(program, options)
            found = bytes((nvrtc.getCUBIN if is_machine_code else nvrtc.getPTX)(program))
        except nvrtc.NVRTCError as error:
            log = nvrtc.getProgramLog(program) or str(error)
            raise build_error(log, source, device, name) from error
        finally:
            nvrtc.destroyProgram(program)
        if cache is not None:
            cache.write(key, found)
    return found


def _architecture(capability: int) -> tuple[str, bool]:
    """Return the architecture to compile for, and whether to machine code."""
    known = drivers.architectures()
    if capability in known:
        return f"sm_{capability}", True
    return f"compute_{max(each for each in known if each <= capability)}", False
