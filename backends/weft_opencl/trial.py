"""A trial compilation in a separate process, since the compilers of some drivers may end it.

Runs as a script, with the index of a platform and of a device on it, and the source of a program on
the standard input. It imports nothing of weft, and prints `ENDED` when the compiler has returned.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress

OPTIONS = ["-w"]
"""Compiler options: no warnings, since PoCL prints their number on the terminal."""

ENDED = "the compiler has returned"


def main(platform: str, place: str) -> None:
    """Compile a program and all of its kernels; errors are left to the process that asks."""
    warnings.simplefilter("ignore")
    import pyopencl as cl

    handle = cl.get_platforms()[int(platform)].get_devices()[int(place)]
    program = cl.Program(cl.Context([handle]), sys.stdin.buffer.read().decode())
    program.get_info(cl.program_info.REFERENCE_COUNT)  # disables pyopencl's cache on disk
    with suppress(cl.Error):
        # PoCL compiles a kernel when it is launched, or when its binary is asked for.
        program.build(OPTIONS).get_info(cl.program_info.BINARIES)
    print(ENDED, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
