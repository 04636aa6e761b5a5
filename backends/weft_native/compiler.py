"""The host's C compiler: its discovery, its target, and what it makes of C source."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from weft import settings
from weft.cache.store import is_off, open_cache
from weft.errors import BackendError
from weft.report.progress import Stage
from weft.support.digest import digest_of
from weft.support.processor import processor_features
from weft.support.scratch import ScratchFolder
from weft_c.runtime.errors import build_error
from weft_native.how_to_get_a_compiler import how_to_get_a_compiler
from weft_native.processes import run_all

FLAGS = (
    "-std=gnu11", "-O2", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=fast",
    "-Wno-psabi", "-Wno-pass-failed", "-Werror=implicit-function-declaration",
)  # fmt: skip
"""The compiler's options; results are IEEE 754's, but for products contracted with additions.

A function that is not declared is an error, since C takes its result for an int. Clang does not
warn of loops that it cannot unroll, which is a hint.
"""

GCC_FLAGS = ("-fno-tree-loop-vectorize",)
"""Options of GCC alone: GCC 12.2 reads wrong elements in some loops with negative steps that it
vectorizes, and kernels are written in vectors anyway."""

GCC_X86_FLAGS = ("-mno-red-zone",)
"""Options of GCC alone on x86: in functions that call no others, GCC 14.2 takes vectors below the
stack pointer for aligned that are not, and the process dies."""


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


@dataclass(frozen=True)
class System:
    """How shared libraries are made on an operating system.

    Attributes
    ----------
    suffix
        How the names of shared libraries end.
    flags
        Options for code in shared libraries.
    libraries
        The libraries that programs are linked with.
    """

    suffix: str
    flags: tuple[str, ...] = ("-fPIC",)
    libraries: tuple[str, ...] = ()


SYSTEMS = {"win32": System(".dll", ()), "darwin": System(".dylib")}
"""The systems, by `sys.platform`, where every program is linked with the library of C."""

PROGRAM_SUFFIX = ".exe" if sys.platform == "win32" else ""
"""How the names of programs end."""

SYSTEM = SYSTEMS.get(sys.platform, System(".so", libraries=("-lm", "-lpthread")))
"""The system of this process."""

TARGETS = {
    "__AVX512F__": Vectors(16, 26),
    "__AVX2__": Vectors(8, 12),
    "__ARM_NEON": Vectors(4, 26),
}
"""The vectors of targets, by a macro that their compilers define; the first that is defined."""

_FULL = re.compile("No space left|NoSpaceLeft|Dis[ck] quota exceeded")
"""What compilers, and systems, say of a disk that is full."""

CLANG = "__clang__"
"""The macro of Clang, and of Zig, which compiles with it."""

OTHERS = Vectors(4, 12)
"""The vectors of other targets: those of SSE2, and of compilers that emulate vectors."""


def split_command(command: str, system: str = sys.platform) -> list[str]:
    r"""Return the words of a command as a shell reads them; on Windows backslashes are of paths.

    Raises ValueError for a quotation without an end.

    >>> split_command(r'"C:\my tools\gcc.exe" -pipe', "win32")
    ['C:\\my tools\\gcc.exe', '-pipe']
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if system == "win32":
        lexer.escape = ""
    return list(lexer)


class NoCompilerError(BackendError):
    """Says how to get a C compiler where there is none."""


def zig_command() -> tuple[str, ...]:
    """Return the command of the compiler in the package `ziglang`; empty without it.

    Its module would need an interpreter, which a frozen program does not have. By itself Zig adds
    debug information, with the path of a temporary folder.
    """
    found = find_spec("ziglang")
    if found is None or found.origin is None:
        return ()
    return str(Path(found.origin).with_name("zig" + PROGRAM_SUFFIX)), "cc", "-g0"


@cache
def command() -> tuple[str, ...]:
    """Return the command of the compiler.

    That is ``WEFT_CC``, else ``cc``, ``gcc`` or ``clang``, else that of the package `ziglang`.
    Raises NoCompilerError if there is none, and BackendError if ``WEFT_CC`` is not a command.
    """
    named = settings.CC.value
    if named:
        try:
            words = split_command(named)
        except ValueError as error:  # a quotation without an end
            raise BackendError(f"{settings.CC.name}={named!r} is not a command: {error}") from None
        found = shutil.which(words[0]) if words else None
        if found is None:
            raise BackendError(
                f"{settings.CC.name}={named!r} is not a command: {how_to_get_a_compiler()}"
            )
        return (os.path.abspath(found), *words[1:])
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return (os.path.abspath(found),)
    if zig := zig_command():
        return zig
    raise NoCompilerError(f"there is no C compiler: {how_to_get_a_compiler()}")


