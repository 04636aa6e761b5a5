"""Trial compilations in a separate process, since the compilers of some drivers may end it.

Runs as a script, with the index of a platform and of a device on it. Each program comes on the
standard input, after a line with the number of its bytes. It imports nothing of weft, and prints
`ENDED` when the compiler has returned.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from contextlib import suppress

OPTIONS = ["-w"]
"""Compiler options: no warnings, since PoCL prints their number on the terminal."""

ENDED = "the compiler has returned"

IDLE = 20.0
"""The seconds after which a process that is given nothing ends; it holds the driver's compiler."""


def main(platform: str, place: str) -> None:
    """Compile programs and all of their kernels; errors are left to the process that asks."""
    warnings.simplefilter("ignore")
    import pyopencl as cl

    handle = cl.get_platforms()[int(platform)].get_devices()[int(place)]
    context = cl.Context([handle])
    while source := _next_source():
        program = cl.Program(context, source)
        program.get_info(cl.program_info.REFERENCE_COUNT)  # disables pyopencl's cache on disk
        with suppress(cl.Error):
            # PoCL compiles a kernel when it is launched, or when its binary is asked for.
            program.build(OPTIONS).get_info(cl.program_info.BINARIES)
        print(ENDED, flush=True)


def _next_source() -> str:
    """Return the next program; empty at the end of the input."""
    timer = threading.Timer(IDLE, os._exit, [0])
    timer.daemon = True
    timer.start()
    size = sys.stdin.buffer.readline()
    timer.cancel()
    return sys.stdin.buffer.read(int(size)).decode() if size else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
