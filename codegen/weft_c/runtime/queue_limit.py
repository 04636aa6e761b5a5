"""QueueLimit: bounds the time that the launches of a loop wait in the device's queue."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft_c.runtime.kernel_group import GPUKernelGroup

BATCH_SECONDS = 0.1
"""The seconds that a batch of iterations takes, unless a single one takes longer."""


class QueueLimit:
    """Bounds the time that the launches of a loop wait in the queue, so that an interrupt ends it.

    The host queues iterations in batches, and waits for the batch before each: the device always
    has work, and the host is at most two batches ahead. Batches grow from one iteration, at most
    to twice the size each time. Later runs of the loop begin with the size that was found.

    Attributes
    ----------
    batch
        The iterations of a batch.
    """

    def __init__(self, group: GPUKernelGroup) -> None:
        self.batch = 1
        self._group = group
        self._queued = 0
        self._before: tuple[int, Callable[[], object]] | None = None
        self._ended: float | None = None

    def begin(self) -> None:
        """Begin a run of the loop."""
        self._queued, self._before, self._ended = 0, None, None

    def iteration_queued(self) -> None:
        """Count an iteration; at the end of a batch, wait for the one before."""
        self._queued += 1
        if self._queued < self.batch:
            return
        before, self._before = self._before, (self._queued, self._group.marker())
        self._queued = 0
        if before is None:
            return
        size, wait = before
        wait()
        began, self._ended = self._ended, perf_counter()
        if began is not None:
            fitting = size * BATCH_SECONDS / max(self._ended - began, 1e-9)
            self.batch = max(min(int(fitting), 2 * self.batch), 1)
