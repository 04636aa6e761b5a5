"""Launches of kernels on the host, of which every access to memory is looked at."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from emulator.compiling import HERE, Compiler, Kernel, line_of, shared_object

MOST_ITEMS = 1024
MOST_GROUPS = 2**31 - 1
MOST_SHARED = 48 << 10
MOST_ARGUMENTS = 4096 // 8
"""What every GPU that CUDA 12 knows can do."""

SECONDS = 100
"""Of the processor, after which a launch is ended."""

ORDERS = (0, 1, 7)
"""The orders in which work items take turns: as they are numbered, backwards, and shuffled ones, of
which this is the seed."""


class EmulatorError(AssertionError):
    """What a kernel or a launch does that it must not."""


class Argument(NamedTuple):
    """Memory that a kernel is given: where, how many bytes of it, and whether it may write."""

    address: int
    nbytes: int
    is_written: bool


@dataclass(frozen=True)
class Finding:
    """What a kernel does that it must not.

    Attributes
    ----------
    kind
        ``race`` and ``race of groups``: an access that may come before or after another one;
        ``outside`` of what the launch was given; ``unset shared memory``, ``unset global memory``;
        ``divergent barrier``, ``divergent shuffle``, ``shuffle``; ``unaligned``; ``undefined``
        arithmetic; ``argument``; ``endless``; ``order``, where results depend on that of work
        items.
    kernel
        Its name.
    words
        More about it, with the work item.
    line
        The line in the kernel, as far as it is known.
    """

    kind: str
    kernel: str
    words: str
    line: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.kind}: {self.words}\n    {self.line}"


class Emulator:
    """A device with the host's memory, on which work items take turns.

    Each launch runs in several orders one after the other, each time on the same memory.

    Attributes
    ----------
    launches
        How many there were.
    seconds
        After how many of the processor a launch is ended.
    """

    def __init__(
        self, folder: Path, arithmetic: bool = False, orders: Sequence[int] = ORDERS
    ) -> None:
        self.compiler = Compiler(folder, arithmetic)
        self.orders = orders
        self.launches = 0
        self.seconds = SECONDS
        self._runtime = _runtime()

    # Memory

    def hold(self, address: int, nbytes: int) -> None:
        """Let bytes be memory of the device, with anything in it."""
        self._runtime.emulator_hold(address, nbytes)

    def drop(self, address: int) -> None:
        """Let the memory that begins there be none any more."""
        self._runtime.emulator_drop(address)

    def set(self, address: int, nbytes: int) -> None:
        """Take note that the host, or a library, has written."""
        self._runtime.emulator_given(address, nbytes)

    def forget(self, address: int, nbytes: int) -> None:
        """Take note that a library is going to write: until it has, nobody may read."""
        self._runtime.emulator_forget(address, nbytes)

    def require_set(self, address: int, nbytes: int) -> None:
        """Raise EmulatorError if nobody has written bytes that the host reads."""
        unset = self._runtime.emulator_unset(address, nbytes)
        if unset:
            raise EmulatorError(f"the host reads {nbytes} bytes, of which {unset} were never set")

    # Launches

    def launch(
        self,
        kernel: Kernel,
        groups: int,
        items: int,
        addresses: Sequence[int],
        arguments: Sequence[Argument],
    ) -> None:
        """Run all work items; raises EmulatorError for what they do that they must not."""
        found = self.findings(kernel, groups, items, addresses, arguments)
        if found:
            raise EmulatorError("\n".join(map(str, found[:8])))

    def findings(
        self,
        kernel: Kernel,
        groups: int,
        items: int,
        addresses: Sequence[int],
        arguments: Sequence[Argument],
    ) -> list[Finding]:
        """Run all work items in each order; returns what they do in the first that is wrong.

        Where floats are added up atomically, results may depend on the order.
        """
        _check_launch(kernel, groups, items, addresses)
        self.launches += 1
        spans = np.array([each for each in arguments if each.nbytes], np.uint64).reshape(-1, 3)
        places = np.array(addresses, np.uint64)
        before = _written(arguments)
        first: list[bytes] = []
        self._runtime.emulator_set_limit(self.seconds)
        for order in self.orders:
            for argument, held in before:
                ctypes.memmove(argument.address, held, len(held))
            self._runtime.emulator_set_schedule(order)
            if self._runtime.emulator_launch(
                kernel.start, places.ctypes.data, groups, items, *kernel.shared,
                spans.ctypes.data, len(spans),
            ):  # fmt: skip
                return self._found(kernel)
            after = [held for _, held in _written(arguments)]
            first = first or after
            if after != first and not kernel.adds_floats:
                words = f"other results than in order {self.orders[0]} in order {order}"
                return [Finding("order", kernel.name, words, "")]
        return []

    def _found(self, kernel: Kernel) -> list[Finding]:
        lines = kernel.unit.read_text().splitlines()
        found = []
        for each in self._runtime.emulator_findings().decode().splitlines():
            kind, site, group, item, words = each.split("|", 4)
            number = 0 if site == "(nil)" else int(site, 16)
            offset = self._runtime.emulator_offset(number)
            number = line_of(kernel.unit, offset) if offset else number
            line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            words = f"{words} (work item {item} of group {group})"
            found.append(Finding(kind, kernel.name, words, line))
        return found


def _written(arguments: Sequence[Argument]) -> list[tuple[Argument, bytes]]:
    """Return what the memory holds that a launch may write."""
    return [
        (each, ctypes.string_at(each.address, each.nbytes)) for each in arguments if each.is_written
    ]


@cache
def _runtime() -> ctypes.PyDLL:
    """Return the runtime, which is one for the process: kernels find its functions by name."""
    flags = ("-O2", "-g1", "-std=c++17", "-fPIC")
    with TemporaryDirectory() as folder:
        path = shared_object(HERE / "runtime.cpp", flags, Path(folder))
        found = ctypes.PyDLL(str(path), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    place, size, number = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint
    found.emulator_hold.argtypes = [place, size]
    found.emulator_given.argtypes = found.emulator_forget.argtypes = [place, size]
    found.emulator_unset.argtypes, found.emulator_unset.restype = [place, size], size
    found.emulator_drop.argtypes = [place]
    found.emulator_offset.argtypes, found.emulator_offset.restype = [place], size
    found.emulator_findings.restype = ctypes.c_char_p
    found.emulator_launch.argtypes = [place] * 2 + [number] * 2 + [place] * 3 + [ctypes.c_int]
    return found


def _check_launch(kernel: Kernel, groups: int, items: int, addresses: Sequence[int]) -> None:
    """Refuse what a driver refuses."""
    shared = kernel.shared[1] - kernel.shared[0]
    problems = [
        problem
        for is_wrong, problem in (
            (not 1 <= groups <= MOST_GROUPS, f"{groups} groups"),
            (not 1 <= items <= MOST_ITEMS, f"groups of {items} work items"),
            (items != kernel.group, f"groups of {items} work items, declared with {kernel.group}"),
            (len(addresses) != len(kernel.parameters), f"{len(addresses)} arguments"),
            (len(addresses) > MOST_ARGUMENTS, f"{len(addresses)} arguments"),
            (shared > MOST_SHARED, f"{shared} bytes of shared memory"),
        )
        if is_wrong
    ]
    if problems:
        raise EmulatorError(f"{kernel.name} is launched with {', '.join(problems)}")
