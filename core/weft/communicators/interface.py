"""The interface of communicators: what the ranks of a program do together.

A rank is one process of several that run the same program. A plugin defines `rank`, `size`, `start`
and `abort`; all other operations are built on `start`. A `DeviceCommunicator` also takes arrays in
the memory of GPUs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np

from weft.errors import ArgumentError, CommunicationError
from weft.plugins.contributions import base_of
from weft.plugins.entrypoints import COMMUNICATORS

Array = np.ndarray[Any, Any]
Reduction = Literal["sum", "max", "min"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
"""The reductions that a communicator has."""
Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "shift"]


@dataclass(frozen=True)
class DeviceArray:
    """A contiguous array in the memory of a CUDA device.

    Attributes
    ----------
    address
        The address of its first byte, as an integer.
    shape, dtype
        Its shape and dtype.
    device
        The number of the device.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Collective:
    """What the ranks do together in one step.

    Attributes
    ----------
    kind
        ``all_reduce``: every rank gets the reduction of all arrays. ``all_gather``: every rank gets
        all arrays, in the order of ranks. ``reduce_scatter``: rank r gets part r of the reduction.
        ``broadcast``: every rank gets the array of the root. ``all_to_all``: part s of the array of
        rank r becomes part r at rank s. ``shift``: the array goes to the rank at an offset. Parts
        are along the first dimension.
    reduction
        ``sum``, ``max`` or ``min``; of bools, ``max`` is or, ``min`` is and.
    root
        The rank that a broadcast starts from.
    offset
        How many ranks a shift goes up.
    wraps
        Whether a shift from the last rank leads to the first. Where it does not, ranks without a
        sender get zeros.
    label
        What it is for, as messages say it; the same on all ranks.
    call
        The call that it is a part of, as messages say it; ranks may differ in this.
    key
        What of that call has to be the same on all ranks.
    """

    kind: Kind
    reduction: Reduction = "sum"
    root: int = 0
    offset: int = 1
    wraps: bool = True
    label: str = ""
    call: str = ""
    key: str = ""

    def described(self, x: Array | DeviceArray) -> str:
        """Describe the collective and its purpose, for messages."""
        label = f" for {self.label}" if self.label else ""
        return f"{self.signature(x)}{label}{f', in {self.call}' if self.call else ''}"

    def compared(self, x: Array | DeviceArray) -> str:
        """Describe the parts that must agree on all ranks, with the array that a rank gives."""
        options = self.reduction, self.root, self.offset, self.wraps
        return f"{self.kind}{options}{_name(x.dtype)}{x.shape} {self.label} {self.key}"

    def signature(self, x: Array | DeviceArray) -> str:
        """Describe the collective with the shape and dtype of its array."""
        options = {
            "all_reduce": self.reduction,
            "reduce_scatter": self.reduction,
            "broadcast": f"from {self.root}",
            "shift": f"by {self.offset}{'' if self.wraps else ' without wrapping'}",
        }.get(self.kind, "")
        return f"{self.kind} {options} of {x.dtype}{list(x.shape)}".replace("  ", " ")

    def source(self, rank: int, size: int) -> int | None:
        """Return the rank that a rank receives from in a shift; None for no one."""
        return self._neighbor(rank - self.offset, size)

    def target(self, rank: int, size: int) -> int | None:
        """Return the rank that a rank sends to in a shift; None for no one."""
        return self._neighbor(rank + self.offset, size)

    def _neighbor(self, rank: int, size: int) -> int | None:
        return rank % size if self.wraps or 0 <= rank < size else None


_name: Callable[[np.dtype[Any]], str] = lru_cache(str)


class Request(ABC):
    """A collective that was started; its arrays must stay as they are until it has ended."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for its end.

        Raises CommunicationError if the ranks did not start the same collective, or not within the
        time limit.
        """

    def abandon(self) -> None:
        """Give its arrays back to a caller that does not wait any more; an error is not raised.

        By default when it has ended. A communicator that can copies them, and returns at once.
        """
        with suppress(CommunicationError):
            self.wait()


