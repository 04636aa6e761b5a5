"""Transfers: collectives as calls of NCCL, in the order of a stream.

Arrays that are only moved go as bytes, so that every dtype does. NCCL has no parts for each rank
and no neighbors: these are sends and receives in one group, so that none waits for another.
Numbers are those of nccl.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.communicators import Collective, DeviceArray

if TYPE_CHECKING:
    from weft_nccl.connection import Connection

_TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
    "bool": 1,
}  # fmt: skip
"""ncclDataType_t. A bool is a byte of 0 or 1, whose maximum is or, and whose minimum is and."""
_BYTES = _TYPES["uint8"]
_REDUCTIONS = {"sum": 0, "max": 2, "min": 3}
"""ncclRedOp_t."""


def has(collective: Collective, dtype: np.dtype[Any]) -> bool:
    """Whether NCCL can do a collective.

    It reduces neither 16-bit integers nor complex numbers. Its extrema of floats drop NaN.
    """
    if collective.kind not in ("all_reduce", "reduce_scatter"):
        return True
    is_float = dtype.name.startswith(("float", "bfloat"))
    return dtype.name in _TYPES and (collective.reduction == "sum" or not is_float)


def enqueue(
    connection: Connection, collective: Collective, x: DeviceArray, out: DeviceArray
) -> None:
    """Give a collective to NCCL, in the connection's stream; CuPy's NcclError for a refusal."""
    if x.nbytes or out.nbytes:
        _CALLS[collective.kind](connection, collective, x, out)


def _all_reduce(link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray) -> None:
    kind, reduction = _TYPES[x.dtype.name], _REDUCTIONS[collective.reduction]
    link.ranks.allReduce(x.address, out.address, x.size, kind, reduction, link.stream.ptr)


def _reduce_scatter(
    link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray
) -> None:
    kind, reduction = _TYPES[x.dtype.name], _REDUCTIONS[collective.reduction]
    link.ranks.reduceScatter(x.address, out.address, out.size, kind, reduction, link.stream.ptr)


def _all_gather(link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray) -> None:
    link.ranks.allGather(x.address, out.address, x.nbytes, _BYTES, link.stream.ptr)


def _broadcast(link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray) -> None:
    root = collective.root
    link.ranks.broadcast(x.address, out.address, x.nbytes, _BYTES, root, link.stream.ptr)


def _all_to_all(link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray) -> None:
    part = x.nbytes // link.size
    with _group(link):
        for peer in range(link.size):
            link.ranks.send(x.address + peer * part, part, _BYTES, peer, link.stream.ptr)
            link.ranks.recv(out.address + peer * part, part, _BYTES, peer, link.stream.ptr)


def _shift(link: Connection, collective: Collective, x: DeviceArray, out: DeviceArray) -> None:
    source = collective.source(link.rank, link.size)
    target = collective.target(link.rank, link.size)
    with _group(link):
        if target is not None:
            link.ranks.send(x.address, x.nbytes, _BYTES, target, link.stream.ptr)
        if source is not None:
            link.ranks.recv(out.address, out.nbytes, _BYTES, source, link.stream.ptr)
    if source is None:
        link.cuda.runtime.memsetAsync(out.address, 0, out.nbytes, link.stream.ptr)


@contextmanager
def _group(link: Connection) -> Iterator[None]:
    """Have NCCL do the calls of the ``with`` block together."""
    link.nccl.groupStart()
    try:
        yield
    finally:
        link.nccl.groupEnd()


_CALLS: dict[str, Callable[[Connection, Collective, DeviceArray, DeviceArray], None]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "shift": _shift,
}
