"""GPUKernelGroup: what a program runs on a device, in order, and the errors that kernels report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from weft.errors import BackendError, StateError
from weft.ir.description import TensorDescription
from weft.ir.graph import Graph
from weft.plan import sub_plans
from weft.plan.plan import INPUT, RESULT, STATE, Plan, Step
from weft.plan.sub_plans import CallFrame, Part, expand_step
from weft.runtime.program import Program
from weft.support.interrupts import held
from weft_c.lowering import lower
from weft_c.runtime.bound_segment import BoundSegment
from weft_c.runtime.control_flow import Choice, Control, HostWork, Repeat, While
from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import kernel_and_lines
from weft_c.runtime.host_io import HostIO
from weft_c.runtime.storage import Arrays, CopiedStorage, bytes_of, view
from weft_c.source.functions import GPUKernel, HostCall, LibraryCall, Source, byte_range
from weft_c.source.launch_merging import LaunchMerger, is_small

if TYPE_CHECKING:
    from weft_c.runtime.transformer import DeviceTransformer

Launch = GPUKernel | LibraryCall
Work = Launch | HostCall

MAX_DEPTH = 64
"""How deeply loops and choices of the host may be nested; each level takes frames of its stack."""


@dataclass(frozen=True, eq=False)
class Report:
    """A launch that may report an error, and the error word that it alone has.

    Attributes
    ----------
    word
        The number of its error word.
    step
        What it takes part in.
    start
        The place in the work of the group where that step begins, if all before can run again;
        else None, and the segment ends with that step.
    """

    word: int
    step: Step
    start: int | None


@dataclass
class Segment:
    """Launches that nothing waits between.

    Attributes
    ----------
    kernels
        The launches, in order, each with its error word's number, or None.
    reports
        What must be looked at once they have ended.
    host
        What the host does then: work of its own, or a loop or choice of other segments.
    """

    kernels: list[tuple[Launch, int | None]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    host: HostCall | Control | None = None


class GPUKernelGroup(ABC):
    """The executor of a program: launches and work of the host, called with the caller's arrays.

    A segment ends where the host has work, and before a state is written while kernels that ran may
    have reported an error: no call that raises has written a state. Where only one of them may, and
    the device is no processor, kernels that write a state look at its error word themselves.

    The graphs that a program calls are lowered once each, and launched in the memory of every call.
    Loops and choices hold segments of their own.

    Calls come one at a time. What can be bound once is bound in the first call, and again in the
    first one after memory that programs share has moved.

    Attributes
    ----------
    work
        What runs, in order; what a loop or a choice has inside is there once.
    source
        The functions of the kernels.
    reports
        The launches that may report an error.
    segments
        What runs, cut where the host has a part; nothing may be in the last one. While a loop or
        a choice is written, what it has inside.
    has_control
        Whether there are loops or choices so far; what is added from then on cannot be reached by
        running everything before it again.
    edge
        The edge to the caller's arrays, once the group is bound.
    working
        The memory that programs use one after the other.
    starting
        The launch that is being bound or started, if any.
    words
        The memory of the error words, once the group is bound, if there are any.
    """

    device: OpenDevice
    host_io: HostIO
    error_words: DeviceMemory

    def __init__(self, transformer: DeviceTransformer, program: Program) -> None:
        self.processor = transformer.processor
        self.device = transformer.device
        self.program = program
        self.inputs = len(program.captured.inputs)
        self.source = Source(self.processor.dialect, self.processor.cases, self.processor.has_fp64)
        self.work: list[Work] = []
        self.reports: list[Report] = []
        self.segments = [Segment()]
        self.has_control = False
        self._depth = 0
        self._small = LaunchMerger()
        self._callees: dict[Graph, list[tuple[Step, list[Work]]]] = {}
        self._places: Mapping[Any, CopiedStorage[Any]] = {}
        self._held: list[HostIO | DeviceMemory] = []
        self._bound_segments: list[BoundSegment] = []
        self.workspace_pool = transformer.workspace_pool
        self.starting: Launch | None = None
        self._bound_to: int | None = None
        self._is_closed = False

    def add_kernel(self, step: Step) -> None:
        """Add what computes a step; raises KeyError for an op without a rule.

        Small launches wait for `launch_small`, which comes before whatever is not small.
        """
        if step.op.graphs:
            for part in expand_step(step):
                self._add_part(part)
        else:
            self._add_lowered(step, lower(step, self.processor))

    def _add_lowered(self, step: Step, lowered: Sequence[Work]) -> None:
        may_report = any(None in work.args for work in lowered)
        ends = bool(self.segments[-1].reports) and _writes_state(step)
        if ends or may_report:
            self.launch_small()
        if ends and self._can_guard(lowered):
            lowered = [work.guarded() for work in lowered if isinstance(work, GPUKernel)]
        elif ends:
            self.segments.append(Segment())
        start = None if self.has_control else len(self.work)
        for work in lowered:
            if isinstance(work, GPUKernel) and is_small(work) and self.processor.is_serial:
                if not self._small.takes(work):
                    self.launch_small()
                self._small.add(work)
                continue
            self.launch_small()
            if isinstance(work, GPUKernel):
                self.source.add(work)
            self.add_work(work, step, start)
        if may_report and start is None:
            self.segments.append(Segment())

    def _can_guard(self, lowered: Iterable[Work]) -> bool:
        """Whether launches can see for themselves that there was an error.

        On a serial device a wait costs less than launches that are not merged.
        """
        are_kernels = all(isinstance(work, GPUKernel) for work in lowered)
        return are_kernels and len(self.segments[-1].reports) == 1 and not self.processor.is_serial

    def launch_small(self) -> None:
        """Add the launches that have waited for more to become one kernel with."""
        merged = self._small.merged()
        if merged is not None:
            self.source.add(merged)
            self.add_work(merged, Step(merged.ops[0], (), ()), len(self.work))

    def add_work(self, work: Work, step: Step, start: int | None) -> None:
        """Add a launch, or work of the host, that belongs to a step which begins at a place."""
        self.work.append(work)
        segment = self.segments[-1]
        if isinstance(work, HostCall):
            segment.host = work
            self.segments.append(Segment())
            return
        word = None
        if isinstance(work, GPUKernel) and work.is_guarded:
            word = segment.reports[-1].word
        elif None in work.args:
            word = len(self.reports)
            self.reports.append(Report(word, step, start))
            segment.reports.append(self.reports[-1])
        segment.kernels.append((work, word))

    # Graphs that are called

    def _add_part(self, part: Part) -> None:
        """Add one part of what a step runs whose op runs graphs."""
        match part:
            case sub_plans.Call(plan, frame):
                self.launch_small()  # so that what is merged inside is the same in every call
                for step, lowered in self._callee_steps(plan):
                    if step.op.graphs:
                        self.add_kernel(frame.step(step))
                    else:
                        self._add_lowered(frame.step(step), [_relocated(w, frame) for w in lowered])
                self.launch_small()
            case sub_plans.Copy(step):
                self.add_kernel(step)
            case sub_plans.Repeat(count, parts):
                self.add_control(Repeat(count, self._inside(parts)))
            case sub_plans.While(test, flag, parts):
                self.add_control(While(self._inside([test]), flag, self._inside(parts)))
            case sub_plans.Choice(flag, then, otherwise):
                self.add_control(Choice(flag, self._inside(then), self._inside(otherwise)))

    def _callee_steps(self, plan: Plan) -> list[tuple[Step, list[Work]]]:
        """Return the steps of a called graph in memory of its own, lowered once."""
        found = self._callees.get(plan.graph)
        if found is None:
            found = self._callees[plan.graph] = [
                (step, [] if step.op.graphs else lower(step, self.processor)) for step in plan.steps
            ]
        return found

    def _inside(self, parts: Iterable[Part]) -> list[Segment]:
        """Return the segments of parts."""
        with self.inside() as segments:
            for part in parts:
                self._add_part(part)
            self.launch_small()
        return segments

    @contextmanager
    def inside(self) -> Iterator[list[Segment]]:
        """Let what is added go to segments of their own, those inside a loop or a choice.

        Raises BackendError at a depth at which the host, which runs them, had no stack left.
        """
        if self._depth == MAX_DEPTH:
            problem = f"loops and choices are nested more than {MAX_DEPTH} deep"
            raise BackendError(f"{problem}, which the host of a device does not run: nest fewer")
        self._depth += 1
        self.launch_small()
        self.has_control = True
        outer, self.segments = self.segments, [Segment()]
        try:
            yield self.segments
        finally:
            self.segments = outer
            self._depth -= 1

    def add_control(self, control: Control) -> None:
        """Add a loop or a choice, of segments that were added inside."""
        self.segments[-1].host = control
        self.segments.append(Segment())

    # What a backend gives

    @abstractmethod
    def load(self, text: str) -> None:
        """Build the source; raises BackendError if that fails."""

    @abstractmethod
    def make_host_io(self) -> HostIO:
        """Return the edge to the arrays of calls."""

    @abstractmethod
    def make_error_words(self) -> DeviceMemory:
        """Return memory for as many error words as there are reports."""

    @abstractmethod
    def clear_error_words(self) -> None:
        """Let all error words be 0."""

    @abstractmethod
    def read_error_words(self) -> list[int]:
        """Return the error words, once all work before has ended."""

    @abstractmethod
    def bind_launch(self, launch: Launch, word: int | None) -> Callable[[], Any]:
        """Return what starts a launch; `word` is the number of its error word."""

    @abstractmethod
    def bind_segment(self, segment: Segment, is_last: bool) -> BoundSegment:
        """Return a segment with everything in it bound."""

    @abstractmethod
    def launch_again(self, launch: Launch) -> None:
        """Start a launch by itself, whatever word it reports an error in."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for everything that was started."""

    # Calls

    def build(self) -> None:
        """Build the program, once all kernels are there; raises BackendError if that fails."""
        self.launch_small()
        self.program.source = text = self.source.text
        self.program.code = self
        if self.source.functions:
            self.load(text)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Compute: takes the input arrays, then the arrays to write results to."""
        if self.device.lost:
            raise BackendError(self.device.lost)
        if self._is_closed:
            raise StateError(f"{self.program.name}: its transformer was closed: make another one")
        held(self._run_whole, arrays)

    def _run_whole(self, arrays: Arrays) -> None:
        """Run, and leave nothing running after an error."""
        try:
            self.run(arrays)
        except self.device.errors as error:
            self.abandon()
            raise self._failed(error) from error
        except BaseException:
            self.starting = None
            self.abandon()
            raise

    def _failed(self, error: Exception) -> BackendError:
        """Return the error to raise for one of the driver's, which names what was being started."""
        launch, self.starting = self.starting, None
        doing = f"computing {self.program.name}"
        if launch is None:
            return self.device.failed(error, doing)
        if isinstance(launch, LibraryCall):
            name, where = launch.name, f"  {launch.op.file_info}"
        else:
            name = launch.function.name
            begin = self.source.line_of(name)
            where = kernel_and_lines(self.source.lines[name], self.source.text, begin)
        found = self.device.failed(error, f"{doing}, starting {name}")
        return type(found)(f"{found.problem}\n{where}")

    def run(self, arrays: Arrays) -> None:
        """Start everything, and wait for it."""
        if self._bound_to != self.workspace_pool.version:
            self._bind()
        held = self.host_io.begin(arrays)
        self.run_segments(self._bound_segments, arrays)
        del held  # after an error the traceback holds it, until `abandon` has waited

    def run_segments(self, bind_segments: Iterable[BoundSegment], arrays: Arrays) -> None:
        """Start what stretches launch, and let the host do its part between them."""
        for bind_segment in bind_segments:
            bind_segment.launch()
            if bind_segment.is_last:
                self.host_io.end(arrays)
            if bind_segment.waits:
                self.wait()
            if bind_segment.reports:
                self._check_reports(bind_segment.reports, arrays)
            if bind_segment.host is not None:
                bind_segment.host.run(arrays)

    def abandon(self) -> None:
        """Wait for what runs: it may use the caller's memory."""
        with suppress(*self.device.errors):
            self.wait()

    def close(self) -> None:
        """Give everything back."""
        self._is_closed, self._bound_to = True, None
        self._bound_segments, self._places = [], {}
        self._give_back()

    def _give_back(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.release()

    # Binding

    def _bind(self) -> None:
        """Bind the arguments of every launch, as far as they are the same in every call."""
        self._bound_to, self._bound_segments = None, []
        self._give_back()  # what there is of an earlier time
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
        """Return segments with everything in them bound."""
        return [self.bind_segment(each, each is self.segments[-1]) for each in segments]

    def array_number(self, layout: TensorDescription) -> int:
        """Return the place of the caller's array that a tensor lies in."""
        owner: int = layout.base.owner
        return owner if layout.base.kind == INPUT else self.inputs + owner

    def argument_range(self, layout: TensorDescription) -> tuple[int, int]:
        """Return where the memory that a kernel is given for a tensor begins, and its size."""
        first, size = byte_range(layout)
        start = first // self.processor.alignment * self.processor.alignment
        return start, max(first + size - start, 1)

    def memory_of(self, layout: TensorDescription) -> Any:
        """Return the memory of the backend's kind that a tensor lies in, but for the caller's."""
        return self._places[layout.base].memory

    # The host's part, and errors

    def host_array(self, layout: TensorDescription, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return the elements at a place: they themselves if the host shares them, else a copy."""
        if layout.base.kind in (INPUT, RESULT):
            return view(layout, self.host_io.read(self.array_number(layout), arrays))
        start, size = byte_range(layout)
        return view(layout, self._places[layout.base].read(start, size), start)

    def truth(self, layout: TensorDescription, arrays: Arrays) -> bool:
        """Return the bool at a place, once all work before has ended."""
        self.wait()
        return bool(self.host_array(layout, arrays))

    def write_back(self, layout: TensorDescription, value: np.ndarray[Any, Any]) -> None:
        """Write elements to a place, if `host_array` returns copies."""
        if self.processor.shares_host:
            return
        assert layout.is_contiguous, "steps write without gaps"
        if layout.base.kind == RESULT:
            self.host_io.write(self.array_number(layout), layout.offset, bytes_of(value))
        else:
            self._places[layout.base].write(layout.offset, bytes_of(value))

    def _check_reports(self, reports: Sequence[Report], arrays: Arrays) -> None:
        """Raise the error of the first launch that reported one."""
        error_words = self.read_error_words()
        found = next((report for report in reports if error_words[report.word]), None)
        if found is not None:
            self.clear_error_words()
            self.raise_reported(found, arrays)

    def run_again(self, stop: int, arrays: Arrays) -> None:
        """Run the work before a place again, but for effects, and wait for it."""
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
        """Raise the error that a kernel has reported, as the op's meaning in NumPy explains it.

        Its operands may have been overwritten since, so what comes before the op runs again: no
        state has been written yet, so it gives the same values. What comes after loops and choices
        is looked at at once instead.
        """
        if report.start is not None:
            self.run_again(report.start, arrays)
        op: Any = report.step.op
        values = [self.host_array(layout, arrays) for layout in report.step.args]
        with np.errstate(all="ignore"):
            op.reference(*values)
        raise BackendError(op.explain("the device reported an error that the host does not find"))


def _relocated(work: Work, frame: CallFrame) -> Work:
    """Return work of a called graph in the memory of a call."""
    args = tuple([None if layout is None else frame.place(layout) for layout in work.args])
    return replace(work, args=args)  # type: ignore[arg-type]


def _writes_state(step: Step) -> bool:
    return not step.op.has_effect and any(out.base.kind == STATE for out in step.outs)