@base_of(COMMUNICATORS)
class Communicator(ABC):
    """The ranks of a program, seen from one of them.

    Parameters
    ----------
    name
        The name it was asked for by.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    @abstractmethod
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ranks."""

    @abstractmethod
    def start(self, collective: Collective, x: Array, out: Array) -> Request:
        """Start a collective on contiguous arrays, and return without waiting for other ranks.

        `x` is what this rank gives, `out` takes what it gets. All ranks start the same collectives
        in the same order; those of one communicator end in that order.
        """

    @abstractmethod
    def abort(self, reason: str) -> None:
        """End all ranks at once, this one too, with a message on standard error."""

    def run(self, collective: Collective, x: Array, out: Array | None = None) -> Array:
        """Start a collective, wait for its end, and return the array that this rank gets.

        Raises CommunicationError like `Request.wait`.
        """
        x = np.asarray(x, order="C")
        if out is None:
            out = np.empty(result_shape(collective, x.shape, self.size), x.dtype)
        request = self.start(collective, x, out)
        try:
            request.wait()
        except BaseException:
            request.abandon()
            raise
        return out

    def barrier(self, label: str = "a barrier") -> None:
        """Wait until all ranks have come to a barrier; raises CommunicationError like `run`."""
        self.run(Collective("all_reduce", label=label), np.zeros((), np.int64))

    def gather_text(self, text: str, label: str, call: str = "") -> list[str]:
        """Return the texts of all ranks, in their order; raises CommunicationError like `run`.

        `label` and `call` are those of the collectives.
        """
        data = np.frombuffer(text.encode(), np.uint8)
        length = np.array([len(data)], np.int64)
        gathering = Collective("all_gather", label=label, call=call)
        lengths = self.run(gathering, length)
        longest = int(lengths.max())
        padded = np.zeros(longest, np.uint8)
        padded[: len(data)] = data
        rows = self.run(gathering, padded).reshape(self.size, longest)
        return [
            bytes(row[:count]).decode() for row, count in zip(rows, lengths.tolist(), strict=True)
        ]


class DeviceCommunicator(Communicator):
    """A communicator that also exchanges arrays between the memories of CUDA devices.

    A backend whose arrays are there asks `has`, and hands the others over as NumPy arrays.
    """

    @abstractmethod
    def has(self, collective: Collective, dtype: np.dtype[Any]) -> bool:
        """Whether `start_on_device` takes a collective of arrays of a dtype."""

    @abstractmethod
    def start_on_device(
        self, collective: Collective, x: DeviceArray, out: DeviceArray, stream: int
    ) -> Request:
        """Start a collective after the work that a stream was given so far.

        `stream` is a ``cudaStream_t`` as an integer. Returns at once, as `start` does; both keep
        one order. `Request.wait` has the stream wait for the end, and not the host, which waits
        only until all ranks have started the collective.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise CommunicationError if a collective has failed on a device.

        A backend calls it when it has waited for the stream. What the stream did after the failed
        collective is void.
        """


def result_shape(collective: Collective, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the shape of what each rank gets for arrays of a shape.

    Raises ArgumentError if an array has no parts for all ranks.
    """
    kind = collective.kind
    if kind in ("all_reduce", "broadcast", "shift"):
        return shape
    if not shape:
        raise ArgumentError(f"{kind} needs at least one dimension")
    if kind == "all_gather":
        return (shape[0] * size, *shape[1:])
    if shape[0] % size:
        raise ArgumentError(f"{kind}: {shape[0]} rows cannot be shared among {size} ranks")
    return shape if kind == "all_to_all" else (shape[0] // size, *shape[1:])


def mismatch(communicator: Communicator, own: str, theirs: dict[int, str]) -> CommunicationError:
    """Return the error of ranks that did not start the same collective."""
    lines = [
        f"  rank {rank}: {text}"
        for rank, text in sorted({**theirs, communicator.rank: own}.items())
    ]
    return CommunicationError(
        "the ranks did not start the same collective: every rank has to call the same "
        "computations, in the same order and as often, and a call that raised counts\n"
        + "\n".join(lines)
    )
