"""The communicator: one thread makes all calls of MPI, in the order in which they are asked for.

So a collective advances while the program computes, and waiting has an end: the thread polls up to
the time limit, with pauses while the program computes. Before each collective the ranks compare
what they are about to do. When the limit has passed, the ranks that wait tell each other for what,
and all of them fail. A rank that ends waits for the others in a last collective, so that they
notice if it ends too early.
"""

from __future__ import annotations

import atexit
import math
import os
import queue
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI

from weft import settings
from weft.communicators.interface import (
    Array,
    Collective,
    Communicator,
    Request,
    mismatch,
)
from weft.errors import BackendError, CommunicationError
from weft.support.backports import override
from weft_mpi.transfers import finish, transfer

SPINNING = 10e-3
"""Seconds in which MPI is polled without pauses while the program waits: a collective has several
rounds of messages, and with pauses each rank would let the other wait in every one of them."""
LOOKING = 50e-6
"""The same at the start of a collective: the program may be about to wait."""
PAUSE = 100e-6
"""Seconds between looks while the program computes, which needs the core."""
LISTENING = 0.05
"""Seconds between looks for a rank that has given up."""
GRACE = 1.0
"""Seconds for the other ranks to say what they wait for, or to show the error they share."""
FORWARDING = 0.5
"""Seconds for mpiexec to read what a rank has written: once told to abort, it may drop the rest."""
TEXT = 600
"""The bytes that a rank sends of what it does."""
DIGEST = 8
"""The bytes of a digest of that, which ranks compare."""
CARRIED = 248
"""The bytes of an array that goes along with the digest, which saves a message."""

_give_way: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))
"""Lets another thread have the processor; on Windows a sleep of no length does."""


