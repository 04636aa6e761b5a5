"""CUDAKernelGroup: the executor of a program, which captures segments as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.communicators import DeviceArray, DeviceCommunicator
from weft.ir.description import TensorDescription
from weft.plan.plan import INPUT, RESULT
from weft.runtime.program import Program
from weft.support.backports import override
from weft_c.matmul import blas
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.control_flow import Bound
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.segments import Launch, Segment
from weft_c.runtime.storage import Arrays
from weft_c.source.functions import HostCall, LibraryCall
from weft_cupy.device import Device, LoadedModule, Memory
from weft_cupy.exchange import bound_on_device
from weft_cupy.host_io import CuPyHostIO

if TYPE_CHECKING:
    from weft.report.recorder import Recorder
    from weft_cupy.transformer import CuPyTransformer

WORD = 4
"""The size of an error word, in bytes."""


class CUDAKernelGroup(GPUKernelGroup):
    """The executor of a program on a GPU; arguments of kernels are addresses.

    Attributes
    ----------
    communicators
        Those that exchange arrays of the program on the device.
    """

    device: Device
    host_io: CuPyHostIO
    error_words: Memory

    def __init__(self, transformer: CuPyTransformer, program: Program) -> None:
        super().__init__(transformer, program)
        self.transformer = transformer
        self.queue = transformer.queue
        self.communicators: set[DeviceCommunicator] = set()
        self._module: LoadedModule | None = None
        self._started: list[tuple[int, Any, Any]] = []
        self._began = 0.0

    def load(self, text: str) -> None:
        """Compile the source; raises BackendError if that fails."""
        self._module = self.device.build(text, self.program.name, self.transformer.code_cache)

    def run(self, arrays: Arrays) -> None:
        """Start all segments in the stream, and wait for the results."""
        with self.device.handle:
            if self.program.on_device:
                self._wait_for_caller()
            with self.queue.stream:
                super().run(arrays)
        for each in self.communicators:
            each.check()

    def _wait_for_caller(self) -> None:
        """Let the stream wait for that of the caller, which may still compute its arrays."""
        cuda = self.device.cupy.cuda
        before = cuda.Event(disable_timing=True)
        before.record(cuda.get_current_stream())
        self.queue.stream.wait_event(before)

    def abandon(self) -> None:
        """Wait for running work, ignoring its errors: it may use the caller's memory."""
        with suppress(*self.device.errors), self.device.handle:
            self.wait()

    def wait(self) -> None:
        """Wait until the stream is idle."""
        self.queue.wait()

    def marker(self) -> Callable[[], Any]:
        """Mark a place in the stream, and return a function that waits for it."""
        event = self.device.cupy.cuda.Event(disable_timing=True)
        event.record(self.queue.stream)
        wait: Callable[[], Any] = event.synchronize
        return wait

    def close(self) -> None:
        """Release the module and all memory."""
        self._module = None
        super().close()

    # Binding

    def make_host_io(self) -> CuPyHostIO:
        """Return the transfers by copies of the caller's arrays."""
        return CuPyHostIO(self.workspace_pool, self.queue, self.program)

    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Bind a segment; reads of error words and copies to the host synchronize themselves."""
        waits = is_last and not segment.reports
        kind = CUDAGraphSegment if self.recorder is None else BoundSegment
        return kind(self, segment, is_last, waits)

    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        """Bind the addresses of a launch's arguments."""
        if isinstance(launch, LibraryCall):
            return self._product(launch)
        assert self._module is not None, "programs with launches are loaded"
        kernel = self._module.get_function(launch.function.name)
        args = tuple(
            self._word(word)
            if layout is None
            else self._base(layout) + self.argument_range(layout)[0]
            for layout in launch.args
        )
        group = launch.function.group
        return partial(kernel, (launch.items // group,), (group,), args)

    def bind_host_call(self, call: HostCall) -> Bound:
        """Bind a call of the host, or a collective that is none: its arrays stay on the device."""
        return bound_on_device(self, call) or super().bind_host_call(call)

    def device_array(self, layout: TensorDescription) -> DeviceArray:
        """Return a contiguous tensor as communicators take it."""
        address = self._base(layout) + layout.offset
        return DeviceArray(address, layout.shape, layout.dtype, self.device.candidate.number)

    def launch_again(self, launch: Launch) -> None:
        """Start one launch; errors are reported in the first word."""
        self.bind_launch(launch, 0)()

    def recording(self, launch: Launch, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that starts a launch between two events."""
        row, started, stream = self.row_of(launch), self._started, self.queue.stream
        event = self.device.cupy.cuda.Event

        def recorded() -> None:
            before, after = event(), event()
            if not started:
                self._began = perf_counter()
            before.record(stream)
            start()
            after.record(stream)
            started.append((row, before, after))

        return recorded

    def begin_recording(self) -> None:
        """Forget the events of an earlier call."""
        self._started.clear()

    def deliver_times(self, recorder: Recorder) -> None:
        """Tell a recorder the times between events.

        The clock of the GPU is set by the moment before the first event.
        """
        elapsed = self.device.cupy.cuda.get_elapsed_time
        with self.device.current(f"reading the times of {self.program.name}"):
            for row, before, after in self._started:
                start, end = (
                    self._began + elapsed(self._started[0][1], each) / 1e3
                    for each in (before, after)
                )
                recorder.add(row, start, end)
        self._started.clear()

    def _product(self, work: LibraryCall) -> Callable[[], Any]:
        found = blas.gemm(*work.args)
        assert found is not None
        assert work.name == "matmul"
        dtype = work.args[0].dtype
        addresses = (self._base(layout) + layout.offset for layout in work.args)
        return self.transformer.blas.product(found, dtype, *addresses)

    def _base(self, layout: TensorDescription) -> int:
        """Return the address of the buffer that contains a tensor."""
        if layout.base.kind in (INPUT, RESULT):
            return self.host_io.addresses[self.array_number(layout)]
        memory: Memory = self.memory_of(layout)
        return memory.address

    # Error words

    @override
    def make_error_words(self) -> Memory:
        return self.device.memory(len(self.reports) * WORD, "error words")

    def _word(self, word: int | None) -> int:
        assert word is not None
        return self.error_words.address + word * WORD

    @override
    def clear_error_words(self) -> None:
        self.queue.clear(self._word(0), len(self.reports) * WORD)

    def read_error_words(self) -> list[int]:
        """Return the error words, after all earlier work has ended."""
        found = np.empty(len(self.reports), np.int32)
        self.queue.download(found, self._word(0))
        self.queue.wait()
        error_words: list[int] = found.tolist()
        return error_words


class CUDAGraphSegment(BoundSegment):
    """A bound segment whose launches run one by one in the first call, then as a CUDA graph.

    The first call loads the code of kernels, which is impossible during stream capture. The second
    call captures the CUDA graph, which later calls replay until memory moves and arguments are
    bound again.
    """

    group: CUDAKernelGroup

    def __init__(
        self, group: CUDAKernelGroup, segment: Segment, is_last: bool, waits: bool
    ) -> None:
        super().__init__(group, segment, is_last, waits)
        self.stream = group.queue.stream
        self._has_run = not self.launches
        self._cuda_graph: Any = None

    def launch(self) -> None:
        """Start the launches in the current stream."""
        if not self._has_run:
            super().launch()
            self._has_run = True
        elif self.launches:
            self._cuda_graph = self._cuda_graph or self._capture_stream()
            self._cuda_graph.launch(self.stream)

    def _capture_stream(self) -> Any:
        """Capture the launches as a CUDA graph, without running them."""
        self.stream.begin_capture()
        try:
            super().launch()
        except BaseException:
            with suppress(Exception):  # drops the partial capture
                self.stream.end_capture()
            raise
        return self.stream.end_capture()
