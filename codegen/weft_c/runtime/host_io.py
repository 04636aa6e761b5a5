"""HostIO: transfers between the caller's arrays and the memory that kernels access."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weft.runtime.program import Program
from weft_c.runtime.storage import Arrays, Bytes


class HostIO(ABC):
    """Transfers of a call's arrays, which kernels access in place or as device copies.

    Attributes
    ----------
    inputs
        The number of inputs, which precede the results in a call's arrays.
    ops
        The op of each array.
    taken
        The input that is the same array, for each result that takes over its memory.
    """

    def __init__(self, program: Program) -> None:
        graph = program.captured
        self.inputs = len(graph.inputs)
        self.ops = (*graph.inputs, *graph.outputs)
        self.taken = {self.inputs + result: number for result, number in program.donated.items()}

    @abstractmethod
    def begin(self, arrays: Arrays) -> Any:
        """Make a call's arrays accessible to kernels.

        The returned object must live until the call ends.
        """

    @abstractmethod
    def end(self, arrays: Arrays) -> None:
        """Transfer the results to the caller's arrays; complete after the next wait."""

    @abstractmethod
    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of array `number` as kernels see them."""

    @abstractmethod
    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to array `number` from byte `start` on, if `read` returns copies."""

    def release(self) -> None:  # noqa: B027
        """Release memory that no other program uses."""
