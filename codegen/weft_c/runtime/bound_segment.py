"""Stretch: a segment of a program whose arguments are bound, and the host's work at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft_c.runtime.control_flow import bind_host_work

if TYPE_CHECKING:
    from weft_c.runtime.kernel_group import GPUKernelGroup, Launch, Segment


class BoundSegment:
    """A segment, bound.

    Attributes
    ----------
    launches
        Each launch, in order, and what starts it.
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
        self.group = group
        self.launches: list[tuple[Launch, Callable[[], Any]]] = []
        for launch, word in segment.kernels:
            group.starting = launch
            self.launches.append((launch, group.bind_launch(launch, word)))
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