class MPICommunicator(Communicator):
    """The ranks of ``MPI.COMM_WORLD``.

    Attributes
    ----------
    timeout
        The seconds that a collective may take, from ``WEFT_COLLECTIVE_TIMEOUT``.
    spins_until
        The time until which the thread makes no pauses, since the program waits for it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
            raise BackendError(
                "MPI was initialized for one thread only: import weft before what initializes "
                "MPI, or leave mpi4py.rc.thread_level at 'multiple'"
            )
        self.timeout = settings.COLLECTIVE_TIMEOUT.value
        self._world = MPI.COMM_WORLD.Dup()
        self._alarm = MPI.COMM_WORLD.Dup()
        self._rank, self._size = self._world.rank, self._world.size
        self._requests: queue.SimpleQueue[_CollectiveRequest] = queue.SimpleQueue()
        self._failure = ""
        self.spins_until = 0.0
        self._process = os.getpid()
        threading.Thread(target=self._work, name="weft-mpi", daemon=True).start()
        sys.excepthook = _AbortingHook(self, sys.excepthook)
        atexit.register(self._leave)

    @property
    def rank(self) -> int:
        """The rank in ``MPI.COMM_WORLD``."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of processes that ``mpiexec`` started."""
        return self._size

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of a rank: it is none, and has no thread for MPI."""
        return os.getpid() != self._process

    def start(self, collective: Collective, x: Array, out: Array) -> Request:
        """Hand a collective to the thread that runs all of them.

        Raises CommunicationError after a failed one, and in a forked process.
        """
        if self.is_forked:
            raise CommunicationError(
                f"this process was forked from rank {self._rank} and is not a rank itself: "
                "exchange tensors in the process that mpiexec started"
            )
        if self._failure:
            raise CommunicationError(f"no collective can follow one that failed: {self._failure}")
        request = _CollectiveRequest(self, collective, x, out, self.timeout)
        self._requests.put(request)
        return request

    @override
    def abort(self, reason: str) -> None:
        atexit.unregister(self._leave)  # the process may live on for a while
        print(f"rank {self._rank}: {reason}", file=sys.stderr, flush=True)
        time.sleep(FORWARDING)
        MPI.COMM_WORLD.Abort(1)

    def _leave(self) -> None:
        """Wait until all ranks end, and abort where one has failed: MPI would wait forever."""
        if self.is_forked:
            return
        if self._size > 1:
            last = Collective("all_reduce", label=_End.label)
            end = _End(self, last, np.zeros(1), np.zeros(1), math.inf)
            self._requests.put(end)
            end.ended.wait()
        if self._failure:
            sys.stdout.flush()
            time.sleep(GRACE)
            self.abort(self._failure.partition("\n")[0])

    # On the thread

    def _work(self) -> None:
        np.seterr(all="ignore")  # reductions overflow as they do in programs
        while True:
            request = self._requests.get()
            if not self._failure:
                try:
                    self._run(request)
                except CommunicationError as error:
                    self._failure = error.problem
                except Exception as error:
                    self._failure = f"{request.label}: {type(error).__name__}: {error}"
            request.failure = self._failure
            request.ended.set()

    def _run(self, request: _CollectiveRequest) -> None:
        until = time.monotonic() + request.timeout
        heads = self._compared(request, until)
        x, out = request.arrays()
        if x.nbytes <= CARRIED:
            finish(request.collective, heads[:, DIGEST : DIGEST + x.nbytes], self._rank, x, out)
            return
        for messages in transfer(self._world, request.collective, x, out):
            self._wait(messages, request, until)

    def _compared(self, request: _CollectiveRequest, until: float) -> Array:
        """Return the heads of all ranks; raises the same error on all of them if these differ.

        A head is the digest of what a rank is about to do, and its array, if that is small.
        """
        own, heads = request.head(), np.empty((self._size, DIGEST + CARRIED), np.uint8)
        self._wait([self._world.Iallgather([own, MPI.BYTE], heads)], request, until)
        if heads[:, :DIGEST].tobytes() != own[:DIGEST] * self._size:
            label = request.label
            rows = np.empty((self._size, TEXT), np.uint8)
            self._wait([self._world.Iallgather(_encoded(label), rows)], request, until)
            raise mismatch(self, label, {rank: _decoded(row) for rank, row in enumerate(rows)})
        return heads

    def _wait(self, messages: list[MPI.Request], request: _CollectiveRequest, until: float) -> None:
        start = heard = time.monotonic()
        while not MPI.Request.Testall(messages):
            now = time.monotonic()
            if now < max(self.spins_until, start + LOOKING):
                _give_way()
                continue
            if now > until:
                raise self._given_up(request, f"after {self.timeout:g} s")
            if now - heard > LISTENING:
                heard = now
                if self._alarm.Iprobe():
                    raise self._given_up(request, "because another rank gave up")
            time.sleep(PAUSE)

    def _given_up(self, request: _CollectiveRequest, when: str) -> CommunicationError:
        """Tell the other ranks what this one waits for, and return the error with what they say."""
        others = [rank for rank in range(self._size) if rank != self._rank]
        own = _encoded(request.label)
        sent = [self._alarm.Isend(own, rank) for rank in others]
        said: dict[int, str] = {self._rank: f"waits for {request.label}"}
        until = time.monotonic() + GRACE
        status = MPI.Status()
        while len(said) < self._size and time.monotonic() < until:
            if self._alarm.Iprobe(status=status):
                text = np.empty(TEXT, np.uint8)
                self._alarm.Recv(text, status.source)
                said[status.source] = f"waits for {_decoded(text)}"
            else:
                time.sleep(PAUSE)
        MPI.Request.Testall(sent)
        lines = [
            f"  rank {rank}: {said.get(rank, 'waits for none: it computes, has ended, or hangs')}"
            for rank in range(self._size)
        ]
        return CommunicationError(
            f"rank {self._rank} gave up {when} (WEFT_COLLECTIVE_TIMEOUT): all ranks have to run "
            "the same collectives\n" + "\n".join(lines)
        )


class _CollectiveRequest(Request):
    """A collective that waits for its turn on the thread, runs there, or has ended."""

    def __init__(
        self,
        communicator: MPICommunicator,
        collective: Collective,
        x: Array,
        out: Array,
        timeout: float,
    ) -> None:
        self.communicator = communicator
        self.collective = collective
        self.x = x
        self.out = out
        self.timeout = timeout
        self.compared = collective.compared(x)
        self.failure = ""
        self.ended = threading.Event()
        self._is_free = threading.Lock()

    @property
    def label(self) -> str:
        """What it is, as messages say it."""
        return self.collective.described(self.x)

    def wait(self) -> None:
        self.communicator.spins_until = time.monotonic() + SPINNING
        self.ended.wait()
        self.communicator.spins_until = 0.0
        if self.failure:
            raise CommunicationError(self.failure)

    def abandon(self) -> None:
        """Give the arrays back: at once if no rank moves them yet, else when it has ended.

        It takes place all the same, since the other ranks take part in it.
        """
        if self._is_free.acquire(blocking=False):
            self.x, self.out = self.x.copy(), np.empty_like(self.out)
            self._is_free.release()
            return
        while not self.ended.is_set():
            with suppress(KeyboardInterrupt):  # all ranks have come to it, so it ends soon
                self.ended.wait()

    def head(self) -> bytes:
        """Return the digest of what is compared, and the array, if that is small."""
        carried = b""
        if self.x.nbytes <= CARRIED:
            with self._is_free:
                carried = self.x.tobytes()
        digest = zlib.crc32(self.compared.encode()).to_bytes(DIGEST, "little")
        return (digest + carried).ljust(DIGEST + CARRIED, b"\0")

    def arrays(self) -> tuple[Array, Array]:
        """Return the arrays, which MPI now reads and writes, until it has ended."""
        self._is_free.acquire()
        return self.x, self.out


class _End(_CollectiveRequest):
    """The last collective of a rank."""

    label = "the end of its program"


class _AbortingHook:
    """Ends all ranks when an exception ends this one: the others would wait for it forever."""

    def __init__(self, communicator: MPICommunicator, before: Any) -> None:
        self.communicator = communicator
        self.before = before

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        """Show the exception as before, then abort, unless this is a fork, which is not a rank."""
        self.before(kind, error, trace)
        if self.communicator.is_forked:
            return
        sys.stdout.flush()
        if isinstance(error, CommunicationError):
            time.sleep(GRACE)
        self.communicator.abort(f"{kind.__name__} ends all {self.communicator.size} ranks")


def _encoded(text: str) -> Array:
    """Return a text as a row of `TEXT` bytes, cut where it is longer."""
    data = text.encode()[:TEXT]
    return np.frombuffer(data.ljust(TEXT, b"\0"), np.uint8).copy()


def _decoded(row: Array) -> str:
    return bytes(row).rstrip(b"\0").decode(errors="replace")
