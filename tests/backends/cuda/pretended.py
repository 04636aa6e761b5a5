"""A GPU that is made up: the functions of CuPy that the backend calls, on the host's memory.

An emulator runs its kernels, in CUDA C or OpenCL C. What a real driver would refuse is refused here
too: addresses outside of memory that is held, work that waits while a graph is made, kernels that
were not loaded before, and waits for events that were never recorded.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import emulator
import ml_dtypes
import numpy as np
from emulator import Argument, Emulator

from weft_c import CUDA, OPENCL
from weft_cupy import blas, devices, drivers, executor

BASE = 256
FACTS = {
    "name": b"Pretended GPU",
    "major": 9,
    "minor": 0,
    "multiProcessorCount": 3,
    "sharedMemPerBlock": 48 << 10,
}


FORMS: dict[str, dict[str, Any]] = {
    "cuda": {"dialect": CUDA, "has_blas": False},
    "opencl": {"dialect": OPENCL, "has_blas": False, "group": 64},
    "sub-groups": {
        "dialect": replace(OPENCL, warp=32),
        "has_blas": False,
        "group": 64,
        "access_bytes": 0,
        "has_int64_atomics": False,
    },
}
"""By name, facts about a processor for the texts that are executed.

All products are our own kernels. One with OpenCL has no warps: sums are made in shared memory. The
other one has, but no atomics of 64 bits, and loads an element at a time.
"""


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, words: str = "") -> None:
        super().__init__(words or f"status {status}")
        self.status = status


class CUDADriverError(CUDARuntimeError):
    pass


class OutOfMemoryError(MemoryError):
    pass


class Stream:
    """Runs what it is given at once, or puts it into the graph that is being made.

    What a library defers runs as late as it may: when somebody waits for it. With it waits all that
    the stream is given after it.

    Attributes
    ----------
    number
        How many there were before it.
    deferred
        What has not run.
    clock
        How often it has written; `seen` has the clocks of other streams that it has waited for.
    """

    def __init__(self, machine: Machine, non_blocking: bool = False) -> None:
        assert non_blocking, "the default stream would wait for it"
        self.machine = machine
        self.ptr = id(self)
        self.number = len(machine.streams)
        self.captured: list[Callable[[], None]] | None = None
        self.deferred: deque[Callable[[], None]] = deque()
        self.clock = 0
        self.seen: dict[int, int] = {}
        machine.streams[self.ptr] = self

    def __enter__(self) -> None:
        self.machine.current.append(self)

    def __exit__(self, *error: object) -> None:
        self.machine.current.pop()

    def give(self, what: str, work: Callable[[], None]) -> None:
        if self.captured is not None:
            self.captured.append(work)
        elif self.deferred:
            self.defer(what, work)
        else:
            self.machine.log.append(what)
            work()

    def defer(self, what: str, work: Callable[[], None]) -> None:
        assert self.captured is None, "a library's work is not part of graphs"
        self.machine.log.append(what)
        self.deferred.append(work)

    def run_until(self, has_happened: Callable[[], bool]) -> None:
        while not has_happened():
            self.deferred[0]()
            self.deferred.popleft()

    def wait_event(self, event: Event) -> None:
        self.machine.wait_event(self.ptr, event.ptr)

    def begin_capture(self) -> None:
        assert self.captured is None
        self.captured = []

    def end_capture(self) -> Graph:
        assert self.captured is not None
        self.machine.log.append(f"capture {len(self.captured)}")
        graph, self.captured = Graph(self.machine, self.captured), None
        return graph

    def synchronize(self) -> None:
        if self.captured is not None:
            raise CUDARuntimeError(900, "cudaErrorStreamCaptureUnsupported")
        self.run_until(lambda: not self.deferred)
        self.machine.log.append("wait")
        self.machine.fail_if_told("wait")


class Event:
    """A time in a stream, by a clock that counts a microsecond for each look at it.

    Attributes
    ----------
    done
        Whether the stream has come to it.
    seen
        What the stream has done and seen until then, as `Stream.seen`.
    """

    clock = 0
    stream: Stream | None = None
    done = False
    seen: Mapping[int, int] = MappingProxyType({})

    def __init__(self, machine: Machine) -> None:
        self.ptr = id(self)
        machine.events[self.ptr] = self

    def record(self, stream: Stream) -> None:
        assert stream.captured is None, "events with times are no part of graphs"
        Event.clock += 1
        self.time = Event.clock
        self.stream, self.done = stream, False
        stream.give(f"event on {stream.number}", self._happen)

    def _happen(self) -> None:
        assert self.stream is not None, "it happens after it was recorded"
        self.done, self.seen = True, {**self.stream.seen, self.stream.ptr: self.stream.clock}

    def synchronize(self) -> None:
        assert self.stream is not None, "an event that was never recorded"
        self.stream.run_until(lambda: self.done)


class Device:
    """The number of a device, which a ``with`` block makes that of the thread."""

    current = threading.local()

    def __init__(self, number: int) -> None:
        self.id = number
        self.pci_bus_id = f"0000:{number:02x}:00.0"

    def __enter__(self) -> None:
        Device.current.id = self.id

    def __exit__(self, *error: object) -> None:
        pass


def elapsed_time(one: Event, other: Event) -> float:
    """The milliseconds between two events."""
    return (other.time - one.time) / 1e3


class Graph:
    def __init__(self, machine: Machine, work: list[Callable[[], None]]) -> None:
        self.machine = machine
        self.work = work

    def launch(self, stream: Stream) -> None:
        assert stream.captured is None
        self.machine.log.append(f"graph {len(self.work)}")
        for each in self.work:
            each()


class Memory:
    def __init__(self, machine: Machine, size: int) -> None:
        if machine.held + size > machine.size:
            raise CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory")
        raw = np.full(size + 2 * BASE, 0xA5, np.uint8)
        start = -raw.ctypes.data % BASE
        self.machine, self.size = machine, size
        self.bytes = raw[start : start + size]
        self.ptr = self.bytes.ctypes.data
        machine.memories[self.ptr] = self.bytes
        machine.emulator.hold(self.ptr, size)

    def __del__(self) -> None:
        if hasattr(self, "bytes"):
            self.machine.emulator.drop(self.ptr)
            del self.machine.memories[self.ptr]
            for address, size in list(self.machine.writes):
                if self.ptr <= address < self.ptr + self.size:
                    del self.machine.writes[address, size]


class Array:
    """An array of CuPy in memory of its own."""

    def __init__(self, machine: Machine, shape: tuple[int, ...], dtype: Any) -> None:
        host = np.empty(shape, dtype)
        self.machine, self.shape, self.dtype, self.size = machine, shape, host.dtype, host.size
        self.strides, self.flags, self.nbytes = host.strides, host.flags, host.nbytes
        memory = Memory(machine, max(host.nbytes, 1))
        self.data = SimpleNamespace(ptr=memory.ptr, mem=memory)
        self.device = SimpleNamespace(id=0)

    def copy(self) -> Array:
        return self.machine.asarray(self.machine.asnumpy(self))


class NVRTCError(RuntimeError):
    pass


class NVRTC:
    """CuPy's bindings of NVRTC, which give source as if it were machine code."""

    NVRTCError = NVRTCError

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.programs: dict[int, str] = {}
        self.log = ""
        self.compiled: list[tuple[str, ...]] = []

    def getVersion(self) -> tuple[int, int]:  # noqa: N802
        return 13, 0

    def getSupportedArchs(self) -> tuple[int, ...]:  # noqa: N802
        return 75, 80, 90

    def createProgram(self, source: str, name: str, headers: Any, includes: Any) -> int:  # noqa: N802
        self.programs[len(self.programs) + 1] = source
        return len(self.programs)

    def compileProgram(self, program: int, options: tuple[str, ...]) -> None:  # noqa: N802
        assert program in self.programs
        self.compiled.append(options)
        self.machine.fail_if_told("compile")

    def getCUBIN(self, program: int) -> bytes:  # noqa: N802
        assert self.compiled[-1][-1].startswith("-arch=sm_")
        return self.programs[program].encode()

    def getPTX(self, program: int) -> bytes:  # noqa: N802
        assert self.compiled[-1][-1].startswith("-arch=compute_")
        return self.programs[program].encode()

    def getProgramLog(self, program: int) -> str:  # noqa: N802
        return self.log

    def destroyProgram(self, program: int) -> None:  # noqa: N802
        self.programs[program] = ""