def is_x86() -> bool:
    """Whether this machine is of the x86 family."""
    return platform.machine().lower() in ("x86_64", "amd64", "i686")


def own_flags() -> tuple[str, ...]:
    """Return the options that this compiler needs, and others do not have."""
    if CLANG in macros():
        return ()
    return (*GCC_FLAGS, *GCC_X86_FLAGS) if is_x86() else GCC_FLAGS


def target_flags() -> tuple[str, ...]:
    """Return the options that select the processor of this machine."""
    if is_x86():
        return ("-march=native",)
    return ("-mcpu=native",) if platform.machine().lower() in ("aarch64", "arm64") else ()


@cache
def identity() -> str:
    """Return the key of compiled code beside its source: compiler, flags and processor."""
    program = Path(command()[0]).resolve()
    try:
        found = program.stat()
    except OSError as error:
        raise BackendError(f"the compiler {program} is gone: {error}") from error
    parts = [
        *command(),
        *FLAGS,
        *GCC_FLAGS,
        *GCC_X86_FLAGS,
        *SYSTEM.flags,
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
    key = key_of("\n".join(["macros", *TARGETS, CLANG]))
    cached = None if is_off() else open_cache().read(key)
    if cached is None:
        with ScratchFolder() as folder:
            empty = folder / "empty.c"
            empty.touch()
            arguments = ["-dM", "-E", empty.name]
            doing = "asking for its target"
            found = run([*command(), *target_flags(), *arguments], doing, folder)
        names = (name for name in (*TARGETS, CLANG) if f"#define {name} " in found)
        cached = "\n".join(names).encode()
        if not is_off():
            open_cache().write(key, cached)
    return frozenset(cached.decode().split())


def vectors() -> Vectors:
    """Return the vectors of the target; raises BackendError if the compiler does not run."""
    return next((TARGETS[name] for name in TARGETS if name in macros()), OTHERS)


def run(arguments: list[str], doing: str, folder: Path) -> str:
    """Run the compiler in a folder and return its output; raises BackendError with it otherwise."""
    ((log, code),) = run_all([arguments], doing, folder)
    if code:
        _require_room(doing, log)
        raise BackendError(f"{doing}: {arguments[0]} ended with {code}\n{log[:4000]}")
    return log


def _require_room(doing: str, log: str) -> None:
    """Raise BackendError if a compiler failed because the disk with its files is full."""
    if _FULL.search(log):
        where = tempfile.gettempdir()
        free = shutil.disk_usage(where).free / settings.MEGABYTE
        raise BackendError(
            f"{doing}: the disk is full. The compiler's files did not fit into {where}, where "
            f"{free:.1f} MB are free: make room there, or set TMPDIR to a folder on another disk"
        )


def key_of(text: str) -> str:
    """Return the key in the cache of what the compiler makes of a text."""
    return digest_of(f"native\n{identity()}\n{text}".encode())


def build(text: str, name: str, flags: Sequence[str] = (), units: int = 1) -> bytes:
    """Compile C source, and return the shared library; raises BackendError as `load` does."""
    doing = f"compiling {name}"
    compile_ = [*command(), *FLAGS, *SYSTEM.flags, *own_flags(), *target_flags(), *flags]
    try:
        with (
            Stage(doing, units if units > 1 else None) as stage,
            ScratchFolder() as folder,
        ):
            # Compilers run in the folder, whose path some of them could not spell.
            source, made = folder / "program.c", folder / f"program{SYSTEM.suffix}"
            source.write_text(text, encoding="utf-8", newline="\n")
            objects = [source.name]
            log, code = "", 0
            if units > 1:
                objects = [f"{unit}.o" for unit in range(units)]
                commands = [
                    [*compile_, f"-DUNIT={unit}", "-c", source.name, "-o", each]
                    for unit, each in enumerate(objects)
                ]
                results = run_all(commands, doing, folder, stage.advance)
                log, code = next((each for each in results if each[1]), ("", 0))
            if not code:
                link = [*compile_, "-shared", *objects, "-o", made.name, *SYSTEM.libraries]
                ((log, code),) = run_all([link], doing, folder)
            if not code and made.exists():
                return made.read_bytes()
    except OSError as error:
        _require_room(doing, str(error))
        raise BackendError(f"{doing}: no room for its files: {error}") from error
    _require_room(doing, log)
    lines = [int(number) for number in re.findall(r"program\.c:(\d+):\d+: .*error", log)]
    named = " ".join(command())
    refused = f"{named} could not compile {name} (exit status {code})"
    raise build_error(refused, named, log[:4000], text, lines)
