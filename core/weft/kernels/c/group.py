"""GPUKernelGroup: what a program runs on a device, in order, and the errors that kernels report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from weft.description import TensorDescription
from weft.errors import BackendError
from weft.kernels.c.function import GPUKernel, HostCall, LibraryCall, Source
from weft.kernels.c.lowering import lower
from weft.kernels.c.merging import SmallLaunches, is_small
from weft.kernels.c.processor import Processor
from weft.plan import STATE, Step

Launch = GPUKernel | LibraryCall
Work = Launch | HostCall
Arrays = Sequence[np.ndarray[Any, Any]]


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
        The place in the work of the group where that step begins.
    """

    word: int
    step: Step
    start: int


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
        What the host does then.
    """

    kernels: list[tuple[Launch, int | None]] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    host: HostCall | None = None


class GPUKernelGroup(ABC):
    """The executor of a program: launches and work of the host, called with the caller's arrays.

    A segment ends where the host has work, and before a state is written while kernels that ran may
    have reported an error: no call that raises has written a state.

    Attributes
    ----------
    work
        What runs, in order.
    source
        The functions of the kernels.
    reports
        The launches that may report an error.
    segments
        What runs, cut where the host waits; nothing may be in the last one.
    """

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.source = Source(processor.dialect)
        self.work: list[Work] = []
        self.reports: list[Report] = []
        self.segments = [Segment()]
        self._small = SmallLaunches()

    def add_kernel(self, step: Step) -> None:
        """Add what computes a step; raises KeyError for an op without a rule.

        Small launches wait for `launch_small`, which comes before whatever is not small.
        """
        lowered = lower(step, self.processor)
        ends = bool(self.segments[-1].reports) and _writes_state(step)
        if ends or any(None in work.args for work in lowered):
            self.launch_small()
        if ends:
            self.segments.append(Segment())
        start = len(self.work)
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

    def launch_small(self) -> None:
        """Add the launches that have waited for more to become one kernel with."""
        merged = self._small.merged()
        if merged is not None:
            self.source.add(merged)
            self.add_work(merged, Step(merged.ops[0], (), ()), len(self.work))

    def add_work(self, work: Work, step: Step, start: int) -> None:
        """Add a launch, or work of the host, that belongs to a step which begins at a place."""
        self.work.append(work)
        segment = self.segments[-1]
        if isinstance(work, HostCall):
            segment.host = work
            self.segments.append(Segment())
            return
        word = None
        if None in work.args:
            word = len(self.reports)
            self.reports.append(Report(word, step, start))
            segment.reports.append(self.reports[-1])
        segment.kernels.append((work, word))

    @abstractmethod
    def __call__(self, *arrays: np.ndarray[Any, Any]) -> None:
        """Compute: takes the input arrays, then the arrays to write results to."""

    @abstractmethod
    def run_again(self, stop: int, arrays: Arrays) -> None:
        """Run the work before a place again, but for effects, and wait for it."""

    @abstractmethod
    def host_array(self, lies: TensorDescription, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return the elements at a place, in the host's memory."""

    def raise_reported(self, report: Report, arrays: Arrays) -> NoReturn:
        """Raise the error that a kernel has reported, as the op's meaning in NumPy explains it.

        Its operands may have been overwritten since, so what comes before the op runs again: no
        state has been written yet, so it gives the same values.
        """
        self.run_again(report.start, arrays)
        op: Any = report.step.op
        values = [self.host_array(lies, arrays) for lies in report.step.args]
        with np.errstate(all="ignore"):
            op.reference(*values)
        raise BackendError(op.explain("the device reported an error that the host does not find"))


def _writes_state(step: Step) -> bool:
    return not step.op.has_effect and any(out.base.kind == STATE for out in step.outs)