class Module:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def load(self, code: bytes) -> None:
        self.kernels = self.machine.emulator.compiler.program(code.decode())

    def get_function(self, name: str) -> Kernel:
        return Kernel(self.machine, self.kernels[name])


class Kernel:
    """A kernel; `given` is what it may read and write, by default all memory from there on."""

    given: Sequence[Argument] | None = None

    def __init__(self, machine: Machine, kernel: emulator.Kernel) -> None:
        self.machine, self.kernel = machine, kernel
        self.is_loaded = False

    def __call__(self, grid: tuple[int], block: tuple[int], args: tuple[int, ...]) -> None:
        machine = self.machine
        stream = machine.current[-1]
        if stream.captured is not None and not self.is_loaded:
            raise CUDARuntimeError(900, "code is loaded while a graph is made")
        machine.fail_if_told("launch")
        self.is_loaded = True

        assert all(type(each) is int for each in (*grid, *block, *args)), "numbers of Python's"

        def run() -> None:
            given = self.given or [
                Argument(each, machine.bytes_at(each).size, "const" not in parameter)
                for each, parameter in zip(args, self.kernel.parameters, strict=True)
            ]
            machine.emulator.launch(self.kernel, grid[0], block[0], args, given)
            for each in given:
                if each.is_written:
                    machine.wrote(stream, each.address, each.nbytes)

        stream.give(f"launch {self.kernel.name}", run)


