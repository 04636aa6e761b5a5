"""Transfers: collectives as requests of MPI, which only move bytes.

So every dtype goes, and reductions do not depend on the operators and the algorithms of an MPI:
they are computed in the order of ranks. A small array goes to all ranks, each of which reduces all
of them. Of a large one each rank reduces a part, and sends it to the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from mpi4py import MPI

from weft.communicators.interface import Array, Collective
from weft.communicators.reductions import reduce_rows

SMALL = 1 << 17
"""The most bytes that all ranks together send to each, where that spares a second message."""

Requests = Iterator[list[MPI.Request]]


def transfer(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    """Start a collective; yields requests, each time they have ended, until it is done."""
    return _TRANSFERS[collective.kind](comm, collective, x, out)


def finish(collective: Collective, rows: Array, rank: int, x: Array, out: Array) -> None:
    """Write what a rank gets, if it has the bytes of the arrays of all ranks."""
    size = len(rows)
    arrays = np.ascontiguousarray(rows).view(x.dtype).reshape(size, *x.shape)
    match collective.kind:
        case "all_reduce":
            reduce_rows(arrays, collective.reduction, out)
        case "reduce_scatter":
            parts = [np.split(each, size)[rank] for each in arrays]
            reduce_rows(parts, collective.reduction, out)
        case "all_gather":
            np.concatenate(arrays, out=out)
        case "all_to_all":
            np.concatenate([np.split(each, size)[rank] for each in arrays], out=out)
        case "broadcast":
            np.copyto(out, arrays[collective.root])
        case "shift":
            source = collective.source(rank, size)
            np.copyto(out, 0 if source is None else arrays[source])


def _all_reduce(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    if x.nbytes * comm.size <= SMALL:
        rows = np.empty((comm.size, *x.shape), x.dtype)
        yield [comm.Iallgather(_bytes(x), _bytes(rows))]
        reduce_rows(rows, collective.reduction, out)
        return
    ends = [x.size * rank // comm.size for rank in range(comm.size + 1)]
    parts = [slice(*each) for each in pairwise(ends)]
    yield from _reduced(comm, collective, x, parts, out.reshape(-1)[parts[comm.rank]])
    begins, counts = np.array(ends[:-1]) * x.itemsize, np.diff(ends) * x.itemsize
    yield [comm.Iallgatherv(MPI.IN_PLACE, [_bytes(out), counts, begins, MPI.BYTE])]


def _reduce_scatter(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    parts = [slice(rank * out.size, (rank + 1) * out.size) for rank in range(comm.size)]
    yield from _reduced(comm, collective, x, parts, out.reshape(-1))


def _reduced(
    comm: MPI.Intracomm, collective: Collective, x: Array, parts: Sequence[slice], out: Array
) -> Requests:
    """Send each rank its part, and reduce the parts of all ranks for this one."""
    flat = x.reshape(-1)
    rows = [np.empty_like(out) for _ in parts]
    rows[comm.rank] = flat[parts[comm.rank]]
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    received = [comm.Irecv(_bytes(rows[rank]), rank) for rank in others]
    sent = [comm.Isend(_bytes(flat[parts[rank]]), rank) for rank in others]
    yield received + sent
    reduce_rows(rows, collective.reduction, out)


def _all_gather(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    yield [comm.Iallgather(_bytes(x), _bytes(out))]


def _all_to_all(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    yield [comm.Ialltoall(_bytes(x), _bytes(out))]


def _broadcast(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    if comm.rank == collective.root:
        np.copyto(out, x)
    yield [comm.Ibcast(_bytes(out), collective.root)]


def _shift(comm: MPI.Intracomm, collective: Collective, x: Array, out: Array) -> Requests:
    source = collective.source(comm.rank, comm.size)
    target = collective.target(comm.rank, comm.size)
    requests: list[MPI.Request] = []
    if source is None:
        out[...] = 0
    else:
        requests.append(comm.Irecv(_bytes(out), source))
    if target is not None:
        requests.append(comm.Isend(_bytes(x), target))
    yield requests


_TRANSFERS: dict[str, Callable[[MPI.Intracomm, Collective, Array, Array], Requests]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "shift": _shift,
}


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)
