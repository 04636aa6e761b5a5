"""The ``nccl`` communicator: the ranks of MPI, whose GPUs exchange arrays through NCCL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl


@hookimpl
def weft_register_communicators(register: Callable[[str, type[Any]], None]) -> None:
    """Register the communicator; CuPy is not imported."""
    from weft_nccl.communicator import NCCLCommunicator

    register("nccl", NCCLCommunicator)
