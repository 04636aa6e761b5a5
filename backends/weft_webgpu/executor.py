"""WebGPUKernelGroup: the executor of a program on a WebGPU device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.errors import BackendError
from weft.plan.plan import INPUT, RESULT, Step
from weft.runtime.program import Program
from weft.support.backports import override
from weft.support.quoting import harmless
from weft.support.source import file_info
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.errors import DeviceMemoryError, build_error
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.kernel_group import GPUKernelGroup
from weft_c.runtime.segments import Launch, Segment, Work
from weft_c.runtime.storage import Arrays, Bytes, bytes_of
from weft_c.source.functions import GPUKernel, HostCall, Section, Source
from weft_webgpu import lowering
from weft_webgpu.arrays import WebGPUArray
from weft_webgpu.device import WORD, Device, Memory
from weft_webgpu.shader import ERROR_WORD, GROUPS_ACROSS, module_text

if TYPE_CHECKING:
    from weft.report.recorder import Recorder
    from weft_webgpu.transformer import WebGPUTransformer


JUST_READ = "READ_NOSYNC"
"""The mode in which `queue.read_buffer` maps: `MapMode.READ` submits an empty buffer before."""


class WGSLSource(Source):
    """The shaders of a program; which tensors share a buffer is decided when they are bound."""

    @override
    def sections(self) -> Iterator[Section]:
        for name, function in self.functions.items():
            locations = self.lines_of(name)
            lines = "".join(f"// {harmless(line)}\n" for line in map(file_info, locations))
            apart = tuple(range(len(function.parameters)))
            text = f"{lines}// {name}\n{module_text(function, apart)}"
            yield Section(name, text, locations)

    @override
    def _head(self, name: str) -> str:
        return ""


class CallMemory:
    """The inputs, or the results, of a call: one after the other in one buffer."""

    def __init__(self, sizes: Sequence[int], alignment: int) -> None:
        self.sizes = sizes
        self.offsets: list[int] = []
        self.nbytes = 0
        for size in sizes:
            self.offsets.append(self.nbytes)
            self.nbytes += -(-size // alignment) * alignment


class WebGPUHostIO(HostIO):
    """Transfers of a call: one upload of all inputs, and one readback of all results.

    A donated input is uploaded to the place of the result that takes it over.
    """

    def __init__(self, group: WebGPUKernelGroup) -> None:
        super().__init__(group.program)
        self.group, self.device = group, group.device
        sizes = [op.axes.size * op.dtype.itemsize for op in self.ops]
        self._taken_by = {number: result for result, number in self.taken.items()}
        for number in self._taken_by:
            sizes[number] = 0
        alignment = group.processor.alignment
        self.memories = {
            INPUT: CallMemory(sizes[: self.inputs], alignment),
            RESULT: CallMemory(sizes[self.inputs :], alignment),
        }
        self._packed = np.zeros(self.memories[INPUT].nbytes, np.uint8)
        self.error_words: list[int] | None = None
        self._arrays: Arrays = ()
        kinds = self.device.api.BufferUsage
        self._read = self.memories[RESULT].nbytes + WORD * max(len(group.reports), 1)
        self._staging = self.device.handle.create_buffer(
            size=self._read, usage=kinds.MAP_READ | kinds.COPY_DST
        )

    def buffer(self, kind: Any) -> Any:
        """Return the buffer of the inputs, or of the results."""
        memory = self.memories[kind]
        what = f"the arrays of {self.group.program.name}"
        return self.group.workspace_pool.reserve(kind, memory.nbytes, what).buffer

    def begin(self, arrays: Arrays) -> Any:
        """Copy the inputs to their places; those in the memory of the device by commands."""
        self.error_words, self._arrays = None, arrays
        copies: list[tuple[Any, int, Any, int]] = []
        memory, is_packed = self.memories[INPUT], False
        array: Any
        for start, size, array in zip(memory.offsets, memory.sizes, arrays, strict=False):
            if size and isinstance(array, WebGPUArray):
                copies.append((array.memory.buffer, 0, self.buffer(INPUT), start))
            elif size:
                is_packed = True
                self._packed[start : start + size] = bytes_of(array)
        if is_packed:
            self.device.handle.queue.write_buffer(self.buffer(INPUT), 0, self._packed)
        for result, number in self.taken.items():
            array = arrays[number]
            if isinstance(array, WebGPUArray):
                copies.append((array.memory.buffer, 0, *self.place(result)[:2]))
            else:
                self.write(result, 0, bytes_of(array))
        if copies:
            encoder = self.device.handle.create_command_encoder()
            for source, first, target, start in copies:
                encoder.copy_buffer_to_buffer(source, first, target, start, source.size)
            self.device.handle.queue.submit([encoder.finish()])
        return arrays

    def copy_results(self, encoder: Any) -> None:
        """Record the copies of results to arrays on the device, and to what the host can map.

        Error words are mapped too.
        """
        memory, reports = self.memories[RESULT], len(self.group.reports)
        copy = encoder.copy_buffer_to_buffer
        results: Sequence[Any] = self._arrays[self.inputs :]
        for start, size, array in zip(memory.offsets, memory.sizes, results, strict=True):
            if size and isinstance(array, WebGPUArray):
                target = array.memory.buffer
                copy(self.buffer(RESULT), start, target, 0, target.size)
        if memory.nbytes and not all(isinstance(each, WebGPUArray) for each in results):
            copy(self.buffer(RESULT), 0, self._staging, 0, memory.nbytes)
        if reports:
            words = self.group.error_words.buffer
            copy(words, 0, self._staging, memory.nbytes, WORD * reports)

    def end(self, arrays: Arrays) -> None:
        """Wait for the device, and copy the results to the caller's arrays."""
        memory, self._arrays = self.memories[RESULT], ()
        try:
            self._staging.map_sync(JUST_READ, 0, self._read)
        except AttributeError as error:  # wgpu has no poller for it any more
            raise RuntimeError("the device was destroyed") from error
        try:
            found = np.frombuffer(self._staging.read_mapped(copy=False), np.uint8)
            places = zip(memory.offsets, memory.sizes, arrays[self.inputs :], strict=True)
            for start, size, array in places:
                if not isinstance(array, WebGPUArray):
                    array.reshape(-1).view(np.uint8)[:] = found[start : start + size]
            self.error_words = found[memory.nbytes :].view(np.int32).tolist()
            del found
        finally:
            self._staging.unmap()

    def place(self, number: int) -> tuple[Any, int, int]:
        """Return the buffer that holds an array on the device, the array's first byte, and size."""
        number = self._taken_by.get(number, number)
        kind, index = (INPUT, number) if number < self.inputs else (RESULT, number - self.inputs)
        memory = self.memories[kind]
        return self.buffer(kind), memory.offsets[index], memory.sizes[index]

    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of an array as kernels see them."""
        if number < self.inputs and isinstance(arrays[number], np.ndarray):
            return bytes_of(arrays[number])
        return self.device.download(*self.place(number))

    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to an array from byte `start` on."""
        buffer, offset, _ = self.place(number)
        self.device.upload(buffer, offset + start, bytes_)

    @override
    def release(self) -> None:
        self._staging.destroy()