def given_of(group: Any, launch: Any, addresses: Sequence[int]) -> list[Argument]:
    """Return what a launch may touch: where the elements of each argument begin, and the bytes."""
    found = []
    pairs = zip(launch.args, addresses, launch.function.parameters, strict=True)
    for layout, address, parameter in pairs:
        begin, size = (address, 4)  # of an error word
        if layout is not None:
            first, size = layout.byte_range
            begin = address + first - group.argument_range(layout)[0]
        found.append(Argument(begin, size, parameter.is_written))
    return found


def install(patch: Callable[[Any, str, Any], None], machine: Machine) -> None:
    """Let the backend find a machine, with cuBLAS; `patch` sets an attribute of something."""
    library = CuBLAS(machine)
    patch(drivers, "cupy", lambda: machine)
    patch(drivers, "nvrtc", lambda: machine.nvrtc)
    patch(drivers, "architectures", machine.nvrtc.getSupportedArchs)
    patch(blas, "library", lambda: library)
    patch(devices, "_opened", {})
    bind_launch = executor.CUDAKernelGroup.bind_launch

    def limited(self: Any, launch: Any, word: int | None) -> Any:
        start: Any = bind_launch(self, launch, word)
        kernel = getattr(start, "func", None)
        if isinstance(kernel, Kernel):
            kernel.given = given_of(self, launch, start.args[2])
        return start

    patch(executor.CUDAKernelGroup, "bind_launch", limited)


