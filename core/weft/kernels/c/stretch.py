"""Stretch: a segment of a program whose arguments are bound, and the host's work at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.kernels.c.function import HostCall
from weft.kernels.c.host import Arrays
from weft.plan import INPUT, RESULT

if TYPE_CHECKING:
    from weft.kernels.c.group import GPUKernelGroup, Segment


class Stretch:
    """A segment, bound.

    Attributes
    ----------
    launches
        What starts each launch, in order.
    reports
        The launches that may report an error.
    host
        What the host does then.
    is_last
        Whether results are to be handed over after it.
    waits
        Whether the device is waited for before anything is looked at.
    """

    def __init__(self, group: GPUKernelGroup, segment: Segment, is_last: bool, waits: bool) -> None:
        self.launches = [group.bound(launch, word) for launch, word in segment.kernels]
        self.reports = segment.reports
        self.host = None if segment.host is None else HostWork(group, segment.host)
        self.is_last = is_last
        self.waits = waits

    def launch(self) -> None:
        """Start all launches."""
        for launch in self.launches:
            launch()


class HostWork:
    """Work of the host, with the arrays that are the same in every call."""

    def __init__(self, group: GPUKernelGroup, call: HostCall) -> None:
        self.group = group
        self.call = call
        is_shared = group.processor.shares_host
        self._fixed = [
            group.host_array(lies, ())
            if is_shared and lies.base.kind not in (INPUT, RESULT)
            else None
            for lies in call.args
        ]

    def run(self, arrays: Arrays) -> None:
        """Call the function, and write back what it wrote."""
        group, call = self.group, self.call
        values = [
            group.host_array(lies, arrays) if known is None else known
            for lies, known in zip(call.args, self._fixed, strict=True)
        ]
        with np.errstate(all="ignore"):
            call.work(*values)
        for place in call.written:
            group.write_back(call.args[place], values[place])
