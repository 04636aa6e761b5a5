"""BoundSegment: a segment of a program with its arguments bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_c.runtime.control_flow import bind_host_work

if TYPE_CHECKING:
    from weft_c.runtime.kernel_group import GPUKernelGroup
    from weft_c.runtime.segments import Launch, Segment


class BoundSegment:
    """A segment of a program with the arguments of its launches bound.

    Attributes
    ----------
    launches
        Each launch in order, with the function that starts it.
    reports
        The launches that may report an error.
    host
        The host work at the end, bound; None for none.
    is_last
        Whether results are returned to the caller after it.
    waits
        Whether to wait for the device before reports are checked and host work runs.
    """

    def __init__(self, group: GPUKernelGroup, segment: Segment, is_last: bool, waits: bool) -> None:
        self.group = group
        self.launches: list[tuple[Launch, Callable[[], Any]]] = []
        for launch, word in segment.kernels:
            group.starting = launch
            start = group.bind_launch(launch, word)
            if group.recorder is not None:
                start = group.recording(launch, start)
            self.launches.append((launch, start))
        group.starting = None
        self.reports = segment.reports
        self.host = None if segment.host is None else bind_host_work(group, segment.host)
        self.is_last = is_last
        self.waits = waits

    def launch(self) -> None:
        """Start all launches."""
        group = self.group
        for group.starting, start in self.launches:
            start()
        group.starting = None
