"""Transfers: collectives as requests of MPI.

Arrays that are only moved go as bytes, so that every dtype does. MPI does not reduce 16-bit floats:
they are reduced in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from weft.communicators.interface import Array, Collective

_REDUCTIONS = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_OF_BOOLS = {"max": MPI.LOR, "min": MPI.LAND}


class Transfer:
    """The requests of one collective, and what is left to do when they have ended."""

    def __init__(self, comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> None:
        self.requests: list[MPI.Request] = []
        self.finish: Callable[[], None] = _nothing
        self._comm = comm
        getattr(self, f"_{collective.kind}")(collective, x, out)

    def _all_reduce(self, collective: Collective, x: Array, out: Array) -> None:
        given, taken = self._reducible(x, out)
        request = self._comm.Iallreduce(given, taken, _reduction(collective, x))
        self.requests.append(request)

    def _reduce_scatter(self, collective: Collective, x: Array, out: Array) -> None:
        given, taken = self._reducible(x, out)
        request = self._comm.Ireduce_scatter_block(given, taken, _reduction(collective, x))
        self.requests.append(request)

    def _all_gather(self, collective: Collective, x: Array, out: Array) -> None:
        self.requests.append(self._comm.Iallgather(_bytes(x), _bytes(out)))

    def _all_to_all(self, collective: Collective, x: Array, out: Array) -> None:
        self.requests.append(self._comm.Ialltoall(_bytes(x), _bytes(out)))

    def _broadcast(self, collective: Collective, x: Array, out: Array) -> None:
        if self._comm.rank == collective.root:
            np.copyto(out, x)
        self.requests.append(self._comm.Ibcast(_bytes(out), collective.root))

    def _shift(self, collective: Collective, x: Array, out: Array) -> None:
        comm = self._comm
        source = collective.source(comm.rank, comm.size)
        target = collective.target(comm.rank, comm.size)
        if source is None:
            out[...] = 0
        else:
            self.requests.append(comm.Irecv(_bytes(out), source))
        if target is not None:
            self.requests.append(comm.Isend(_bytes(x), target))

    def _reducible(self, x: Array, out: Array) -> tuple[Array, Array]:
        """Return arrays of a dtype that MPI reduces, and have the result copied back."""
        if x.dtype.itemsize > 2 or x.dtype.kind in "iub":
            return x.reshape(-1), out.reshape(-1)
        taken = np.empty(out.size, np.float32)
        self.finish = lambda: np.copyto(out, taken.reshape(out.shape), casting="unsafe")
        return x.reshape(-1).astype(np.float32), taken


def _nothing() -> None:
    pass


def _reduction(collective: Collective, x: Array) -> MPI.Op:
    table: Any = _OF_BOOLS if x.dtype.kind == "b" else _REDUCTIONS
    return table[collective.reduction]  # type: ignore[no-any-return]


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
