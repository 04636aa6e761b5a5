"""The runtime library: a pool of threads, and matrix products by the BLAS that NumPy has loaded."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.support.interrupts import raise_pending
from weft_native.shared_library import load

FUNCTIONS = ("weft_run", "weft_gemm", "weft_poll", "weft_host", "weft_blas", "weft_threads")
"""The functions of the library, first those that programs call."""

BLAS_FUNCTIONS = (
    "cblas_sgemm",
    "cblas_dgemm",
    "openblas_set_num_threads",
    "openblas_get_num_threads",
)
"""The functions of OpenBLAS that products need; those with 64-bit integers are used."""

NAMES = ("scipy_{}64_", "{}64_")
"""How builds of OpenBLAS with 64-bit integers name their functions."""

_Poll = ctypes.CFUNCTYPE(ctypes.c_int)


class Runtime:
    """The runtime library of this process.

    Attributes
    ----------
    table
        The addresses of its functions, which programs take: ``struct weft_runtime``.
    has_blas
        Whether it found an OpenBLAS.
    interrupt
        The exception that ended a loop in C, until it is raised.
    """

    def __init__(self) -> None:
        text = files("weft_native").joinpath("runtime.c").read_text(encoding="utf-8")
        self.library = load(text, "the runtime of native programs", FUNCTIONS, is_permanent=True)
        addresses = [_address(getattr(self.library, name)) for name in FUNCTIONS[:3]]
        self.table = (ctypes.c_void_p * len(addresses))(*addresses)
        self.threads = 0
        self.interrupt: BaseException | None = None
        self._poll = _Poll(self._interrupted)
        self.library.weft_host(self._poll)
        blas = find_blas()
        self.has_blas = blas is not None
        if blas is not None:
            self.library.weft_blas(*(ctypes.c_void_p(_address(each)) for each in blas))

    def use_threads(self, count: int) -> None:
        """Let the pool have at least `count` threads, the caller's included, from its start on."""
        if count > self.threads:
            self.threads = count
            self.library.weft_threads(count)

    def _interrupted(self) -> int:
        """Whether an interrupt is pending that ends the loop which asks."""
        try:
            raise_pending()
        except BaseException as error:
            self.interrupt = error
            return 1
        return 0

    def raise_interrupt(self) -> None:
        """Raise the exception that ended a loop."""
        found, self.interrupt = self.interrupt, None
        if found is not None:
            raise found


@cache
def runtime() -> Runtime:
    """Return the runtime of this process, which is compiled or loaded on first use."""
    return Runtime()


def find_blas() -> list[Callable[..., Any]] | None:
    """Return the functions of NumPy's OpenBLAS; None if it has another BLAS or is not found.

    NumPy has been imported, and so has its BLAS.
    """
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for path in dict.fromkeys(re.findall(r"/\S*openblas\S*\.so\S*", maps)):
        if not os.path.exists(path):
            continue
        library = ctypes.CDLL(path)
        for name in NAMES:
            try:
                return [getattr(library, name.format(each)) for each in BLAS_FUNCTIONS]
            except AttributeError:
                continue
    return None


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "functions have addresses"
    return found
