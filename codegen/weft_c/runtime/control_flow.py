"""Host work between segments: calls of Python functions, loops and conditionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from weft.ir.description import TensorDescription
from weft.plan.plan import INPUT, RESULT
from weft.report.recorder import RESUMED
from weft.support.interrupts import interruptible, raise_pending
from weft_c.runtime.queue_limit import QueueLimit
from weft_c.runtime.storage import Arrays
from weft_c.source.functions import HostCall

if TYPE_CHECKING:
    from weft_c.runtime.kernel_group import GPUKernelGroup
    from weft_c.runtime.segments import Segment


@dataclass(frozen=True, eq=False)
class Repeat:
    """Segments that run a fixed number of times."""

    count: int
    segments: Sequence[Segment]


@dataclass(frozen=True, eq=False)
class While:
    """Segments that compute a bool, and segments that run while it is true."""

    test: Sequence[Segment]
    flag: TensorDescription
    segments: Sequence[Segment]


@dataclass(frozen=True, eq=False)
class Conditional:
    """Segments that run if a bool is true, and segments that run otherwise."""

    flag: TensorDescription
    then: Sequence[Segment]
    otherwise: Sequence[Segment]


Control = Repeat | While | Conditional


class Bound(Protocol):
    """Host work with its arguments bound."""

    def run(self, arrays: Arrays) -> None:
        """Do the work in a call with some arrays."""


class HostWork:
    """A call of a Python function, with the arrays that are the same in every call."""

    def __init__(self, group: GPUKernelGroup, call: HostCall) -> None:
        self.group = group
        self.call = call
        is_shared = group.processor.shares_host
        self._fixed = [
            group.host_array(layout, ())
            if is_shared and layout.base.kind not in (INPUT, RESULT)
            else None
            for layout in call.args
        ]

    def run(self, arrays: Arrays) -> None:
        """Call the function, and copy the arrays that it wrote to the device."""
        group, call = self.group, self.call
        values = [
            self._array(index, arrays) if known is None else known
            for index, known in enumerate(self._fixed)
        ]
        with np.errstate(all="ignore"):
            if call.op.has_effect:
                interruptible(call.work, *values)
            else:
                call.work(*values)
        for index in call.written:
            group.write_back(call.args[index], values[index])

    def _array(self, index: int, arrays: Arrays) -> np.ndarray[Any, Any]:
        """Return an argument; one that is only written is not copied from the device."""
        layout, group = self.call.args[index], self.group
        if index in self.call.written and not group.processor.shares_host:
            return np.empty(layout.shape, layout.dtype)
        return group.host_array(layout, arrays)


class RecordedWork:
    """Host work that a recorder is told of."""

    def __init__(self, work: Bound, row: int, mark: Callable[[int], None]) -> None:
        self._work = work
        self._row = row
        self._mark = mark

    def run(self, arrays: Arrays) -> None:
        """Do the work between two marks."""
        self._mark(RESUMED)
        self._work.run(arrays)
        self._mark(self._row)


class BoundRepeat:
    """A loop with a fixed number of iterations, bound."""

    def __init__(self, group: GPUKernelGroup, control: Repeat) -> None:
        self.group = group
        self.count = control.count
        self.inside = group.bind_segments(control.segments)
        self.limit = QueueLimit(group)

    def run(self, arrays: Arrays) -> None:
        """Run all iterations."""
        self.limit.begin()
        for _ in range(self.count):
            raise_pending()
            self.group.run_segments(self.inside, arrays)
            self.limit.iteration_queued()


class BoundWhile:
    """A loop with a condition, bound."""

    def __init__(self, group: GPUKernelGroup, control: While) -> None:
        self.group = group
        self.flag = control.flag
        self.test = group.bind_segments(control.test)
        self.inside = group.bind_segments(control.segments)

    def run(self, arrays: Arrays) -> None:
        """Run the body while the condition is true."""
        group = self.group
        group.run_segments(self.test, arrays)
        while group.truth(self.flag, arrays):
            raise_pending()
            group.run_segments(self.inside, arrays)
            group.run_segments(self.test, arrays)


class BoundChoice:
    """A conditional, bound."""

    def __init__(self, group: GPUKernelGroup, control: Conditional) -> None:
        self.group = group
        self.flag = control.flag
        self.then = group.bind_segments(control.then)
        self.otherwise = group.bind_segments(control.otherwise)

    def run(self, arrays: Arrays) -> None:
        """Run the branch that the bool selects."""
        is_true = self.group.truth(self.flag, arrays)
        self.group.run_segments(self.then if is_true else self.otherwise, arrays)


def bind_host_work(group: GPUKernelGroup, work: HostCall | Control) -> Bound:
    """Bind the host work at the end of a segment."""
    match work:
        case Repeat():
            return BoundRepeat(group, work)
        case While():
            return BoundWhile(group, work)
        case Conditional():
            return BoundChoice(group, work)
        case _ if group.recorder is not None:
            return RecordedWork(group.bind_host_call(work), group.row_of(work), group.recorder.mark)
        case _:
            return group.bind_host_call(work)