class WebGPUSegment(BoundSegment):
    """A segment whose launches are recorded into one command buffer, with that of the results."""

    group: WebGPUKernelGroup

    @override
    def launch(self) -> None:
        group = self.group
        if group.recorder is not None:
            super().launch()
        handle = group.device.handle
        has_launches = self.launches and group.recorder is None
        if not has_launches and not self.is_last:
            return
        encoder = handle.create_command_encoder()
        if has_launches:
            group.recorded_pass = encoder.begin_compute_pass()
            super().launch()
            group.recorded_pass.end()
        if self.is_last:
            group.host_io.copy_results(encoder)
        handle.queue.submit([encoder.finish()])


class WebGPUKernelGroup(GPUKernelGroup):
    """The executor of a program: its bind groups are kept, and commands recorded in each call.

    Attributes
    ----------
    recorded_pass
        The compute pass that launches are recorded in.
    """

    device: Device
    host_io: WebGPUHostIO
    error_words: Memory

    def __init__(self, transformer: WebGPUTransformer, program: Program) -> None:
        super().__init__(transformer, program)
        self.recorded_pass: Any = None
        self._places_of: dict[tuple[int, ...], Any] = {}
        self._started: list[tuple[int, float, float]] = []

    @override
    def new_source(self) -> WGSLSource:
        return WGSLSource(self.processor.dialect)

    @override
    def lower(self, step: Step) -> list[Work]:
        return list(lowering.lower(step, self.processor))

    @override
    def can_guard(self, lowered: Any) -> bool:
        """Whether launches can test an error word: one that ends early reaches no barrier."""
        return super().can_guard(lowered) and not any(
            None in work.args or "Barrier()" in work.function.body for work in lowered
        )

    @override
    def guarded(self, launch: GPUKernel) -> GPUKernel:
        test = f"if ({ERROR_WORD}({ERROR_WORD}_at) != 0u) {{ return; }}"
        return launch.guarded(ERROR_WORD, test)

    def load(self, text: str) -> None:
        """Do nothing: shaders are compiled when it is known which tensors share a buffer."""

    def make_host_io(self) -> WebGPUHostIO:
        """Return the transfers of calls."""
        return WebGPUHostIO(self)

    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        """Compile a shader, bind its buffers, and return a function that records the launch."""
        assert isinstance(launch, GPUKernel), "the processor has no library"
        buffers: dict[int, Any] = {}
        numbers, offsets = [], []
        for layout in launch.args:
            if layout is None:
                assert word is not None
                buffer, offset = self.error_words.buffer, word
            else:
                buffer, start = self._buffer_of(layout)
                offset = start // layout.dtype.itemsize
            keys = list(buffers)
            if id(buffer) not in buffers:
                buffers[id(buffer)] = buffer
                keys = list(buffers)
            numbers.append(keys.index(id(buffer)))
            offsets.append(offset)
        self._require_limits(launch, len(buffers))
        code = module_text(launch.function, tuple(numbers))
        try:
            pipeline = self.device.pipeline(code, len(buffers))
        except self.device.errors as error:
            raise self._refused(launch, code, error) from error
        key = tuple(offsets)
        if key not in self._places_of:
            self._places_of[key] = self.device.places(offsets)
        group = self.device.bind_group(self._places_of[key], list(buffers.values()))
        groups = launch.items // launch.function.group
        return partial(
            self._record, pipeline, group, min(groups, GROUPS_ACROSS), -(-groups // GROUPS_ACROSS)
        )

    def _buffer_of(self, layout: Any) -> tuple[Any, int]:
        """Return the buffer of a tensor, and the byte of its first element there."""
        base = layout.base
        if base.kind in (INPUT, RESULT):
            buffer, start, _ = self.host_io.place(self.array_number(layout))
            return buffer, start + layout.offset
        return self.memory_of(layout).buffer, layout.offset

    def _require_limits(self, launch: GPUKernel, count: int) -> None:
        """Raise BackendError for a launch that the device would refuse."""
        limit = self.device.limits["max-storage-buffers-per-shader-stage"]
        if count > limit:
            lines = "\n".join(f"  {op.file_info}" for op in launch.ops)
            raise BackendError(
                f"{self.device.name} binds {limit} buffers to a kernel, and one of "
                f"{self.program.name} has {count}: make fewer states in one expression\n{lines}"
            )

    def _refused(self, launch: GPUKernel, code: str, error: Exception) -> BackendError:
        """Return the error for a shader that the driver does not compile."""
        name = launch.function.name
        failed = self.device.failed(error, f"compiling {name}")
        if self.device.lost or isinstance(failed, DeviceMemoryError):
            return failed
        computed = "".join(f"  {file_info(each)}\n" for each in self.source.lines_of(name))
        refused = f"{self.device.name} refuses the shader {name}"
        lines = [int(line) for line in re.findall(r":(\d+):\d+", str(error))]
        log = f"it computes:\n{computed}{error}"
        return build_error(refused, "the driver", log, code, lines)

    def _record(self, pipeline: Any, group: Any, across: int, down: int) -> None:
        recorded = self.recorded_pass
        recorded.set_pipeline(pipeline)
        recorded.set_bind_group(0, group)
        recorded.dispatch_workgroups(across, down)

    def _run_alone(self, start: Callable[[], Any]) -> None:
        """Record one launch, and submit it."""
        encoder = self.device.handle.create_command_encoder()
        self.recorded_pass = encoder.begin_compute_pass()
        start()
        self.recorded_pass.end()
        self.device.handle.queue.submit([encoder.finish()])

    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Bind a segment, which waits before host work; reports are read after all work."""
        waits = isinstance(segment.host, HostCall) and not segment.reports and not is_last
        return WebGPUSegment(self, segment, is_last, waits)

    def launch_again(self, launch: Launch) -> None:
        """Submit a launch with the first error word."""
        self._run_alone(self.bind_launch(launch, 0 if None in launch.args else None))

    def wait(self) -> None:
        """Wait until all submitted work has ended."""
        self.device.wait()

    # Times, of launches that run one by one

    def recording(self, launch: Launch, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that runs a launch by itself, and keeps its time."""
        row = self.row_of(launch)

        def recorded() -> None:
            begin = perf_counter()
            self._run_alone(start)
            self.wait()
            self._started.append((row, begin, perf_counter()))

        return recorded

    def begin_recording(self) -> None:
        """Forget the times of an earlier call."""
        self._started.clear()

    def deliver_times(self, recorder: Recorder) -> None:
        """Tell a recorder the times of all launches."""
        for row, begin, end in self._started:
            recorder.add(row, begin, end)
        self._started.clear()

    # Error words

    @override
    def make_error_words(self) -> Memory:
        return self.device.memory(4 * len(self.reports), "error words")

    @override
    def clear_error_words(self) -> None:
        self.device.upload(self.error_words.buffer, 0, np.zeros(4 * len(self.reports), np.uint8))

    @override
    def read_error_words(self) -> list[int]:
        if self.host_io.error_words is not None:
            return self.host_io.error_words
        found = self.device.download(self.error_words.buffer, 0, 4 * len(self.reports))
        result: list[int] = found.view(np.int32).tolist()
        return result
