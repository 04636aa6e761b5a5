"""The ``mpi`` communicator: the ranks are the processes that ``mpiexec`` starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl


@hookimpl
def weft_register_communicators(register: Callable[[str, type[Any]], None]) -> None:
    """Register the communicator."""
    from weft_mpi.communicator import MPICommunicator

    register("mpi", MPICommunicator)
