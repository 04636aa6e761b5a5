"""NCCL that is made up: what CuPy has of it, between the processes that mpiexec started.

It defers all work until somebody waits for it, and marks what will be written: a kernel that reads
a result before its stream has waited finds memory that nobody has set. What NCCL does not check,
but hangs or mixes up numbers at, is an error here: other calls on other ranks, sends without a
receive, arrays that another stream may still be writing. Numbers are those of nccl.h.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from mpi4py import MPI
from pretended import Device, Machine

from weft_nccl import library

DTYPES = [
    *map(np.dtype, ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")),
    np.dtype(ml_dtypes.bfloat16),
]
REDUCTIONS = {0: np.add, 1: np.multiply, 2: np.fmax, 3: np.fmin}
"""Extrema are those of fmax and fmin, which drop NaN."""
INVALID_USAGE = 5


class NcclError(RuntimeError):
    def __init__(self, status: int, words: str = "") -> None:
        super().__init__(words or f"status {status}")
        self.status = status


class NCCL:
    """The module `cupy.cuda.nccl`.

    Attributes
    ----------
    version
        What it says of itself.
    hangs
        Whether collectives never end.
    error
        What it reports when it is asked; None for nothing.
    """

    available = True
    NcclError = NcclError

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.version = 22703
        self.hangs = False
        self.error: NcclError | None = None
        self.group: list[Any] | None = None
        self.NcclCommunicator = partial(NcclCommunicator, self)

    def get_version(self) -> int:
        return self.version

    def get_build_version(self) -> int:
        return self.version

    def get_unique_id(self) -> tuple[int, ...]:
        return tuple(np.random.default_rng().integers(-128, 128, 128).tolist())

    def groupStart(self) -> None:  # noqa: N802
        assert self.group is None
        self.group = []

    def groupEnd(self) -> None:  # noqa: N802
        assert self.group is not None
        group, self.group = self.group, None
        if group:
            ranks, stream = group[0][:2]
            assert all(each[:2] == (ranks, stream) for each in group)
            ranks.exchange(stream, [each[2:] for each in group])


class NcclCommunicator:
    def __init__(self, nccl: NCCL, ranks: int, unique_id: tuple[int, ...], rank: int) -> None:
        self.nccl, self.machine = nccl, nccl.machine
        self.world = MPI.COMM_WORLD.Dup()
        assert (ranks, rank) == (self.world.size, self.world.rank)
        told = self.world.allgather((unique_id, Device.current.id))
        assert len(unique_id) == 128
        assert len({each for each, _ in told}) == 1, "ranks that wait for others"
        if len({device for _, device in told}) < ranks:
            raise NcclError(INVALID_USAGE, "Duplicate GPU detected")
        self.is_aborted = False

    def allReduce(  # noqa: N802
        self, source: int, target: int, count: int, kind: int, reduction: int, stream: int
    ) -> None:
        def reduced(arrays: Sequence[Any]) -> Any:
            found = arrays[0]
            for each in arrays[1:]:
                found = REDUCTIONS[reduction](found, each)
            return found

        what = ("allReduce", count, kind, reduction)
        self.collect(what, (source, count), (target, count), DTYPES[kind], stream, reduced)

    def reduceScatter(  # noqa: N802
        self, source: int, target: int, count: int, kind: int, reduction: int, stream: int
    ) -> None:
        def part(arrays: Sequence[Any]) -> Any:
            found = arrays[0]
            for each in arrays[1:]:
                found = REDUCTIONS[reduction](found, each)
            return found[self.world.rank * count :][:count]

        what, size = ("reduceScatter", count, kind, reduction), self.world.size
        self.collect(what, (source, count * size), (target, count), DTYPES[kind], stream, part)

    def allGather(  # noqa: N802
        self, source: int, target: int, count: int, kind: int, stream: int
    ) -> None:
        what, size = ("allGather", count, kind), self.world.size
        self.collect(
            what, (source, count), (target, count * size), DTYPES[kind], stream, np.concatenate
        )

    def broadcast(
        self, source: int, target: int, count: int, kind: int, root: int, stream: int
    ) -> None:
        what = ("broadcast", count, kind, root)
        self.collect(
            what, (source, count), (target, count), DTYPES[kind], stream, lambda each: each[root]
        )

    def send(self, source: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert self.nccl.group is not None, "it would wait for the receive"
        self.nccl.group.append((self, stream, "send", peer, source, count, DTYPES[kind]))

    def recv(self, target: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert self.nccl.group is not None, "it would wait for the send"
        self.nccl.group.append((self, stream, "recv", peer, target, count, DTYPES[kind]))

    def check_async_error(self) -> None:
        if self.nccl.error is not None:
            raise self.nccl.error

    def abort(self) -> None:
        self.is_aborted = True

    # What the calls share

    def collect(
        self,
        what: Any,
        source: tuple[int, int],
        target: tuple[int, int],
        dtype: np.dtype[Any],
        stream: int,
        combined: Callable[[Sequence[Any]], Any],
    ) -> None:
        """Defer a call on elements from some address, and on as many as another one takes."""
        given, taken = self.given(*source, dtype, stream), self.taken(*target, dtype)

        def work() -> None:
            told = self.world.allgather((what, given.tobytes()))
            assert len({each for each, _ in told}) == 1, f"ranks differ: {told}"
            taken[:] = combined([np.frombuffer(data, dtype) for _, data in told])

        self.defer(what[0], stream, work, [given], [taken])

    def exchange(self, stream: int, calls: Sequence[tuple[str, int, int, int, Any]]) -> None:
        """Defer the sends and receives of a group."""
        sent = [
            (peer, self.given(address, count, dtype, stream))
            for kind, peer, address, count, dtype in calls
            if kind == "send"
        ]
        received = [
            (peer, self.taken(address, count, dtype))
            for kind, peer, address, count, dtype in calls
            if kind == "recv"
        ]

        def work() -> None:
            told = self.world.allgather([(peer, given.tobytes()) for peer, given in sent])
            to_me = [[data for peer, data in each if peer == self.world.rank] for each in told]
            for peer, taken in received:
                taken[:] = np.frombuffer(to_me[peer].pop(0), taken.dtype)
            assert not any(to_me), "what was sent is never received"

        self.defer("group", stream, work, [g for _, g in sent], [t for _, t in received])

    def given(self, address: int, count: int, dtype: np.dtype[Any], stream: int) -> Any:
        """Return what is read, which no other stream may be writing."""
        found = self.memory(address, count, dtype)
        self.machine.require_seen(self.machine.streams[stream], address, found.nbytes)
        return found

    def taken(self, address: int, count: int, dtype: np.dtype[Any]) -> Any:
        """Return what is written, of which nobody knows what it holds until then."""
        found = self.memory(address, count, dtype)
        found.view(np.uint8)[:] = 0xA5
        self.machine.emulator.forget(address, found.nbytes)
        return found

    def memory(self, address: int, count: int, dtype: np.dtype[Any]) -> Any:
        held, nbytes = self.machine.bytes_at(address), count * dtype.itemsize
        assert held.size >= nbytes > 0
        return held[:nbytes].view(dtype)

    def defer(
        self, what: str, stream: int, work: Callable[[], None], given: list[Any], taken: list[Any]
    ) -> None:
        assert not self.is_aborted
        emulator, giving = self.machine.emulator, self.machine.streams[stream]

        def run() -> None:
            for each in given:
                emulator.require_set(each.ctypes.data, each.nbytes)
            while self.nccl.hangs and not self.is_aborted:
                time.sleep(1e-3)
            if not self.is_aborted:
                work()
            for each in taken:
                emulator.set(each.ctypes.data, each.nbytes)
                self.machine.wrote(giving, each.ctypes.data, each.nbytes)

        giving.defer(what, run)


def install(patch: Callable[[Any, str, Any], None], machine: Machine) -> NCCL:
    """Let the communicator `nccl` find it; `patch` sets an attribute of something."""
    made = NCCL(machine)
    patch(library, "cupy", lambda: machine)
    patch(library, "bindings", lambda: made)
    return made
