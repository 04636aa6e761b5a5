"""Collectives of arrays that stay in the memory of the device, for communicators that take them.

The stream of the transformer waits for a collective, and the host goes on to start kernels. Work
that needs no result runs between the start of a collective and the wait for it. An interrupt of a
wait for other ranks is raised when they have come: they read memory that later kernels write.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.communicators import (
    Collective,
    DeviceArray,
    DeviceCommunicator,
    Request,
    connected,
    current_call,
)
from weft.communicators.interface import result_shape
from weft.errors import CommunicationError
from weft.ranks.collectives import CollectiveOp, StartCollectiveOp, WaitCollectiveOp
from weft.support.interrupts import interruptible
from weft_c.runtime.control_flow import Bound
from weft_c.runtime.storage import Arrays
from weft_c.source.functions import HostCall
from weft_cupy.device import Device, Memory, Queue

if TYPE_CHECKING:
    from weft_cupy.executor import CUDAKernelGroup


class Exchanges:
    """The collectives that were started and not waited for, and memory to receive into."""

    def __init__(self, device: Device, queue: Queue) -> None:
        self.device = device
        self.queue = queue
        self._numbers = itertools.count()
        self._started: dict[int, tuple[Request, Memory]] = {}
        self._numbers_at: dict[int, int] = {}
        self._spare: dict[int, list[Memory]] = {}

    def start(
        self, ranks: DeviceCommunicator, collective: Collective, x: DeviceArray, place: int
    ) -> None:
        """Start a collective, and write its number to an address of the device."""
        shape = result_shape(collective, x.shape, ranks.size)
        nbytes = math.prod(shape) * x.dtype.itemsize
        spare = self._spare.get(nbytes)
        memory = spare.pop() if spare else self.device.memory(nbytes, "a collective's result")
        out = DeviceArray(memory.address, shape, x.dtype, x.device)
        request = interruptible(ranks.start_on_device, collective, x, out, self.queue.stream.ptr)
        number = next(self._numbers)
        self._started[number] = request, memory
        current_call().started(partial(self._abandon, number))
        self._numbers_at[place] = number
        self.queue.upload(place, np.array([number], np.int64).view(np.uint8))

    def number_at(self, place: int) -> int:
        """Return the number that the last start has written to an address."""
        return self._numbers_at[place]

    def wait(self, number: int, out: DeviceArray) -> None:
        """Copy what a collective gave when it has ended; the host does not wait.

        Raises CommunicationError for a number that was not started, or was waited for before.
        """
        found = self._started.pop(number, None)
        if found is None:
            raise CommunicationError(f"no collective {number} was started and not waited for yet")
        request, memory = found
        interruptible(request.wait)
        if out.nbytes:
            self.queue.copy(out.address, memory.address, out.nbytes)
        self._spare.setdefault(out.nbytes, []).append(memory)

    def _abandon(self, number: int) -> None:
        """Forget a collective that nobody waits for, unless somebody has."""
        found = self._started.pop(number, None)
        if found is not None:
            request, memory = found
            request.abandon()
            self._spare.setdefault(memory.nbytes, []).append(memory)

    def release(self) -> None:
        """Release all memory."""
        held = [memory for spare in self._spare.values() for memory in spare]
        for memory in (*held, *(memory for _, memory in self._started.values())):
            memory.release()
        self._spare.clear()
        self._started.clear()


class DeviceCollective:
    """A collective from one place of the device's memory to another."""

    def __init__(self, group: CUDAKernelGroup, call: HostCall, ranks: DeviceCommunicator) -> None:
        self._op: Any = call.op
        self._ranks = ranks
        self._arrays = [*map(group.device_array, call.args)]
        self._stream = group.queue.stream.ptr

    def run(self, arrays: Arrays) -> None:
        """Start it, and have the stream wait for its end."""
        x, out = self._arrays
        start = self._ranks.start_on_device
        request = interruptible(start, self._op.collective, x, out, self._stream)
        try:
            interruptible(request.wait)
        except BaseException:
            request.abandon()
            raise


class DeviceStart:
    """The start of a collective; its value is the number of that, as on the host."""

    def __init__(self, group: CUDAKernelGroup, call: HostCall, ranks: DeviceCommunicator) -> None:
        self._op: Any = call.op
        self._x, number = map(group.device_array, call.args)
        self._start = partial(group.transformer.exchanges.start, ranks, place=number.address)

    def run(self, arrays: Arrays) -> None:
        """Start it after all work so far."""
        self._start(self._op.collective, self._x)


class DeviceWait:
    """The wait for a collective."""

    def __init__(self, group: CUDAKernelGroup, call: HostCall, ranks: DeviceCommunicator) -> None:
        self._group = group
        self._number, _, out = call.args
        self._is_known = isinstance(call.op.args[0], StartCollectiveOp)
        self._place = group.device_array(self._number).address
        self._out = group.device_array(out)
        self._exchanges = group.transformer.exchanges

    def run(self, arrays: Arrays) -> None:
        """Have the stream wait and copy what it received.

        The host knows a number that comes straight from a start. Another one, which comes out of a
        loop or into a called graph, it reads from the device.
        """
        if self._is_known:
            number = self._exchanges.number_at(self._place)
        else:
            number = int(self._group.host_array(self._number, arrays))
        self._exchanges.wait(number, self._out)


def bound_on_device(group: CUDAKernelGroup, call: HostCall) -> Bound | None:
    """Bind a collective that its communicator takes on the device; None for any other call."""
    op: Any = call.op
    kind = next((each for each in _WORK if isinstance(op, each)), None)
    if kind is None:
        return None
    ranks = connected(op.communicator)
    exchanged = call.args[-2]
    if not isinstance(ranks, DeviceCommunicator) or not ranks.has(op.collective, exchanged.dtype):
        return None
    group.communicators.add(ranks)
    return _WORK[kind](group, call, ranks)


_WORK: dict[type[Any], Callable[[CUDAKernelGroup, HostCall, DeviceCommunicator], Bound]] = {
    CollectiveOp: DeviceCollective,
    StartCollectiveOp: DeviceStart,
    WaitCollectiveOp: DeviceWait,
}
