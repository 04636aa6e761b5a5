"""Edge: where the arrays of the caller meet the memory that kernels work on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from weft.ir.graph import Graph
from weft_c.runtime.storage import Arrays, Bytes


class HostIO(ABC):
    """What kernels are given for the arrays of a call: those themselves, or copies.

    Attributes
    ----------
    inputs
        How many of the arrays are inputs; results come after them.
    ops
        The op behind each array.
    """

    def __init__(self, graph: Graph) -> None:
        self.inputs = len(graph.inputs)
        self.ops = (*graph.inputs, *graph.outputs)

    @abstractmethod
    def begin(self, arrays: Arrays) -> Any:
        """Let kernels read and write the arrays of a call; what is returned must live as long."""

    @abstractmethod
    def end(self, arrays: Arrays) -> None:
        """Let results be in the arrays once all work has been waited for."""

    @abstractmethod
    def read(self, number: int, arrays: Arrays) -> Bytes:
        """Return the bytes of an array as kernels see them."""

    @abstractmethod
    def write(self, number: int, start: int, bytes_: Bytes) -> None:
        """Write bytes to an array from a place on, if `read` returns copies."""

    def release(self) -> None:  # noqa: B027
        """Give memory back, unless other programs use it too."""
