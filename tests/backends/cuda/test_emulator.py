"""What the emulator finds: kernels with a defect each, and the like without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from emulator import ORDERS, Argument, Emulator, EmulatorError, Finding

from weft_c import CUDA, OPENCL
from weft_c.source.helpers import HELPERS

pytestmark = pytest.mark.slow

ITEMS, GROUPS = 64, 2
PARAMETERS = ["GLOBAL const f32 *x", "GLOBAL f32 *y"]

KERNELS = {
    "right": ("", """
    LOCAL f32 s[64];
    s[LOCAL_ID] = x[GLOBAL_ID];
    BARRIER();
    y[GLOBAL_ID] = s[63 - LOCAL_ID];"""),
    "no barrier": ("race", """
    LOCAL f32 s[64];
    s[LOCAL_ID] = x[GLOBAL_ID];
    y[GLOBAL_ID] = s[63 - LOCAL_ID];"""),
    "no barrier at the end of a loop": ("race", """
    LOCAL f32 s[64];
    for (i32 i = 0; i < 2; i++) {
        s[LOCAL_ID] = x[GLOBAL_ID] + i;
        BARRIER();
        y[GLOBAL_ID] = s[63 - LOCAL_ID];
    }"""),
    "a barrier for some": ("divergent barrier", """
    if (LOCAL_ID < 33) BARRIER();
    y[GLOBAL_ID] = x[GLOBAL_ID];"""),
    "some return": ("divergent barrier", """
    if (x[GLOBAL_ID] > 40) return;
    BARRIER();
    y[GLOBAL_ID] = x[GLOBAL_ID];"""),
    "different barriers": ("divergent barrier", """
    if (LOCAL_ID % 2) {
        BARRIER();
    } else {
        BARRIER();
    }"""),
    "shuffles": ("", """
    f32 total = x[GLOBAL_ID];
    for (i32 d = 16; d; d /= 2) total += SHUFFLE_XOR(total, d);
    y[GLOBAL_ID] = total;"""),
    "shuffles of 64 bits": ("", """
    u64 total = (u64)x[GLOBAL_ID] << 40;
    for (i32 d = 16; d; d /= 2) total += SHUFFLE_XOR(total, d);
    y[GLOBAL_ID] = (f32)(total >> 40);"""),
    "a shuffle for some": ("divergent shuffle", """
    f32 total = x[GLOBAL_ID];
    if (LOCAL_ID < 40) total += SHUFFLE_XOR(total, 16);
    y[GLOBAL_ID] = total;"""),
    "a shuffle beyond the warp": ("shuffle", """
    f32 total = x[GLOBAL_ID];
    y[GLOBAL_ID] = SHUFFLE_XOR(total, 32);"""),
    "shared memory that nobody set": ("unset shared memory", """
    LOCAL f32 s[64];
    if (LOCAL_ID != 5) s[LOCAL_ID] = x[GLOBAL_ID];
    BARRIER();
    y[GLOBAL_ID] = s[LOCAL_ID];"""),
    "memory that nobody set": ("unset global memory", """
    y[GLOBAL_ID] = y[GLOBAL_ID] + 1;"""),
    "beyond an argument": ("outside", """
    y[GLOBAL_ID] = x[GLOBAL_ID + 1];"""),
    "before an argument": ("outside", """
    y[GLOBAL_ID - 1] = x[GLOBAL_ID];"""),
    "beyond shared memory": ("outside", """
    LOCAL f32 s[64];
    s[LOCAL_ID + 1] = x[GLOBAL_ID];
    BARRIER();
    y[GLOBAL_ID] = x[GLOBAL_ID];"""),
    "what is const": ("outside", """
    ((GLOBAL f32 *)x)[GLOBAL_ID] = 1;"""),
    "not aligned": ("unaligned", """
    if (GLOBAL_ID < 4) y[GLOBAL_ID] = *(GLOBAL const f32 *)((GLOBAL const u8 *)x + 1);"""),
    "all write one": ("race", """
    y[0] = x[GLOBAL_ID];"""),
    "groups write one": ("race of groups", """
    if (LOCAL_ID == 0) y[0] = x[GROUP_ID];"""),
    "a group reads another's": ("race of groups", """
    if (LOCAL_ID == 0) y[GROUP_ID] = x[0];
    if (LOCAL_ID == 1) y[2 + GROUP_ID] = y[1 - GROUP_ID];"""),
    "atomic updates": ("", """
    if (GLOBAL_ID == 0) y[0] = 0;
    if (LOCAL_ID == 0) weft_atomic_max_f32(y + 1 + GROUP_ID, x[5]);
    weft_atomic_max_f32(y + 1 + GROUP_ID, x[GLOBAL_ID]);"""),
    "a plain read of what is updated": ("race", """
    weft_atomic_max_f32(y, x[GLOBAL_ID]);
    if (y[0] > 3) y[1 + GLOBAL_ID] = 1;"""),
    "a plain write of what is updated": ("race", """
    if (LOCAL_ID == 9) y[GROUP_ID] = 1;
    else weft_atomic_max_f32(y + GROUP_ID, x[GLOBAL_ID]);"""),
    "shifts": ("undefined", """
    y[GLOBAL_ID] = 1 << ((i32)x[GLOBAL_ID] + 1);"""),
    "an overflow": ("undefined", """
    y[GLOBAL_ID] = ((i32)x[GLOBAL_ID] + 2147483647) / 7;"""),
}  # fmt: skip
SET = {"atomic updates", "a plain read of what is updated", "a plain write of what is updated"}
"""Kernels that read what is there before."""


@contextmanager
def held(emulator: Emulator, *arrays: np.ndarray) -> Iterator[None]:
    """Let arrays be memory of the device; the first one has been set."""
    for array in arrays:
        emulator.hold(array.ctypes.data, array.nbytes)
    emulator.set(arrays[0].ctypes.data, arrays[0].nbytes)
    try:
        yield
    finally:
        for array in arrays:
            emulator.drop(array.ctypes.data)


DIALECTS = {"cuda": CUDA, "opencl": OPENCL}


def program(dialect: str, bodies: Sequence[str]) -> str:
    """Return a program whose kernels, ``tried_0`` and so on, have these bodies."""
    found = DIALECTS[dialect]
    heads = [found.kernel_head(f"tried_{i}", PARAMETERS, ITEMS) for i in range(len(bodies))]
    kernels = [f"{head} {{{body}\n}}\n" for head, body in zip(heads, bodies, strict=True)]
    return "\n".join([found.prelude, HELPERS["weft_atomic_max_f32"].text, *kernels])


def findings(emulator: Emulator, text: str, number: int = 0, is_set: bool = False) -> list[Finding]:
    """Return what is found of a kernel of a program."""
    kernel = emulator.compiler.program(text)[f"tried_{number}"]
    x, y = np.arange(128, dtype=np.float32), np.zeros(256, np.float32)[128:]
    with held(emulator, x, y):
        if is_set:
            emulator.set(y.ctypes.data, y.nbytes)
        addresses = [x.ctypes.data, y.ctypes.data]
        given = [Argument(addresses[0], x.nbytes, False), Argument(addresses[1], y.nbytes, True)]
        return emulator.findings(kernel, GROUPS, ITEMS, addresses, given)


@pytest.fixture(scope="module")
def careful(emulator: Emulator) -> Emulator:
    """An emulator that looks at arithmetic too."""
    return Emulator(emulator.compiler.folder, arithmetic=True)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_wrong_is_found_in_every_order(
    careful: Emulator, monkeypatch: pytest.MonkeyPatch, name: str, dialect: str, order: int
) -> None:
    kind, body = KERNELS[name]
    text = program(dialect, [body for _, body in KERNELS.values()])
    monkeypatch.setattr(careful, "orders", [order])
    found = findings(careful, text, [*KERNELS].index(name), name in SET)
    assert bool(found) == bool(kind)
    kinds = {each.kind: each.line for each in found}
    lines = [line.strip() for line in body.splitlines()]
    assert not kind or name in SET or kinds[kind] in lines


def test_results_that_depend_on_the_order_are_found(emulator: Emulator) -> None:
    first = "if (ATOMIC_CAS_U32(y, 0, 1) == 0) y[1] = LOCAL_ID;"
    (found,) = findings(emulator, program("cuda", [first]), is_set=True)
    assert found.kind == "order"
    assert "other results than in order 0 in order 1" in str(found)


def test_endless_launches_are_ended(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "seconds", 1)
    text = program("cuda", ["for (i32 i = 0; i >= 0; i = (i + 1) % 9); y[GLOBAL_ID] = 1;"])
    assert [each.kind for each in findings(emulator, text)] == ["endless"]


def test_launches_that_a_driver_refuses_are_refused(emulator: Emulator) -> None:
    text = program("cuda", ["LOCAL f32 s[20000]; s[0] = x[0];"])
    kernel = emulator.compiler.program(text)["tried_0"]
    words = "0 groups, .*2048 work items, .*declared with 64, 1 arguments, 80000 bytes of shared"
    with pytest.raises(EmulatorError, match=words):
        emulator.launch(kernel, 0, 2048, [0], [])


def test_arguments_are_memory_of_the_device(emulator: Emulator) -> None:
    kernel = emulator.compiler.program(program("cuda", ["y[0] = x[0];"]))["tried_0"]
    x = np.zeros(4, np.float32)
    with pytest.raises(EmulatorError, match="16 bytes are no memory of the device"):
        emulator.launch(kernel, 1, ITEMS, [x.ctypes.data] * 2, [Argument(x.ctypes.data, 16, True)])


def test_the_host_reads_only_what_was_set(emulator: Emulator) -> None:
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with held(emulator, x, y):
        emulator.require_set(x.ctypes.data, 16)
        emulator.set(y.ctypes.data, 8)
        with pytest.raises(EmulatorError, match="reads 16 bytes, of which 8 were never set"):
            emulator.require_set(y.ctypes.data, 16)


def test_text_that_does_not_compile_is_shown(emulator: Emulator) -> None:
    with pytest.raises(AssertionError, match="nothing_known"):
        emulator.compiler.program(program("cuda", ["y[0] = nothing_known;"]))
