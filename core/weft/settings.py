"""Settings: the environment variables that weft reads, and some that libraries below it read.

Each is one row of this module. Code reads a variable by `Setting.value`; `weft doctor` and
docs/environment.md list them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from weft.errors import ArgumentError

T = TypeVar("T")

MEGABYTE = 2**20


@dataclass(frozen=True)
class Setting(Generic[T]):
    """An environment variable.

    Attributes
    ----------
    name
        Its name.
    default
        The value if it is not set, or blank.
    parse
        Converts its text; raises ValueError or OverflowError for a text that has no meaning.
    meaning
        What it does, in Markdown.
    expected
        What `parse` accepts, for error messages.
    page
        The page of the documentation, and its section, that says more; empty for none.
    """

    name: str
    default: T
    parse: Callable[[str], T]
    meaning: str
    expected: str = ""
    page: str = ""

    @property
    def text(self) -> str:
        """Its text without surrounding blanks; empty if it is not set."""
        return os.environ.get(self.name, "").strip()

    @property
    def value(self) -> T:
        """Its value; raises ArgumentError if its text has no meaning."""
        text = self.text
        if not text:
            return self.default
        try:
            return self.parse(text)
        except (ValueError, OverflowError):
            raise ArgumentError(f"{self} is not {self.expected}") from None

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


def _is_on(text: str) -> bool:
    return text.lower() not in ("0", "false", "no", "off")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _seconds(text: str) -> float:
    if not (seconds := float(text)) > 0:
        raise ValueError(text)
    return seconds


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _display(text: str) -> str:
    if text not in (AUTO, ON, OFF):
        raise ValueError(text)
    return text


AUTO, ON, OFF = "auto", "on", "off"
"""The values of `PROGRESS`."""

BACKEND = Setting(
    "WEFT_BACKEND", "", str,
    "the backend of `make_transformer()` without a name; by default `native` where there is a C "
    "compiler, else `numpy`; overridden by an argument or `weft.backend(...)`",
)  # fmt: skip
CACHE = Setting(
    "WEFT_CACHE", True, _is_on,
    "`0` (or `off`, `no`, `false`) disables the compile cache",
    page="caching.md",
)  # fmt: skip
CACHE_DIR = Setting[Path | None](
    "WEFT_CACHE_DIR", None, Path,
    "the folder of the compile cache; the user's cache folder by default",
)  # fmt: skip
CACHE_SIZE = Setting(
    "WEFT_CACHE_SIZE", 512 * MEGABYTE, lambda text: int(float(text) * MEGABYTE),
    "the maximum size of this folder in megabytes, 512 by default",
    "a number of megabytes",
)  # fmt: skip
CC = Setting(
    "WEFT_CC", "", str,
    "the C compiler of the native backend, a command with its options; by default the first of "
    "`cc`, `gcc` and `clang`, else that of the package `ziglang`",
    page="native.md#compilers",
)  # fmt: skip
CHECK_FINITE = Setting(
    "WEFT_CHECK_FINITE", False, _is_on,
    "`1` makes every call check its results and the states that it writes, and name the op that a "
    "NaN or an infinity comes from; read when a transformer is made",
    page="debugging.md",
)  # fmt: skip
COLLECTIVE_TIMEOUT = Setting(
    "WEFT_COLLECTIVE_TIMEOUT", 300.0, _seconds,
    "the seconds that a rank waits for the others, 300 by default",
    "a positive number of seconds, such as 60",
    "distributed.md#when-ranks-differ",
)  # fmt: skip
COMMUNICATOR = Setting(
    "WEFT_COMMUNICATOR", "", str,
    "the communicator of collectives that name none; by default `mpi` under a launcher of MPI, "
    "else `local`; overridden by an argument or `weft.communicators.communicator(...)`",
    page="distributed.md",
)  # fmt: skip
CUPY_DEVICE = Setting(
    "WEFT_CUPY_DEVICE", "", str,
    "the GPU of the CuPy backend: its index in the driver's order, or a part of its name; "
    "overridden by the option `device=`; the first usable one by default, or one for each rank",
    page="distributed.md#gpus",
)  # fmt: skip
DISABLE_PLUGINS = Setting[tuple[str, ...]](
    "WEFT_DISABLE_PLUGINS", (), _words,
    "plugins that are not loaded: names, or `group:name`, separated by commas",
    page="plugins.md",
)  # fmt: skip
DUMP = Setting[Path | None](
    "WEFT_DUMP", None, Path,
    "a folder for the text of each graph before and after every pass that changes it",
    page="debugging.md",
)  # fmt: skip
NUM_THREADS = Setting[int | None](
    "WEFT_NUM_THREADS", None, _positive,
    "the number of threads of the NumPy and the native backend; overridden by the option "
    "`threads=`; the CPUs that the process may use by default",
    "a whole number, 1 or more",
)  # fmt: skip
OPENCL_DEVICE = Setting(
    "WEFT_OPENCL_DEVICE", "", str,
    "the device of the OpenCL backend: its index in the order of the drivers, a part of its name, "
    "or `platform:device`, each an index or a part of a name; overridden by the option `device=`; "
    "the best working device by default",
    page="backends.md",
)  # fmt: skip
WEBGPU_DEVICE = Setting(
    "WEFT_WEBGPU_DEVICE", "", str,
    "the adapter of the WebGPU backend: its index in the order of the drivers, or a part of its "
    "name; overridden by the option `device=`; the best adapter by default",
    page="backends.md",
)  # fmt: skip
PASSES = Setting[tuple[str, ...]](
    "WEFT_PASSES", (), _words,
    "changes of the default pipeline, separated by commas: `-fusion` removes a pass, `+name` "
    "inserts one at the beginning, `+name@fusion` before another; ignored where the program passes "
    "`passes=`",
    page="passes.md",
)  # fmt: skip
PREFER = Setting[tuple[str, ...]](
    "WEFT_PREFER", (), _words,
    "the distribution of a plugin that several distributions provide: `group:name=distribution`, "
    "separated by commas, as in `passes:fusion=weft-gem`",
    page="plugins.md#how-plugins-are-found",
)  # fmt: skip
PROGRESS = Setting(
    "WEFT_PROGRESS", AUTO, _display,
    "where progress of long work is shown: `auto` (a terminal or a notebook, the default), `on` "
    "(the error stream also where weft sees no terminal), `off`",
    f"{AUTO}, {ON} or {OFF}",
    "notebooks.md#progress",
)  # fmt: skip

OPENBLAS_CORETYPE = Setting(
    "OPENBLAS_CORETYPE", "", str,
    "read by NumPy's BLAS: `Haswell` makes its matrix product about half as fast on newer CPUs",
)  # fmt: skip
OPENBLAS_NUM_THREADS = Setting(
    "OPENBLAS_NUM_THREADS", "", str,
    "read by NumPy's BLAS when NumPy is imported: the threads of a matrix product, all cores by "
    "default; 1 may be faster for small products or concurrent calls",
)  # fmt: skip
POCL_AFFINITY = Setting(
    "POCL_AFFINITY", "", str,
    "read by PoCL at the first query of OpenCL devices: `1` binds each of its threads to a core, "
    "`0` does not; by default weft binds them if the process may use all cores",
    page="backends.md#threads",
)  # fmt: skip
POCL_CACHE_DIR = Setting(
    "POCL_CACHE_DIR", "", str,
    "read by PoCL at the same time: the folder in which it keeps compiled kernels; `pocl` in the "
    "user's cache folder by default, or in a temporary one where that cannot be written to",
)  # fmt: skip
POCL_DEVICES = Setting(
    "POCL_DEVICES", "", str,
    "read by PoCL at the same time: `basic` uses one thread, and keeps few kernels in memory",
    page="backends.md#memory",
)  # fmt: skip

SETTINGS: dict[str, Setting[Any]] = {
    each.name: each for each in list(globals().values()) if isinstance(each, Setting)
}
"""All of them, by name."""
