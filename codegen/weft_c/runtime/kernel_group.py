"""GPUKernelGroup: runs a program's segments on a device, and raises the errors of kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft.errors import BackendError, StateError
from weft.ir.description import TensorDescription
from weft.plan.plan import INPUT, RESULT
from weft.report.recorder import HOST, KERNEL, LIBRARY, Recorder
from weft.runtime.program import Program
from weft.runtime.reported_errors import raise_reported
from weft.support.interrupts import held
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.control_flow import Bound, HostWork
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import kernel_and_lines
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.segments import Launch, Report, Segment, SegmentBuilder, Work, ops_of
from weft_c.runtime.storage import Arrays, CopiedStorage, bytes_of, view
from weft_c.source.functions import GPUKernel, HostCall, LibraryCall
from weft_c.source.numbers import readable
from weft_tiling.sharing import GROUPS_PER_UNIT

if TYPE_CHECKING:
    from weft_c.runtime.transformer import DeviceTransformer


class GPUKernelGroup(SegmentBuilder, ABC):
    """The executor of a program: runs its segments with the caller's arrays.

    Calls are serialized. Arguments are bound once, in the first call, and bound again in the first
    call after memory that programs share has moved.

    Attributes
    ----------
    host_io
        Transfers to and from the caller's arrays, once the group is bound.
    workspace_pool
        The memory that all programs of the transformer use in turn.
    starting
        The launch that is being bound or started; None outside of launches. Errors name it.
    recorder
        What records the launches; None for an ordinary program.
    numbers
        The numbers that the text of kernels refers to by their index; None if it has the numbers.
    error_words
        The memory of the error words, once the group is bound, if any launch may report an error.
    """

    device: OpenDevice
    host_io: HostIO
    error_words: DeviceMemory

    def __init__(self, transformer: DeviceTransformer, program: Program) -> None:
        super().__init__(transformer.processor)
        self.device = transformer.device
        self.program = program
        self.inputs = len(program.captured.inputs)
        self._places: Mapping[Any, CopiedStorage[Any]] = {}
        self._held: list[HostIO | DeviceMemory] = []
        self._bound_segments: list[BoundSegment] = []
        self.workspace_pool = transformer.workspace_pool
        self.starting: Launch | None = None
        self.recorder = program.recorder
        self.numbers: Sequence[int] | None = None
        self._bound_to: int | None = None
        self._is_closed = False

    # Implemented by a backend

    @abstractmethod
    def load(self, text: str) -> None:
        """Build the source; raises BackendError if that fails."""

    @abstractmethod
    def make_host_io(self) -> HostIO:
        """Return the transfers to and from the arrays of calls."""

    @abstractmethod
    def make_error_words(self) -> DeviceMemory:
        """Return memory for one error word of 4 bytes for each report."""

    @abstractmethod
    def clear_error_words(self) -> None:
        """Set all error words to 0."""

    @abstractmethod
    def read_error_words(self) -> list[int]:
        """Return the error words, after all earlier work has ended."""

    @abstractmethod
    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        """Return a function that starts a launch; `word` is the number of its error word."""

    @abstractmethod
    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Bind the arguments of a segment; `is_last` if results are returned after it."""

    @abstractmethod
    def launch_again(self, launch: Launch) -> None:
        """Start one launch outside of its segment; it may report errors in any word."""

    @abstractmethod
    def wait(self) -> None:
        """Wait until all started work has ended."""

    @abstractmethod
    def recording(self, launch: Launch, start: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that starts a launch as `start` does, and records when it runs."""

    @abstractmethod
    def begin_recording(self) -> None:
        """Forget the times of an earlier call."""

    @abstractmethod
    def deliver_times(self, recorder: Recorder) -> None:
        """Tell a recorder when the launches of the last call ran."""

    def marker(self) -> Callable[[], Any]:
        """Return a function that waits until all work that was started until now has ended.

        A backend with a queue marks a place there, so that work started later is not waited for.
        """
        return self.wait

    # Calls

    def build(self) -> None:
        """Compile the program after the last `add_kernel`; raises BackendError if that fails."""
        self.launch_small()
        text = self.source.text
        self.program.source = partial(readable, text, self.numbers)
        self.program.source_locations = self.source.line_locations
        self.program.code = self
        if self.source.functions:
            self.load(text)

    def recorded_call(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Run the program of a recorder, which gets the times after the call."""
        assert self.recorder is not None, "only programs with a recorder are called like this"
        self.recorder.deliver()
        self.begin_recording()
        self(*arrays)
        self.recorder.defer(partial(self.deliver_times, self.recorder))

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Run the program on the input arrays, followed by the arrays that receive the results."""
        if self.device.lost:
            raise BackendError(self.device.lost)
        if self._is_closed:
            raise StateError(f"{self.program.name}: its transformer was closed: make another one")
        held(self._run_whole, arrays)

    def _run_whole(self, arrays: Arrays) -> None:
        """Run the program; after an error, wait until the device is idle."""
        try:
            self.run(arrays)
        except BaseException as error:
            self.abandon()
            # A BackendError is a RuntimeError, as errors of some drivers are.
            if isinstance(error, self.device.errors) and not isinstance(error, BackendError):
                raise self._failed(error) from error
            self.starting = None
            raise

    def _failed(self, error: Exception) -> BackendError:
        """Translate a driver's error; the message names the launch that was being started."""
        launch, self.starting = self.starting, None
        doing = f"computing {self.program.name}"
        if launch is None:
            return self.device.failed(error, doing)
        if isinstance(launch, LibraryCall):
            name, where = launch.name, f"  {launch.op.file_info}"
        else:
            name = launch.function.name
            begin = self.source.line_of(name)
            where = kernel_and_lines(self.source.lines_of(name), self.source.text, begin)
        translated = self.device.failed(error, f"{doing}, starting {name}")
        return type(translated)(f"{translated.problem}\n{where}")

    def run(self, arrays: Arrays) -> None:
        """Start all segments, and wait for the results."""
        if self._bound_to != self.workspace_pool.version:
            self._bind()
        held = self.host_io.begin(arrays)
        self.run_segments(self._bound_segments, arrays)
        del held  # after an error the traceback holds it, until `abandon` has waited

    def run_segments(self, segments: Iterable[BoundSegment], arrays: Arrays) -> None:
        """Start the launches of segments, and run the host's work at the end of each."""
        for segment in segments:
            segment.launch()
            if segment.is_last:
                self.host_io.end(arrays)
            if segment.waits:
                self.wait()
            if segment.reports:
                self._check_reports(segment.reports, arrays)
            if segment.host is not None:
                segment.host.run(arrays)

    def abandon(self) -> None:
        """Wait for running work, ignoring its errors: it may use the caller's memory."""
        with suppress(*self.device.errors):
            self.wait()

    def close(self) -> None:
        """Release all memory."""
        self._is_closed, self._bound_to = True, None
        self._bound_segments, self._places = [], {}
        self._give_back()

    def _give_back(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.release()

    def row_of(self, work: Work) -> int:
        """Return the recorder's row of a launch or a host call."""
        assert self.recorder is not None, "only programs with a recorder have rows"
        ops = ops_of(work)
        kind = _KINDS[type(work)]
        return self.recorder.row(
            ops, kind, self.launch_counts.get(ops, 1), self._most_threads(work)
        )

    def _most_threads(self, work: Work) -> int | None:
        """Return the items of a kernel, unless a processor with more units has more of them."""
        if not (isinstance(work, GPUKernel) and self.processor.is_serial):
            return None
        return work.items if work.items < self.processor.units * GROUPS_PER_UNIT else None

    # Binding

    def _bind(self) -> None:
        """Bind the arguments that are the same in every call."""
        self._bound_to, self._bound_segments = None, []
        self._give_back()  # memory of an earlier binding
        self.host_io = self.make_host_io()
        self._held.append(self.host_io)
        self._places = {
            buffer: storage
            for buffer, storage in self.program.storages.items()
            if isinstance(storage, CopiedStorage)
        }
        if self.reports:
            self.error_words = self.make_error_words()
            self._held.append(self.error_words)
            self.clear_error_words()
        self._bound_segments = self.bind_segments(self.segments)
        self._bound_to = self.workspace_pool.version

    def bind_segments(self, segments: Iterable[Segment]) -> list[BoundSegment]:
        """Bind the arguments of segments, including those inside loops and conditionals."""
        return [self.bind_segment(each, each is self.segments[-1]) for each in segments]

    def bind_host_call(self, call: HostCall) -> Bound:
        """Bind a call of the host; a backend may do the work of some ops in another way."""
        return HostWork(self, call)

    def array_number(self, layout: TensorDescription) -> int:
        """Return the index of the caller's array that holds a tensor; results follow inputs."""
        owner: int = layout.base.owner
        return owner if layout.base.kind == INPUT else self.inputs + owner

    def argument_range(self, layout: TensorDescription) -> tuple[int, int]:
        """Return the aligned start of a kernel's argument in its buffer, and its size, in bytes."""
        first, size = layout.byte_range
        start = first // self.processor.alignment * self.processor.alignment
        return start, max(first + size - start, 1)

    def memory_of(self, layout: TensorDescription) -> Any:
        """Return the device memory that holds a tensor that is not in a caller's array."""
        return self._places[layout.base].memory

    # Host work, and errors

    def host_array(self, layout: TensorDescription, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return a tensor as a NumPy array: a view where memory is shared, else a copy."""
        if layout.base.kind in (INPUT, RESULT):
            return view(layout, self.host_io.read(self.array_number(layout), arrays))
        start, size = layout.byte_range
        return view(layout, self._places[layout.base].read(start, size), start)

    def truth(self, layout: TensorDescription, arrays: Arrays) -> bool:
        """Return the value of a bool, after all earlier work has ended."""
        self.wait()
        return bool(self.host_array(layout, arrays))

    def write_back(self, layout: TensorDescription, value: np.ndarray[Any, Any]) -> None:
        """Copy an array to its tensor on the device, unless `host_array` returned a view of it."""
        assert layout.is_contiguous, "results of steps are contiguous"
        if layout.base.kind == RESULT:
            self.host_io.write(self.array_number(layout), layout.offset, bytes_of(value))
        else:
            self._places[layout.base].write(layout.offset, bytes_of(value))

    def _check_reports(self, reports: Sequence[Report], arrays: Arrays) -> None:
        """Raise the error of the first launch that reported one, if any did."""
        error_words = self.read_error_words()
        reported = next((report for report in reports if error_words[report.word]), None)
        if reported is not None:
            self.clear_error_words()
            self.raise_reported(reported, arrays)

    def run_again(self, stop: int, arrays: Arrays) -> None:
        """Run `work[:stop]` again without effects, and wait for it."""
        for work in self.work[:stop]:
            if not isinstance(work, HostCall):
                self.launch_again(work)
                continue
            self.wait()
            if not work.op.has_effect:
                HostWork(self, work).run(arrays)
        self.wait()
        self.clear_error_words()

    def raise_reported(self, report: Report, arrays: Arrays) -> NoReturn:
        """Raise the error that a kernel reported, by evaluating the op's NumPy reference.

        Its operands may have been overwritten since, so the work before the op runs again: no state
        has been written yet, so it computes the same values. Reports after loops and conditionals
        are checked at once instead.
        """
        if report.start is not None:
            self.run_again(report.start, arrays)
        values = [self.host_array(layout, arrays) for layout in report.step.args]
        raise_reported(report.step.op, values)


_KINDS: dict[type, str] = {GPUKernel: KERNEL, LibraryCall: LIBRARY, HostCall: HOST}
"""What a profile calls launches and host calls."""
