"""OpenCLKernelGroup: the executor of a program on an OpenCL device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import BackendError
from weft.plan.plan import INPUT, RESULT
from weft.report.progress import Stage
from weft.runtime.program import Program
from weft.support.backports import override
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.errors import kernel_and_lines
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.segments import Launch, Segment
from weft_c.source.entry_points import EntryPoint
from weft_c.source.functions import GPUKernel, HostCall
from weft_opencl import trials
from weft_opencl.device import Device, Memory
from weft_opencl.host_io import CopiedHostIO, MappedHostIO, OpenCLHostIO, SharedHostIO
from weft_opencl.mappings import MAPPINGS

if TYPE_CHECKING:
    from weft.report.recorder import Recorder
    from weft_opencl.transformer import OpenCLTransformer


class OpenCLKernelGroup(GPUKernelGroup):
    """The executor of a program on an OpenCL device.

    On devices that share the host's memory, kernels access the caller's arrays in place, as far as
    their layouts allow; else they access copies in the workspace pool.
    """

    device: Device
    host_io: OpenCLHostIO
    error_words: Memory

    def __init__(self, transformer: OpenCLTransformer, program: Program) -> None:
        super().__init__(transformer, program)
        self.cl = transformer.cl
        is_recorded = self.recorder is not None
        self.queue = self.device.queue(records_times=True) if is_recorded else transformer.queue
        self._started: list[tuple[int, float, Any]] = []
        self.maps_host = transformer.maps_host
        self._entry_points: dict[str, EntryPoint] = {}
        self._kernels: dict[Launch, Any] = {}
        self._program: Any = None  # held, so that others with its source find it

    def load(self, text: str) -> None:
        """Compile the source and create the kernels; raises BackendError if that fails.

        Where the driver may end the process, the source is tried in another one before. Raises
        DeviceMemoryError where the process has no room for the kernels.
        """
        entry_points = self.source.entry_points
        MAPPINGS.make_room(len(entry_points), self.device.name)
        if trials.is_needed(self.device.handle):
            with Stage(f"trying {self.program.name}"):
                self._try_kernels(text)
        built = self._program = self.device.build(text, self.program.name)
        self._entry_points = {name: entry for entry in entry_points for name in entry.functions}
        try:
            for work in self.work:
                if isinstance(work, GPUKernel):
                    self._kernels[work] = self._kernel(built, work.function.name)
        except self.cl.Error as error:
            doing = f"making the kernels of {self.program.name}"
            raise self.device.failed(error, doing) from error

    def _try_kernels(self, text: str) -> None:
        """Raise BackendError with the kernel, if the driver ends a process that compiles `text`."""
        handle = self.device.handle
        trouble = trials.trouble_with(text, handle)
        if not trouble:
            return
        alone = map(self.source.of_kernel, self.source.entry_points)
        failing = (each for each in alone if trials.trouble_with(each.text, handle))
        found = next(failing, self.source)
        name = next(iter(found.functions))
        lines = dict.fromkeys(line for each in found.functions for line in found.lines_of(each))
        raise BackendError(
            f"{self.device.name} cannot compile the kernel {name} of {self.program.name}: {trouble}"
            "; this is an error of the driver, not of the graph: install another version of it, or "
            f"choose another device or backend\n"
            f"{kernel_and_lines(lines, found.text, found.line_of(name))}"
        )

    def _kernel(self, built: Any, name: str) -> Any:
        """Create the kernel of a function; arguments of other cases are set to null."""
        entry = self._entry_points[name]
        kernel = self.cl.Kernel(built, entry.name)
        if entry.has_cases:
            kernel.set_arg(0, np.int32(entry.case(name)))
            for index in range(1 + len(entry.functions[name].parameters), kernel.num_args):
                # A null pointer in the bytes of an argument; many versions of PyOpenCL refuse None.
                kernel.set_arg(index, np.intp(0))
        return kernel

    def make_host_io(self) -> OpenCLHostIO:
        """Return the transfers: in place where the device shares the host's memory, else copies."""
        if self.program.on_device:
            return MappedHostIO(self)
        if self.processor.shares_host:
            return SharedHostIO(self)
        return (MappedHostIO if self.maps_host else CopiedHostIO)(self)

    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        """Bind the arguments of a launch, except those in the caller's memory."""
        assert isinstance(launch, GPUKernel), "the processor has no library"
        kernel = self._kernels[launch]
        first = int(self._entry_points[launch.function.name].has_cases)
        for index, layout in enumerate(launch.args, first):
            if layout is None:
                assert word is not None
                alignment = self.processor.alignment
                kernel.set_arg(index, self.error_words.part(word * alignment, alignment))
            elif layout.base.kind in (INPUT, RESULT):
                self.host_io.bind(
                    kernel, index, self.array_number(layout), *self.argument_range(layout)
                )
            else:
                kernel.set_arg(index, self.memory_of(layout).part(*self.argument_range(layout)))
        return self._enqueue(launch)

    def _enqueue(self, launch: Launch) -> Callable[[], Any]:
        """Return a function that enqueues a launch with the current arguments of its kernel."""
        assert isinstance(launch, GPUKernel), "the processor has no library"
        sizes = (launch.items,), (launch.function.group,)
        return partial(self.cl.enqueue_nd_range_kernel, self.queue, self._kernels[launch], *sizes)

    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Bind a segment, which waits before reports, host work, and the return of results."""
        is_looked_at = is_last or segment.reports or isinstance(segment.host, HostCall)
        may_run = segment.kernels or self.has_control
        copies = is_last and not isinstance(self.host_io, SharedHostIO)
        return BoundSegment(self, segment, is_last, bool(copies or (is_looked_at and may_run)))

    def launch_again(self, launch: Launch) -> None:
        """Enqueue a launch with its bound arguments."""
        self._enqueue(launch)()

    def wait(self) -> None:
        """Wait until the queue is empty."""
        self.queue.finish()

    def marker(self) -> Callable[[], Any]:
        """Mark a place in the queue, and return a function that waits for it."""
        wait: Callable[[], Any] = self.cl.enqueue_marker(self.queue).wait
        return wait

    def recording(self, launch: Launch, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that enqueues a launch, and keeps its event."""
        row, started = self.row_of(launch), self._started

        def recorded() -> None:
            now = perf_counter()
            started.append((row, now, start()))

        return recorded

    def begin_recording(self) -> None:
        """Forget the events of an earlier call."""
        self._started.clear()

    def deliver_times(self, recorder: Recorder) -> None:
        """Tell a recorder the times of all events.

        The device's clock is set by the moment at which the first launch was enqueued.
        """
        for number, (row, now, event) in enumerate(self._started):
            if number == 0:
                offset = now - event.profile.queued / 1e9
            start, end = (time / 1e9 + offset for time in (event.profile.start, event.profile.end))
            recorder.add(row, start, end)
        self._started.clear()

    def close(self) -> None:
        """Release the kernels and all memory."""
        self._kernels = {}
        super().close()

    # Error words, each at an aligned offset, where a sub-buffer can begin

    @override
    def make_error_words(self) -> Memory:
        return self.device.memory(self._error_words_size, "error words", self.processor.shares_host)

    @property
    def _error_words_size(self) -> int:
        return len(self.reports) * self.processor.alignment

    @override
    def clear_error_words(self) -> None:
        if self.error_words.host is not None:
            self.error_words.host[:] = 0
        else:
            zeros = np.zeros(self._error_words_size, np.uint8)
            self.cl.enqueue_copy(self.queue, self.error_words.buffer, zeros)

    @override
    def read_error_words(self) -> list[int]:
        found = self.error_words.host
        if found is None:
            found = np.empty(self._error_words_size, np.uint8)
            self.cl.enqueue_copy(self.queue, found, self.error_words.buffer)
        error_words: list[int] = found.view(np.int32)[:: self.processor.alignment // 4].tolist()
        return error_words