class Machine:
    """The module `cupy`, as far as it is pretended, and what the GPU has been up to.

    Attributes
    ----------
    memories
        By address the memory that is held.
    log
        What was given to streams, in order; what is within graphs is not.
    writes
        By address and size, the stream that wrote there last, and its clock then.
    facts
        What it says of itself.
    fails
        By what is done, the error to raise for it, once.
    """

    def __init__(self, emulator: Emulator, size: int = 1 << 28, devices: int = 1) -> None:
        self.emulator = emulator
        self.facts = dict(FACTS)
        self.size = size
        self.memories: dict[int, np.ndarray[Any, Any]] = {}
        self.streams: dict[int, Stream] = {}
        self.events: WeakValueDictionary[int, Event] = WeakValueDictionary()
        self.writes: dict[tuple[int, int], tuple[Stream, int]] = {}
        self.current: list[Stream] = []
        self.log: list[str] = []
        self.fails: dict[str, Exception] = {}
        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            eventRecord=lambda event, stream: self.events[event].record(self.streams[stream]),
            streamWaitEvent=self.wait_event,
            memcpyAsync=self.memcpy_async,
            memsetAsync=self.memset_async,
            deviceSynchronize=lambda: self.fail_if_told("synchronize"),
            driverGetVersion=lambda: 13000,
            getDeviceCount=lambda: devices,
            getDeviceProperties=lambda number: dict(self.facts),
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=CUDADriverError),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            Device=Device,
            Memory=lambda size: Memory(self, size),
            Module=lambda: Module(self),
            Stream=lambda non_blocking: Stream(self, non_blocking),
            Event=lambda disable_timing=False: Event(self),
            get_elapsed_time=elapsed_time,
            get_current_stream=lambda: self.callers_stream,
        )
        self.ndarray = Array
        self.nvrtc = NVRTC(self)

    @cached_property
    def callers_stream(self) -> Stream:
        return Stream(self, non_blocking=True)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return Array(self, shape, dtype)

    def asarray(self, host: Any) -> Array:
        """Return a copy of an array, as the stream of the caller makes it."""
        made = self.empty(host.shape, host.dtype)
        if made.size:
            ctypes.memmove(made.data.ptr, np.ascontiguousarray(host).ctypes.data, host.nbytes)
            self.emulator.set(made.data.ptr, host.nbytes)
            self.wrote(self.callers_stream, made.data.ptr, host.nbytes)
        self.log.append("asarray")
        return made

    def asnumpy(self, array: Array, order: str = "C") -> Any:
        self.log.append("asnumpy")
        held = np.empty(array.nbytes, np.uint8)
        if array.size:
            self.emulator.require_set(array.data.ptr, array.nbytes)
            ctypes.memmove(held.ctypes.data, array.data.ptr, array.nbytes)
        return held.view(array.dtype).reshape(array.shape)

    def from_dlpack(self, value: Any) -> Array:
        return value.array  # type: ignore[no-any-return]

    @property
    def held(self) -> int:
        return sum(each.size for each in self.memories.values())

    def fail_if_told(self, what: str) -> None:
        error = self.fails.pop(what, None)
        if error is not None:
            raise error

    def bytes_at(self, address: int) -> np.ndarray[Any, Any]:
        """The bytes from an address to the end of the memory that it lies in."""
        for start, held in self.memories.copy().items():  # another thread may add some
            if start <= address < start + held.size:
                return held[address - start :]
        raise CUDARuntimeError(700, "cudaErrorIllegalAddress")

    def wrote(self, stream: Stream, address: int, size: int) -> None:
        """Take note of what a stream has written."""
        stream.clock += 1
        self.writes[address, size] = stream, stream.clock

    def require_seen(self, stream: Stream, address: int, size: int) -> None:
        """Refuse that a stream reads what another one writes, without a wait for that."""
        for (begin, length), (writer, time) in self.writes.copy().items():
            if begin < address + size and address < begin + length and writer is not stream:
                assert stream.seen.get(writer.ptr, 0) >= time, "a stream reads without a wait"

    def wait_event(self, stream: int, event: int) -> None:
        """Run what an event stands for, since a stream waits for it."""
        waiting, waited_for = self.streams[stream], self.events[event]
        assert waited_for.stream is not None, "the event was never recorded"
        waited_for.stream.run_until(lambda: waited_for.done)
        self.log.append(f"event for {waiting.number}")
        for ptr, time in waited_for.seen.items():
            waiting.seen[ptr] = max(time, waiting.seen.get(ptr, 0))

    def memcpy_async(self, target: int, source: int, size: int, kind: int, stream: int) -> None:
        assert size
        reads, writes = kind in (2, 3), kind in (1, 3)
        for is_device, address in ((reads, source), (writes, target)):
            assert not is_device or self.bytes_at(address).size >= size
        what = {1: "upload", 2: "download", 3: "copy"}[kind]
        assert self.streams[stream].captured is None, "copies are no part of graphs"
        self.fail_if_told(what)

        def copy() -> None:
            if reads:
                self.emulator.require_set(source, size)
                self.require_seen(self.streams[stream], source, size)
            ctypes.memmove(target, source, size)
            if writes:
                self.emulator.set(target, size)
                self.wrote(self.streams[stream], target, size)

        self.streams[stream].give(what, copy)

    def memset_async(self, address: int, value: int, size: int, stream: int) -> None:
        assert self.bytes_at(address).size >= size

        def clear() -> None:
            ctypes.memset(address, value, size)
            self.emulator.set(address, size)
            self.wrote(self.streams[stream], address, size)

        self.streams[stream].give("clear", clear)


