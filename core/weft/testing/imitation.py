"""Imitated ranks: one process that computes as one of several on a network it does not have.

All imagined ranks have the arrays of the only one, so its collectives have known results. They take
as long as the network would, by the alpha-beta model: a message costs a latency and a time a byte
(Hockney, The communication challenge for MPP, 1994). Nothing is computed meanwhile.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft import plugins
from weft.communicators.choice import communicator, disconnect
from weft.communicators.interface import Array, Collective, Communicator, Request
from weft.plugins.hookspecs import hookimpl


@dataclass(frozen=True)
class Network:
    """What connects the ranks.

    Attributes
    ----------
    latency
        The seconds from the start of a message to its first byte at the receiver.
    bandwidth
        The bytes a second that each rank sends while it receives as many.
    sums
        The bytes a second of one operand that a rank adds to another; infinite where this is free.
    """

    name: str
    latency: float
    bandwidth: float
    sums: float = math.inf

    def message(self, nbytes: float) -> float:
        """Return the seconds of a message."""
        return self.latency + nbytes / self.bandwidth

    def shared(self, factor: float) -> Network:
        """Return the network as seen by ranks that have a `factor`-th of a core each."""
        return replace(
            self,
            latency=self.latency * factor,
            bandwidth=self.bandwidth / factor,
            sums=self.sums / factor,
        )


NO_WAIT = Network("no wait", 0, math.inf)
"""A network on which collectives take no time."""


def ring(ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of an all-reduce in which each rank talks to its neighbors only."""
    part = nbytes / ranks
    return (ranks - 1) * (2 * network.message(part) + part / network.sums)


def seconds(collective: Collective, ranks: int, nbytes: float, network: Network) -> float:
    """Return the seconds of a collective to which each rank gives so many bytes.

    Reductions and gathering go around a ring, and a broadcast down a binomial tree. In an
    all-to-all each rank sends its parts one after the other.
    """
    part = nbytes / ranks
    match collective.kind:
        case "all_reduce":
            return ring(ranks, nbytes, network)
        case "reduce_scatter":
            return (ranks - 1) * (network.message(part) + part / network.sums)
        case "all_gather":
            return (ranks - 1) * network.message(nbytes)
        case "all_to_all":
            return (ranks - 1) * network.message(part)
        case "broadcast":
            return (ranks - 1).bit_length() * network.message(nbytes)
        case _:
            return network.message(nbytes)


class ImitatedRanks(Communicator):
    """One of several ranks that all have the same arrays, as rank 0 of 4 without a wait.

    A collective ends when the one before has ended and the time of its own has passed. A thread
    sleeps until then and writes the result.

    Attributes
    ----------
    network
        What connects the ranks; what is started later goes by another one that is set.
    imposed
        The seconds that collectives have taken, all together.
    waited
        The seconds for which the program has waited for their ends.
    """

    rank: int = 0
    size: int = 4

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.network = NO_WAIT
        self.imposed = self.waited = 0.0
        self._free_from = 0.0
        self._thread = ThreadPoolExecutor(1, name)

    def start(self, collective: Collective, x: Array, out: Array) -> Request:
        """Let the network transfer the array after those of the collectives before."""
        taken = seconds(collective, self.size, x.nbytes, self.network)
        self.imposed += taken
        self._free_from = max(self._free_from, time.perf_counter()) + taken
        ended = self._thread.submit(self._end, self._free_from, collective, x, out)
        return _Transfer(self, ended)

    def abort(self, reason: str) -> None:
        """Exit with a message."""
        sys.exit(reason)

    def close(self) -> None:
        """End the thread, once all collectives have ended."""
        self._thread.shutdown()

    def _end(self, when: float, collective: Collective, x: Array, out: Array) -> None:
        time.sleep(max(0.0, when - time.perf_counter()))
        match collective.kind:
            case "all_reduce" if collective.reduction == "sum":
                np.multiply(x, x.dtype.type(self.size), out)
            case "reduce_scatter":
                part = np.split(x, self.size)[self.rank]
                times = self.size if collective.reduction == "sum" else 1
                np.multiply(part, x.dtype.type(times), out)
            case "all_gather":
                np.concatenate([x] * self.size, out=out)
            case "all_to_all":
                np.concatenate([np.split(x, self.size)[self.rank]] * self.size, out=out)
            case "shift" if collective.source(self.rank, self.size) is None:
                out[...] = 0
            case _:
                np.copyto(out, x)


class _Transfer(Request):
    def __init__(self, ranks: ImitatedRanks, ended: Future[None]) -> None:
        self.ranks = ranks
        self.ended = ended

    def wait(self) -> None:
        """Wait for the thread."""
        begin = time.perf_counter()
        self.ended.result()
        self.ranks.waited += time.perf_counter() - begin


_numbers = itertools.count()


@contextmanager
def imitated_ranks(
    size: int = 4,
    network: Network = NO_WAIT,
    kind: type[ImitatedRanks] = ImitatedRanks,
) -> Iterator[ImitatedRanks]:
    """Use imitated ranks for all collectives in this context that name no communicator.

    They are of a class, which knows their rank, and get a name of their own. After the context no
    communicator has this name.
    """
    name = f"imitated-{next(_numbers)}"
    plugin = _Plugin(name, kind)
    plugins.register(plugin, name)
    try:
        with communicator(name) as ranks:
            assert isinstance(ranks, kind)
            ranks.size, ranks.network = size, network
            try:
                yield ranks
            finally:
                ranks.close()
                disconnect(name)
    finally:
        plugins.unregister(plugin)


class _Plugin:
    def __init__(self, name: str, kind: type[ImitatedRanks]) -> None:
        self.name, self.kind = name, kind

    @hookimpl
    def weft_register_communicators(self, register: Callable[[str, type[Any]], None]) -> None:
        register(self.name, self.kind)
