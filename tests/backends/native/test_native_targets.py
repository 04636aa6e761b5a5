"""Programs, exported C and the runtime, compiled by Zig for every target and run where possible."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from needs import skip_without

import weft
from weft.plan.plan import ARENA
from weft_native.compiler import FLAGS, OTHERS, SYSTEMS, System
from weft_native.dialect import host_dialect
from weft_native.library import source
from weft_native.transformer import NativeComputation, NativeTransformer

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs("zig"),
]

HOST = Path(__file__).with_name("host.c")
STRICT = ("-Wall", "-Wextra", "-Werror")
CALLS = 50
"""The calls of a program, in which workers wake and sleep."""


class Machine(NamedTuple):
    """A target: its name in Zig, how libraries are made, and the command that runs its programs.

    That is empty for this machine, and None where nothing runs them.
    """

    target: str
    system: System
    emulator: tuple[str, ...] | None = None


LINUX = System(".so", libraries=("-lm", "-lpthread"))
MACHINES = (
    Machine("x86_64-linux-gnu", LINUX, ()),
    Machine("aarch64-linux-gnu", LINUX, ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")),
    Machine("riscv64-linux-gnu", LINUX, ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")),
    Machine("x86_64-windows-gnu", SYSTEMS["win32"], ("wine",)),
    Machine("aarch64-windows-gnu", SYSTEMS["win32"]),
    Machine("x86_64-macos", SYSTEMS["darwin"]),
    Machine("aarch64-macos", SYSTEMS["darwin"]),
)


def elementwise(x: Any) -> Any:
    """Return a fused chain, large enough for all threads."""
    return weft.exp(-weft.square(x)) * 3 + weft.sin(x)


def reduction(x: Any) -> Any:
    """Return the softmax of rows, and the sum of squares."""
    return [weft.softmax(x), weft.sum(weft.square(x))]


def product(x: Any) -> Any:
    """Return a product with constant weights and an epilogue."""
    weights = np.random.default_rng(1).normal(0, 1, (300, 70)).astype(np.float32)
    return weft.relu(x @ weights + np.arange(70, dtype=np.float32))


def convolution(x: Any) -> Any:
    """Return a convolution with constant filters."""
    filters = np.random.default_rng(2).normal(0, 1, (8, 3, 3, 3)).astype(np.float32)
    return weft.tanh(weft.conv2d(weft.reshape(x, (4, 3, 50, 100)), filters, padding=1))


def loop(x: Any) -> Any:
    """Return what a loop makes of values, one iteration after the other."""
    value = weft.placeholder(x.shape)
    body = weft.capture([weft.cos(value) + value * 0.5], [value])
    return weft.loop(body, 7, x)[0]


PROGRAMS: tuple[Callable[[Any], Any], ...] = (elementwise, reduction, product, convolution, loop)
VALUES = np.random.default_rng(0).normal(0, 1, (200, 300)).astype(np.float32)


class Case(NamedTuple):
    """A program as C, the arrays that it takes, and the results that it is to give.

    `layout` has for each address that the program takes its bytes, or the number of those it
    writes.
    """

    name: str
    text: str
    layout: list[bytes | int]
    expected: list[np.ndarray[Any, Any]]
    has_runtime: bool


def native_case(compiled: NativeComputation, expected: list[np.ndarray[Any, Any]]) -> Case:
    """Return the text that the backend compiles, which uses the runtime."""
    program = compiled.program
    group = program.code
    buffers: list[bytes | int] = []
    for buffer in group.text.buffers:
        if buffer is None:
            buffers.append(bytes(4 * len(group.reports)))
        elif buffer.kind == ARENA:
            buffers.append(bytes(max(program.arena_size, 1)))
        else:
            buffers.append(buffer.owner.const.tobytes())
    layout = [VALUES.tobytes(), *(-each.nbytes for each in expected), *buffers]
    return Case("native", program.source, layout, expected, True)


def exported_case(
    compiled: NativeComputation, expected: list[np.ndarray[Any, Any]], folder: Path
) -> Case:
    """Return exported C, with the entry that the host calls."""
    path, header = compiled.export_c(folder, "exported")
    arguments = ", ".join(f"(void *)b[{n}]" for n in range(1 + len(expected)))
    entry = f"int weft_program(char *const *b) {{ return exported({arguments}); }}\n"
    text = path.read_text(encoding="utf-8") + "int weft_program(char *const *b);\n" + entry
    text = text.replace('#include "exported.h"', header.read_text(encoding="utf-8"))
    layout = [VALUES.tobytes(), *(-each.nbytes for each in expected)]
    return Case("exported", text, layout, expected, False)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Case]]:
    """Return each program as the backend compiles it and as it is exported.

    The backend's text is that for vectors of four lanes, which every target has.
    """
    made = []
    for function in PROGRAMS:
        with NativeTransformer(threads=4) as transformer:
            transformer.processor = replace(
                transformer.processor,
                dialect=host_dialect(OTHERS.lanes),
                has_blas=False,
                vector_lanes=OTHERS.lanes,
                vector_registers=OTHERS.registers,
            )
            x = weft.placeholder(VALUES.shape, name="x")
            results = function(x)
            compiled = transformer.computation(results, x)
            found = compiled(VALUES)
            expected = list(found) if isinstance(results, list) else [found]
            folder = tmp_path_factory.mktemp(function.__name__)
            native = native_case(compiled, expected)
            made.append((function.__name__, native))
            made.append((function.__name__, exported_case(compiled, expected, folder)))
    return made


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.target)
def test_programs_compile_for_each_target_and_give_the_same_where_they_run(
    machine: Machine, cases: list[tuple[str, Case]], tmp_path: Path
) -> None:
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", machine.target)
    shared = (*zig, *FLAGS, *machine.system.flags, "-shared")
    exported = (*zig, "-std=c11", *STRICT, "-O2", *machine.system.flags, "-shared")
    suffix, libraries = machine.system.suffix, machine.system.libraries

    def make(title: str, text: str, options: Sequence[str]) -> str:
        (tmp_path / f"{title}.c").write_text(text, encoding="utf-8")
        made = f"{title}{suffix}"
        compile_in(tmp_path, [*options, f"{title}.c", "-o", made, *libraries])
        return made

    runtime = make("runtime", source(), [*shared, *STRICT])
    compile_in(tmp_path, [*zig, "-O2", *STRICT, str(HOST), "-o", "host.exe"])
    made = [
        (make(f"{name}_{case.name}", case.text, shared if case.has_runtime else exported), case)
        for name, case in cases
    ]
    if machine.emulator is None:
        return
    if machine.emulator:
        skip_without("wine" if machine.emulator[0] == "wine" else "qemu")
    for program, case in made:
        results = run(machine.emulator, program, case, runtime, tmp_path)
        for got, want in zip(results, case.expected, strict=True):
            scale = np.abs(want).max()  # of sums of up to 300 products, in another order
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=4e-6 * scale, err_msg=program)


def compile_in(folder: Path, command: Sequence[str]) -> None:
    """Run a compiler in a folder, which is to have nothing to say."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stderr) == (0, "")


def run(
    emulator: Sequence[str], program: str, case: Case, runtime: str, folder: Path
) -> list[np.ndarray[Any, Any]]:
    """Return the results of some calls of a program."""
    with (folder / "arrays").open("wb") as file:
        for each in case.layout:
            file.write(struct.pack("<q", each if isinstance(each, int) else len(each)))
            file.write(b"" if isinstance(each, int) else each)
    command = [*emulator, "./host.exe", f"./{program}", "arrays", "results", str(CALLS)]
    environment = os.environ | {"WINEDEBUG": "-all", "WINEPREFIX": str(folder / "wine")}
    done = subprocess.run(
        [*command, f"./{runtime}"] if case.has_runtime else command,
        cwd=folder, capture_output=True, text=True, timeout=900, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, f"{program}: {done.returncode}\n{done.stderr[-2000:]}"
    content = (folder / "results").read_bytes()
    found = []
    for want in case.expected:
        found.append(np.frombuffer(content, want.dtype, want.size).reshape(want.shape))
        content = content[want.nbytes :]
    assert not content
    return found