DTYPES = {0: np.dtype("f4"), 1: np.dtype("f8"), 2: np.dtype("f2"), 14: np.dtype(ml_dtypes.bfloat16)}
COMPUTE = {
    (68, 0): np.float32,
    (68, 2): np.float32,
    (68, 14): np.float32,
    (70, 1): np.float64,
    (77, 0): np.float32,
}
"""By compute type and type of all three matrices, what cuBLAS's table of GemmEx lists."""

NOT_SUPPORTED = 15


class CuBLAS:
    """The functions of cuBLAS that the backend calls, for a machine that is made up."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.handles: dict[int, dict[str, Any]] = {}
        self.computes: list[int] = []
        self.statuses: dict[str, int] = {}
        self.created = 0

    def cublasCreate_v2(self, place: Any) -> int:  # noqa: N802
        status = self.statuses.get("create", 0)
        if not status:
            self.created += 1
            place._obj.value = self.created
            self.handles[place._obj.value] = {}
        return status

    def cublasDestroy_v2(self, handle: Any) -> int:  # noqa: N802
        del self.handles[handle.value]
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: int) -> int:  # noqa: N802
        self.handles[handle.value]["stream"] = self.machine.streams[stream]
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, address: int, size: int) -> int:  # noqa: N802
        assert self.machine.bytes_at(address).size >= size
        self.handles[handle.value]["workspace"] = address
        return self.statuses.get("workspace", 0)

    def cublasSetMathMode(self, handle: Any, mode: int) -> int:  # noqa: N802
        return 0 if mode == 16 else 7

    def cublasGemmStridedBatchedEx(  # noqa: N802
        self, handle: Any, turn_a: int, turn_b: int, m: int, n: int, k: int, alpha: Any,
        a: int, a_kind: int, a_lead: int, a_step: int, b: int, b_kind: int, b_lead: int,
        b_step: int, beta: Any, c: int, c_kind: int, c_lead: int, c_step: int, batch: int,
        compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        known = self.handles[handle.value]
        assert "workspace" in known
        assert a_kind == b_kind == c_kind
        wide = COMPUTE.get((compute, a_kind))
        if wide is None:
            return NOT_SUPPORTED
        self.computes.append(compute)
        kind = {70: ctypes.c_double}.get(compute, ctypes.c_float)
        scalars = [ctypes.cast(each, ctypes.POINTER(kind))[0] for each in (alpha, beta)]
        assert scalars == [1, 0]

        def run() -> None:
            left = self.matrices(a, a_kind, (k, m) if turn_a else (m, k), a_lead, a_step, batch)
            right = self.matrices(b, b_kind, (n, k) if turn_b else (k, n), b_lead, b_step, batch)
            out = self.matrices(c, c_kind, (m, n), c_lead, c_step, batch)
            left = left.swapaxes(1, 2) if turn_a else left
            right = right.swapaxes(1, 2) if turn_b else right
            out[...] = (left.astype(wide) @ right.astype(wide)).astype(out.dtype)
            size = ((batch - 1) * c_step + (n - 1) * c_lead + m) * out.dtype.itemsize
            self.machine.emulator.set(c, size)
            self.machine.wrote(known["stream"], c, size)

        known["stream"].give("gemm", run)
        return self.statuses.get("gemm", 0)

    def matrices(
        self, address: int, kind: int, shape: tuple[int, int], lead: int, step: int, batch: int
    ) -> np.ndarray[Any, Any]:
        """Return matrices in columns, as cuBLAS finds them."""
        dtype = DTYPES[kind]
        rows, columns = shape
        assert lead >= max(1, rows), "cuBLAS refuses it"
        count = (batch - 1) * step + (columns - 1) * lead + rows
        held = self.machine.bytes_at(address)
        assert held.size >= count * dtype.itemsize
        flat = held[: count * dtype.itemsize].view(dtype)
        strides = (step * dtype.itemsize, dtype.itemsize, lead * dtype.itemsize)
        return np.ndarray((batch, rows, columns), dtype, flat, 0, strides)
