"""The communicator: NCCL moves the arrays of GPUs, MPI does all else.

NCCL hangs or mixes up numbers where ranks do different things. So it gets a collective only when
the ranks have compared it through the communicator ``mpi``, whose time limit holds for that. One
thread waits for it, gives the collective to NCCL, and looks after what is under way: NCCL reports
errors only to who asks, and a collective that never ends has to be aborted.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import settings
from weft.communicators import Collective, DeviceArray, DeviceCommunicator, Request, connected
from weft.communicators.interface import Array
from weft.errors import CommunicationError
from weft.support.backports import override
from weft_nccl import library, transfers
from weft_nccl.connection import Connection

PAUSE = 1e-3
"""Seconds between looks at a collective that is under way; its end needs none."""


class NCCLCommunicator(DeviceCommunicator):
    """The ranks of the communicator ``mpi``, with a GPU each.

    Arrays of the host go through MPI, and so do the few dtypes that NCCL does not reduce. Raises
    BackendError where CuPy or NCCL is missing.

    Attributes
    ----------
    timeout
        The seconds that a collective may take on the device, from ``WEFT_COLLECTIVE_TIMEOUT``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        library.nccl()
        self.timeout = settings.COLLECTIVE_TIMEOUT.value
        self._control = connected("mpi")
        self._connections: dict[int, Connection] = {}
        self._requests: queue.SimpleQueue[_CollectiveRequest] = queue.SimpleQueue()
        self._failure = ""
        threading.Thread(target=self._work, name="weft-nccl", daemon=True).start()

    @property
    def rank(self) -> int:
        """The rank in ``MPI.COMM_WORLD``."""
        return self._control.rank

    @property
    def size(self) -> int:
        """The number of processes that ``mpiexec`` started."""
        return self._control.size

    def start(self, collective: Collective, x: Array, out: Array) -> Request:
        """Start a collective of arrays of the host through MPI."""
        return self._control.start(collective, x, out)

    @override
    def abort(self, reason: str) -> None:
        self._control.abort(reason)

    def has(self, collective: Collective, dtype: np.dtype[Any]) -> bool:
        """Whether NCCL has a collective: all, but for reductions of a few dtypes."""
        return transfers.has(collective, dtype)

    def start_on_device(
        self, collective: Collective, x: DeviceArray, out: DeviceArray, stream: int
    ) -> Request:
        """Have the ranks compare a collective, and then NCCL do it in a stream of its own.

        The first one of a device connects it to those of the other ranks, and waits for them.
        """
        self.check()
        if x.device not in self._connections:
            self._connections[x.device] = Connection(self._control, x.device)
        nothing = np.empty(0, np.uint8)
        agreement = self._control.start(_Agreement.on(collective, x), nothing, nothing)
        request = _CollectiveRequest(
            self._connections[x.device], agreement, collective, x, out, stream
        )
        self._requests.put(request)
        return request

    def check(self) -> None:
        """Raise CommunicationError if a collective has failed; no other can follow it."""
        if self._failure:
            raise CommunicationError(self._failure)

    # On the thread

    def _work(self) -> None:
        under_way: deque[_CollectiveRequest] = deque()
        while True:
            request = self._next(PAUSE if under_way else None)
            try:
                if request is not None:
                    self.check()
                    request.agreement.wait()
                    request.enqueue()
                    under_way.append(request)
                while under_way and under_way[0].has_ended(self.timeout):
                    under_way.popleft()
            except Exception as error:
                self._fail(error)
                under_way.clear()
            if request is not None:
                request.failure = self._failure
                request.enqueued.set()

    def _next(self, timeout: float | None) -> _CollectiveRequest | None:
        try:
            return self._requests.get(timeout=timeout)
        except queue.Empty:
            return None

    def _fail(self, error: Exception) -> None:
        """Keep the first failure, and end what NCCL does: streams would wait for it forever."""
        if self._failure:
            return
        if isinstance(error, CommunicationError):
            self._failure = error.problem
        else:
            self._failure = f"NCCL failed: {type(error).__name__}: {error}"
        for each in self._connections.values():
            with suppress(Exception):  # it may be what has failed
                each.abort()


@dataclass(frozen=True)
class _Agreement(Collective):
    """A collective of nothing, which the ranks compare as what it stands for.

    Attributes
    ----------
    text
        The signature of that.
    """

    text: str = ""

    @classmethod
    def on(cls, collective: Collective, x: DeviceArray) -> _Agreement:
        """Return the agreement on a collective on a device."""
        text = f"{collective.signature(x)} on a GPU"
        carried = {name: getattr(collective, name) for name in ("label", "call", "key")}
        return cls("all_reduce", text=text, **carried)

    def signature(self, x: Array | DeviceArray) -> str:
        """Return the signature of what it stands for."""
        return self.text

    def compared(self, x: Array | DeviceArray) -> str:
        """Return the text that ranks compare."""
        return f"{self.text} {self.label} {self.key}"


class _CollectiveRequest(Request):
    """A collective that waits for the other ranks, is under way, or has ended."""

    def __init__(
        self,
        connection: Connection,
        agreement: Request,
        collective: Collective,
        x: DeviceArray,
        out: DeviceArray,
        stream: int,
    ) -> None:
        self.connection = connection
        self.agreement = agreement
        self.collective = collective
        self.x, self.out, self.stream = x, out, stream
        self.failure = ""
        self.enqueued = threading.Event()
        self._cuda = connection.cuda
        self._ready, self._end = (self._cuda.Event(disable_timing=True) for _ in range(2))
        self._began: float | None = None
        self._cuda.runtime.eventRecord(self._ready.ptr, stream)

    def wait(self) -> None:
        """Have the stream wait for the end, once NCCL has the collective."""
        self.enqueued.wait()
        if self.failure:
            raise CommunicationError(self.failure)
        self._cuda.runtime.streamWaitEvent(self.stream, self._end.ptr)

    def enqueue(self) -> None:
        """Give the collective to NCCL, after the work that the stream had before it."""
        connection = self.connection
        with connection.device:
            self._cuda.runtime.streamWaitEvent(connection.stream.ptr, self._ready.ptr)
            transfers.enqueue(connection, self.collective, self.x, self.out)
            self._end.record(connection.stream)

    def has_ended(self, timeout: float) -> bool:
        """Whether it has ended on the device; it is the first that is under way.

        Raises CommunicationError if it takes longer than a time limit from the moment that its
        array was ready, and CuPy's NcclError for what NCCL reports.
        """
        if self._end.done:
            return True
        self.connection.ranks.check_async_error()
        now = time.monotonic()
        if self._began is None and self._ready.done:
            self._began = now
        if self._began is not None and now > self._began + timeout:
            raise CommunicationError(
                f"rank {self.connection.rank} gave up after {timeout:g} s "
                f"(WEFT_COLLECTIVE_TIMEOUT): {self.collective.described(self.x)} did not end on "
                "the GPU: another rank's is behind, or what connects them has failed"
            )
        return False
