"""The runtime library: a pool of threads, products by NumPy's BLAS, and the binding to Python."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.linalg import _umath_linalg

from weft.support.interrupts import raise_pending
from weft_native.shared_library import load

CALLED = ("weft_run", "weft_gemm", "weft_poll", "weft_clock")
"""The functions of the library that programs call, in the order of ``struct weft_runtime``."""

FUNCTIONS = (*CALLED, "weft_host", "weft_blas", "weft_threads", "weft_python", "weft_bind")
"""All functions of the library."""

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

_permanent: list[Runtime] = []
"""All runtimes: loaded programs hold their addresses, so none is ever freed."""


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
        self.library = load(
            source(), "the runtime of native programs", FUNCTIONS, is_permanent=True
        )
        addresses = [address(getattr(self.library, name)) for name in CALLED]
        self.table = (ctypes.c_void_p * len(addresses))(*addresses)
        self.threads = 0
        self.interrupt: BaseException | None = None
        self._poll = _Poll(self._interrupted)
        self.library.weft_host(self._poll)
        blas = find_blas()
        self.has_blas = blas is not None
        if blas is not None:
            self.library.weft_blas(*(ctypes.c_void_p(address(each)) for each in blas))

    def use_threads(self, count: int) -> None:
        """Let the pool have at least `count` threads, the caller's included, from its start on."""
        if count > self.threads:
            self.threads = count
            self.library.weft_threads(count)

    @contextmanager
    def on_one_thread(self) -> Iterator[None]:
        """Let calls of all threads run without the pool."""
        self.library.weft_threads(1)
        try:
            yield
        finally:
            self.library.weft_threads(self.threads)

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


def source() -> str:
    """Return the C source of the runtime library."""
    parts = (files("weft_native").joinpath(name) for name in ("system.h", "runtime.c", "binding.c"))
    return "".join(part.read_text(encoding="utf-8") for part in parts)


@cache
def runtime() -> Runtime:
    """Return the runtime of this process, which is compiled or loaded on first use."""
    made = Runtime()
    _permanent.append(made)
    return made


def find_blas() -> list[Callable[..., Any]] | None:
    """Return the functions of NumPy's OpenBLAS; None if it has another BLAS or is not found."""
    for path in _linked_with_blas():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in NAMES:
            with suppress(AttributeError):
                return [getattr(library, name.format(each)) for each in BLAS_FUNCTIONS]
    return None


def _linked_with_blas() -> Iterator[Path]:
    """Yield libraries of NumPy whose symbols may be those of its BLAS.

    Systems with POSIX's loader look for a symbol in a library and those that it is linked with,
    Windows in the library alone, which wheels of NumPy have in a folder.
    """
    if sys.platform != "win32":
        yield Path(_umath_linalg.__file__)
    yield from (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*.dll")


def address(function: Any) -> int:
    """Return the address of a function of a library."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "functions have addresses"
    return found
