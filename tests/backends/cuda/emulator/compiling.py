"""Programs in CUDA C or OpenCL C, compiled by g++ for the host.

The text is not changed, but for a line before each kernel that names the section of the memory its
groups share. A header, which comes before it, has what the dialect has of itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
HEADERS = {"__global__": "cuda.h", "__kernel": "opencl.h"}
"""By the word that begins a kernel, the header of its dialect."""

FLAGS = (
    "-std=gnu++17", "-O0", "-g1", "-fPIC", "-w", "-fvisibility=hidden", "-fno-exceptions",
    "-fno-rtti", "-fno-asynchronous-unwind-tables", "-fno-math-errno", "-fno-strict-aliasing",
    "-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
)  # fmt: skip
PLACES = ("-fsanitize=alignment,bounds",)
ARITHMETIC = (
    "-fsanitize=alignment,bounds,shift-exponent,signed-integer-overflow,integer-divide-by-zero",
)
"""What makes compiling take twice as long."""

_HEAD = re.compile(
    r'^(?:extern "C" __global__ __launch_bounds__\((?P<threads>\d+)\)'
    r"|__kernel __attribute__\(\(reqd_work_group_size\((?P<items>\d+), 1, 1\)\)\))"
    r"\nvoid (?P<name>\w+)\((?P<parameters>[^)]*)\)",
    re.M,
)


@dataclass(frozen=True)
class Kernel:
    """A kernel in machine code of the host.

    Attributes
    ----------
    name
        That in the program.
    start
        The address of what calls it with an array of the addresses of its arguments.
    shared
        Where the memory that a group shares begins and ends.
    group
        The work items of a group that it was written for.
    parameters
        How they are declared.
    adds_floats
        Whether it adds up floats, or multiplies them, in any order.
    unit
        The translation unit.
    """

    name: str
    start: int
    shared: tuple[int, int]
    group: int
    parameters: tuple[str, ...]
    adds_floats: bool
    unit: Path


def compiler() -> str | None:
    """Return where g++ is; None if it is not installed."""
    return shutil.which("g++")


class Compiler:
    """Compiles programs into a folder, each text once; several processes may share it.

    With `arithmetic` kernels tell undefined arithmetic as well, which takes twice as long to
    compile.
    """

    def __init__(self, folder: Path, arithmetic: bool = False) -> None:
        self.folder = folder
        self.flags = (*FLAGS, *(ARITHMETIC if arithmetic else PLACES))
        self._programs: dict[str, Mapping[str, Kernel]] = {}

    def program(self, text: str) -> Mapping[str, Kernel]:
        """Return the kernels of a program by name."""
        if text not in self._programs:
            self._programs[text] = self._compiled(text)
        return self._programs[text]

    def replace(self, text: str, other: str) -> None:
        """Let the kernels of another program take the places of those of a program."""
        self._programs[text] = {**self._compiled(text), **self._compiled(other)}

    def restore(self, text: str) -> None:
        """Let a program have its own kernels again."""
        self._programs.pop(text, None)

    @property
    def texts(self) -> list[str]:
        """The programs so far."""
        return [*self._programs]

    def _compiled(self, text: str) -> Mapping[str, Kernel]:
        header = next(name for word, name in HEADERS.items() if f"{word} " in text)
        heads = {found["name"]: found for found in _HEAD.finditer(text)}
        written = _HEAD.sub(lambda found: f"{_section(found['name'])}\n{found[0]}", text)
        written += "".join(map(_calling, heads))
        title = hashlib.sha256(f"{self.flags}{written}".encode()).hexdigest()[:20]
        source = self.folder / f"program_{title}.cpp"
        if not source.with_suffix(".so").exists():
            source.write_text(f'#include "{HERE / header}"\n{written}')
            shared_object(source, self.flags)
        library = ctypes.CDLL(str(source.with_suffix(".so")))
        ranges = bodies(text)
        return {
            name: _loaded(library, found, text[slice(*ranges[name])], source)
            for name, found in heads.items()
        }


def bodies(text: str) -> dict[str, tuple[int, int]]:
    """Return where the body of each kernel of a program begins and ends, by its name."""
    return {
        found["name"]: (found.end(), text.index("\n}\n", found.end()))
        for found in _HEAD.finditer(text)
    }


def only(text: str, name: str) -> str:
    """Return a program without its kernels but one."""
    for found in reversed([*_HEAD.finditer(text)]):
        if found["name"] != name:
            end = text.index("\n}\n", found.end()) + len("\n}\n")
            text = text[: found.start()] + text[end:]
    return text


def _section(name: str) -> str:
    return f'#undef SECTION\n#define SECTION "shared_{name}"'


def _calling(name: str) -> str:
    """Return what calls a kernel, and where the memory is that its groups share."""
    return f"""
extern "C" char __start_shared_{name}[] __attribute__((weak));
extern "C" char __stop_shared_{name}[] __attribute__((weak));
extern "C" {{
#pragma GCC visibility push(default)
UNCHECKED void start_{name}(void **places) {{ emulator_start({name}, places); }}
extern char *const limits_{name}[2];
char *const limits_{name}[2] = {{__start_shared_{name}, __stop_shared_{name}}};
#pragma GCC visibility pop
}}
"""


def _loaded(library: ctypes.CDLL, found: re.Match[str], body: str, source: Path) -> Kernel:
    name = found["name"]
    begin, end = (ctypes.c_void_p * 2).in_dll(library, f"limits_{name}")
    return Kernel(
        name,
        ctypes.cast(library[f"start_{name}"], ctypes.c_void_p).value or 0,
        (begin or 0, end or 0),
        int(found["threads"] or found["items"]),
        tuple(each.strip() for each in found["parameters"].split(",")),
        re.search(r"\bweft_atomic_(add|mul)_f", body) is not None,
        source,
    )


def shared_object(source: Path, flags: tuple[str, ...], folder: Path | None = None) -> Path:
    """Compile and link a translation unit; raises AssertionError with what g++ says.

    Linked without -fsanitize: `runtime.cpp` has what instrumented code calls.
    """
    place = (folder or source.parent) / source.stem
    unit, made = (place.with_suffix(f".{os.getpid()}.{kind}") for kind in ("o", "so"))
    for command in (
        ["g++", *flags, "-c", str(source), "-o", str(unit)],
        ["g++", "-shared", str(unit), "-lm", "-o", str(made)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"g++ refuses {source}:\n{done.stderr[:4000]}")
    unit.unlink()
    return made.rename(place.with_suffix(".so"))


def line_of(unit: Path, offset: int) -> int:
    """Return the line of a translation unit that machine code at an offset is of; 0 if unknown."""
    command = ["addr2line", "-e", str(unit.with_suffix(".so")), hex(offset - 1)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    line = (said.strip().rpartition(":")[2].split() or ["0"])[0]
    return int(line) if line.isdigit() else 0
