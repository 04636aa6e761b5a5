"""The host's C compiler: its discovery, its target, and shared libraries built with it.

A library is kept in the cache folder under a digest of its source, the compiler, the flags and the
processor. It is loaded from a private temporary file: the cache folder may forbid execution, and
its files carry a digest of their own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from weft.cache.store import is_off, open_cache
from weft.errors import BackendError
from weft.report.progress import Stage
from weft.support.digest import digest_of
from weft.support.locks import renewed
from weft.support.processor import processor_features
from weft_c.runtime.errors import build_error

VARIABLE = "WEFT_CC"
TIME_LIMIT = 300.0
"""The seconds after which a compiler is stopped."""

FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-w", "-fno-math-errno",
    "-fno-trapping-math", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=fast",
)  # fmt: skip
"""The compiler's options; results are IEEE 754's, but for products contracted with additions."""

GCC_FLAGS = ("-fno-tree-loop-vectorize",)
"""Options of GCC alone: GCC 12.2 reads wrong elements in some loops with negative steps that it
vectorises, and kernels are written in vectors anyway."""

HOW_TO_GET_ONE = (
    "install one (apt-get install gcc, or clang), name one in WEFT_CC, or pip install "
    "'weft[native-zig]'"
)

_loading = renewed(threading.RLock())
_loaded: dict[str, ctypes.CDLL] = {}
_open_files: list[int] = []


@dataclass(frozen=True)
class Vectors:
    """The vectors of a target.

    Attributes
    ----------
    lanes
        The 32-bit lanes of a register.
    registers
        The registers for sums, beside those for operands.
    """

    lanes: int
    registers: int


TARGETS = {
    "__AVX512F__": Vectors(16, 26),
    "__AVX2__": Vectors(8, 12),
    "__ARM_NEON": Vectors(4, 26),
}
"""The vectors of targets, by a macro that their compilers define; the first that is defined."""

CLANG = "__clang__"
"""The macro of Clang, and of Zig, which compiles with it."""

OTHERS = Vectors(4, 12)
"""The vectors of other targets: those of SSE2, and of compilers that emulate vectors."""


@cache
def command() -> tuple[str, ...]:
    """Return the command of the compiler.

    That is ``WEFT_CC``, else ``cc``, ``gcc`` or ``clang``, else that of the package `ziglang`.
    Raises BackendError if there is none.
    """
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        words = shlex.split(named)
        found = shutil.which(words[0])
        if found is None:
            raise BackendError(f"{VARIABLE}={named!r} is no command: {HOW_TO_GET_ONE}")
        return (found, *words[1:])
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return (found,)
    if find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "cc")
    raise BackendError(f"there is no C compiler: {HOW_TO_GET_ONE}")


def target_flags() -> tuple[str, ...]:
    """Return the options that select the processor of this machine."""
    if platform.machine().lower() in ("x86_64", "amd64", "i686"):
        return ("-march=native",)
    return ("-mcpu=native",) if platform.machine().lower() in ("aarch64", "arm64") else ()


@cache
def identity() -> str:
    """Return what compiled code depends on beside its source: compiler, flags and processor."""
    program = Path(command()[0]).resolve()
    found = program.stat()
    parts = [
        *command(),
        *FLAGS,
        *GCC_FLAGS,
        *target_flags(),
        str(program),
        found.st_mtime_ns,
        found.st_size,
    ]
    return "\n".join(map(str, [*parts, platform.processor(), *sorted(processor_features())]))


@cache
def macros() -> frozenset[str]:
    """Return which of some macros the compiler defines for this processor.

    Raises BackendError if it does not run.
    """
    key = _key("\n".join(["macros", *TARGETS, CLANG]))
    cached = None if is_off() else open_cache().read(key)
    if cached is None:
        arguments = ["-dM", "-E", "-x", "c", os.devnull]
        found = run([*command(), *target_flags(), *arguments], "asking for its target")
        names = (name for name in (*TARGETS, CLANG) if f"#define {name} " in found)
        cached = "\n".join(names).encode()
        if not is_off():
            open_cache().write(key, cached)
    return frozenset(cached.decode().split())


def vectors() -> Vectors:
    """Return the vectors of the target; raises BackendError if the compiler does not run."""
    return next((TARGETS[name] for name in TARGETS if name in macros()), OTHERS)


def run(arguments: list[str], doing: str) -> str:
    """Run the compiler and return its output; raises BackendError with it if that fails."""
    log, code = _result(arguments, doing)
    if code:
        raise BackendError(f"{doing}: {arguments[0]} ended with {code}\n{log[:4000]}")
    return log


def _result(arguments: list[str], doing: str) -> tuple[str, int]:
    """Return the output and exit status of a compiler."""
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired:
        problem = f"{doing}: {arguments[0]} did not end within {TIME_LIMIT:.0f} s, and was stopped"
        raise BackendError(problem) from None
    except OSError as error:
        raise BackendError(f"{doing}: {arguments[0]} does not run: {error}") from error
    return done.stdout + done.stderr, done.returncode


def load(
    text: str,
    name: str,
    flags: Sequence[str] = (),
    prepare: Callable[[ctypes.CDLL], None] | None = None,
    units: int = 1,
) -> ctypes.CDLL:
    """Return the shared library of C source, from the cache or compiled now.

    `name` names the program in messages, `flags` are options beside `FLAGS`. Libraries of equal
    source are one; `prepare` is called when it is loaded. The source is compiled in `units` at the
    same time, each with its number as the macro ``UNIT``. Raises BackendError with the compiler's
    output and an excerpt of the source if it is refused.
    """
    key = _key("\n".join([*flags, text]))
    with _loading:
        found = _loaded.get(key)
        if found is None:
            content = None if is_off() else open_cache().read(key)
            if content is None:
                content = build(text, name, flags, units)
                if not is_off():
                    open_cache().write(key, content)
            found = _library(content, name)
            if prepare is not None:
                prepare(found)
            _loaded[key] = found
    return found


def _key(text: str) -> str:
    return digest_of(f"native\n{identity()}\n{text}".encode())


def build(text: str, name: str, flags: Sequence[str] = (), units: int = 1) -> bytes:
    """Compile C source, and return the shared library; raises BackendError as `load` does."""
    doing = f"compiling {name}"
    own = () if CLANG in macros() else GCC_FLAGS
    compile_ = [*command(), *FLAGS, *own, *target_flags(), *flags]
    try:
        with (
            Stage(doing, units if units > 1 else None) as stage,
            tempfile.TemporaryDirectory(prefix="weft-") as folder,
        ):
            source, made = Path(folder) / "program.c", Path(folder) / "program.so"
            source.write_text(text, encoding="utf-8")
            objects = [str(source)]
            log, code = "", 0
            if units > 1:
                objects = [f"{folder}/{unit}.o" for unit in range(units)]
                commands = [
                    [*compile_, f"-DUNIT={unit}", "-c", str(source), "-o", each]
                    for unit, each in enumerate(objects)
                ]
                results = []
                with ThreadPoolExecutor(units) as pool:
                    for each in pool.map(_result, commands, [doing] * units):
                        results.append(each)
                        stage.advance()
                log, code = next((each for each in results if each[1]), ("", 0))
            if not code:
                link = [*compile_, "-shared", *objects, "-o", str(made), "-lm", "-lpthread"]
                log, code = _result(link, doing)
            if not code and made.exists():
                return made.read_bytes()
    except OSError as error:
        raise BackendError(f"{doing}: no room for its files: {error}") from error
    lines = [int(number) for number in re.findall(r"program\.c:(\d+):\d+: .*error", log)]
    named = " ".join(command())
    refused = f"{named} could not compile {name} (exit status {code})"
    raise build_error(refused, named, log[:4000], text, lines)


def _library(content: bytes, name: str) -> ctypes.CDLL:
    """Load a shared library from memory, by way of a file that is removed at once."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        path = Path(folder) / "program.so"
        path.write_bytes(content)
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            problem = error
    if not hasattr(os, "memfd_create"):
        raise BackendError(f"loading {name}: {problem}") from problem
    # The folder may be mounted without permission to execute. The file stays open, because the
    # loader takes two libraries of one path for the same.
    handle = os.memfd_create("weft-program")
    _open_files.append(handle)
    with open(handle, "wb", closefd=False) as file:
        file.write(content)
    try:
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    except OSError as error:
        raise BackendError(f"loading {name}: {error}") from error
