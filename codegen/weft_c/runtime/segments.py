"""Segments of a program: launches and host work in order, cut where the host takes part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from weft.errors import BackendError
from weft.ir.graph import Graph
from weft.ir.op import Op
from weft.plan import sub_plans
from weft.plan.plan import STATE, Plan, Step
from weft.plan.sub_plans import CallFrame, Part, expand_step
from weft_c.fused import lower
from weft_c.lowering import rules
from weft_c.processor import Processor
from weft_c.runtime.control_flow import Conditional, Control, Repeat, While
from weft_c.source.functions import GPUKernel, HostCall, LibraryCall, Source
from weft_c.source.launch_merging import LaunchMerger, is_small

Launch = GPUKernel | LibraryCall
Work = Launch | HostCall

MAX_DEPTH = 64
"""The maximal nesting of loops and conditionals: each level takes frames of Python's stack."""


@dataclass(frozen=True, eq=False)
class Report:
    """A launch that may report an error, and the error word reserved for it.

    Attributes
    ----------
    word
        The index of its error word.
    step
        The step that it belongs to.
    start
        The index in the group's work where that step begins, if all work before it can run again;
        else None, and the segment ends with that step.
    """

    word: int
    step: Step
    start: int | None


@dataclass
class Segment:
    """Launches without synchronization between them, followed by host work.

    Attributes
    ----------
    kernels
        The launches in order, each with the index of its error word, or None.
    reports
        The reports to check after the launches have ended.
    host
        The work of the host after the launches: a call, or a loop or conditional of other segments.
    """

    kernels: list[tuple[Launch, int | None]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    host: HostCall | Control | None = None


class SegmentBuilder:
    """Lowers steps, and appends their launches and host work to segments.

    A segment ends where the host has work, and before a state is written while kernels that ran may
    have reported an error: no call that raises has written a state. Where only one of them may, and
    the device is not serial, the kernels that write a state test its error word themselves.

    A graph that a program calls is lowered once, and launched in the memory of every call. Loops
    and conditionals hold segments of their own.

    Attributes
    ----------
    source
        The functions of the kernels.
    work
        Launches and host work in order; the work inside a loop or a conditional occurs once.
    reports
        The launches that may report an error.
    segments
        The segments that are being filled; the last one may be empty. While a loop or a
        conditional is built, the segments inside it.
    has_control
        Whether there are loops or conditionals so far.
    can_run_again
        Whether work can be reached by running everything before it again: there are no loops,
        conditionals or collectives so far.
    launch_counts
        How many launches compute some ops once.
    foreign_ops
        The ops whose rules are not weft's own.
    """

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.source = self.new_source()
        self.work: list[Work] = []
        self.reports: list[Report] = []
        self.segments = [Segment()]
        self.has_control = False
        self.can_run_again = True
        self.launch_counts: dict[tuple[Op, ...], int] = {}
        self.foreign_ops: list[Op] = []
        self._depth = 0
        self._small = LaunchMerger()
        self._callees: dict[Graph, list[tuple[Step, list[Work]]]] = {}

    def add_kernel(self, step: Step) -> None:
        """Lower a step and append its launches; raises KeyError for an op without a rule.

        Small launches are held back for merging until `launch_small`.
        """
        if step.op.graphs:
            for part in expand_step(step):
                self._add_part(part)
        else:
            self._add_lowered(step, self.lower(step))

    def new_source(self) -> Source:
        """Return the empty text of a program; that of another language than C overrides it."""
        processor = self.processor
        return Source(processor.dialect, processor.cases, processor.has_fp64)

    def lower(self, step: Step) -> list[Work]:
        """Return the launches and host calls of a step, by the rules of the language."""
        contained = step.op.contained or (step.op,)
        self.foreign_ops.extend(op for op in contained if not rules.is_own(op))
        return lower(step, self.processor)

    def _add_lowered(self, step: Step, lowered: Sequence[Work]) -> None:
        may_report = any(None in work.args for work in lowered)
        ends = bool(self.segments[-1].reports) and _writes_state(step)
        if ends or may_report:
            self.launch_small()
        if ends and self.can_guard(lowered):
            lowered = [self.guarded(work) for work in lowered if isinstance(work, GPUKernel)]
        elif ends:
            self.segments.append(Segment())
        start = len(self.work) if self.can_run_again else None
        counts: Counter[tuple[Op, ...]] = Counter()
        merges = self.processor.is_serial and self.processor.merges_launches
        for work in lowered:
            if merges and isinstance(work, GPUKernel) and is_small(work):
                if not self._small.takes(work):
                    self.launch_small()
                self._small.add(work)
                self.source.locate(work)
                continue
            self.launch_small()
            if isinstance(work, GPUKernel):
                self.source.add(work)
            self.add_work(work, step, start)
            counts[ops_of(work)] += 1
        self.launch_counts.update(counts)
        if may_report and start is None:
            self.segments.append(Segment())

    def can_guard(self, lowered: Iterable[Work]) -> bool:
        """Whether launches can test an error word themselves.

        On a serial device a synchronization costs less than launches that are not merged.
        """
        are_kernels = all(isinstance(work, GPUKernel) for work in lowered)
        return are_kernels and len(self.segments[-1].reports) == 1 and not self.processor.is_serial

    def guarded(self, launch: GPUKernel) -> GPUKernel:
        """Return a launch that tests an error word; that of another language overrides it."""
        return launch.guarded()

    def launch_small(self) -> None:
        """Append the small launches that were held back, merged into one kernel."""
        merged = self._small.merged()
        if merged is not None:
            self.source.add(merged)
            self.add_work(merged, Step(merged.ops[0], (), ()), len(self.work))

    def add_work(self, work: Work, step: Step, start: int | None) -> None:
        """Append a launch or host call of a step; `start` is as in `Report`."""
        self.work.append(work)
        segment = self.segments[-1]
        if isinstance(work, HostCall):
            if work.op.has_effect and not work.op.hands_on:
                self.can_run_again = False
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

    # Called graphs

    def _add_part(self, part: Part) -> None:
        """Append one part of a call, loop or conditional step."""
        match part:
            case sub_plans.CallPart(plan, frame):
                self.launch_small()  # so that merging inside is the same in every call
                for step, lowered in self._callee_steps(plan):
                    if step.op.graphs:
                        self.add_kernel(frame.step(step))
                    else:
                        self._add_lowered(frame.step(step), [_relocated(w, frame) for w in lowered])
                self.launch_small()
            case sub_plans.CopyPart(step):
                self.add_kernel(step)
            case sub_plans.LoopPart(count, parts):
                self.add_control(Repeat(count, self._inside(parts)))
            case sub_plans.WhilePart(test, flag, parts):
                self.add_control(While(self._inside([test]), flag, self._inside(parts)))
            case sub_plans.CondPart(flag, then, otherwise):
                self.add_control(Conditional(flag, self._inside(then), self._inside(otherwise)))

    def _callee_steps(self, plan: Plan) -> list[tuple[Step, list[Work]]]:
        """Return the steps of a called graph with their launches, lowered once."""
        steps = self._callees.get(plan.graph)
        if steps is None:
            steps = self._callees[plan.graph] = [
                (step, [] if step.op.graphs else self.lower(step)) for step in plan.steps
            ]
        return steps

    def _inside(self, parts: Iterable[Part]) -> list[Segment]:
        """Return the segments that parts are lowered to."""
        with self.inside() as segments:
            for part in parts:
                self._add_part(part)
            self.launch_small()
        return segments

    @contextmanager
    def inside(self) -> Iterator[list[Segment]]:
        """Collect the work that is added in the ``with`` block in segments of its own.

        These are the segments inside a loop or a conditional. Raises BackendError for a nesting
        deeper than `MAX_DEPTH`.
        """
        if self._depth == MAX_DEPTH:
            problem = f"loops and conditionals are nested more than {MAX_DEPTH} deep"
            limit = "the limit of backends that are programmed in C"
            raise BackendError(f"{problem}, {limit}: nest fewer")
        self._depth += 1
        self.launch_small()
        self.has_control = True
        self.can_run_again = False
        outer, self.segments = self.segments, [Segment()]
        try:
            yield self.segments
        finally:
            self.segments = outer
            self._depth -= 1

    def add_control(self, control: Control) -> None:
        """Append a loop or a conditional, whose segments were collected by `inside`."""
        self.segments[-1].host = control
        self.segments.append(Segment())


def ops_of(work: Work) -> tuple[Op, ...]:
    """Return the ops that a launch or a host call computes."""
    return work.ops if isinstance(work, GPUKernel) else (work.op,)


def _relocated(work: Work, frame: CallFrame) -> Work:
    """Return work of a called graph with its operands placed in the memory of a call."""
    args = tuple([None if layout is None else frame.place(layout) for layout in work.args])
    return replace(work, args=args)  # type: ignore[arg-type]


def _writes_state(step: Step) -> bool:
    return not step.op.hands_on and any(out.base.kind == STATE for out in step.outs)
