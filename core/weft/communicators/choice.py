"""The choice of a communicator: by argument, context or environment, else by the launcher."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from weft import plugins, settings
from weft.communicators.interface import Communicator
from weft.errors import ArgumentError, PluginError
from weft.plugins.blame import blaming, origin_of
from weft.plugins.entrypoints import COMMUNICATORS
from weft.support.locks import renewed

LAUNCHERS = ("PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS")
"""Variables that MPI's launchers set in the processes that they start."""

LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Variables in which MPICH, Open MPI and Slurm number the processes of one machine."""

_chosen: ContextVar[str | None] = ContextVar("weft_communicator", default=None)
_connected: dict[str, Communicator] = {}
_connecting = renewed(threading.RLock())


def default_name() -> str:
    """Return the name of the communicator that is used where none is named.

    That of the context, else ``WEFT_COMMUNICATOR``, else ``mpi`` in a process that a launcher of
    MPI started, and ``local`` in any other.
    """
    launched = any(name in os.environ for name in LAUNCHERS)
    usual = "mpi" if launched else "local"
    return _chosen.get() or settings.COMMUNICATOR.value or usual


def local_rank() -> int:
    """Return the number of this process among those that a launcher started on its machine.

    0 in a process that no launcher started. Nothing is connected.
    """
    numbers = (os.environ.get(name, "") for name in LOCAL_RANKS)
    return next((int(number) for number in numbers if number.isdecimal()), 0)


def connected(name: str | None = None) -> Communicator:
    """Return the communicator of a name, by default `default_name`; one object for each process.

    Raises UnknownPluginError (a ValueError) for a name that is not installed, listing those that
    are, and PluginError for one that cannot be loaded.
    """
    if name is not None and not isinstance(name, str):
        raise ArgumentError(f"a communicator is given by its name, not as {name!r}")
    wanted = default_name() if name is None else name
    found = _connected.get(wanted)
    if found is None:
        with _connecting:
            found = _connected.get(wanted) or _connected.setdefault(wanted, _made(wanted))
    return found


def _made(name: str) -> Communicator:
    try:
        kind = plugins.load(COMMUNICATORS, name)
    except PluginError as error:
        if settings.COMMUNICATOR.value != name:
            raise
        raise type(error)(f"{settings.COMMUNICATOR}: {error}") from error.__cause__
    with blaming(origin_of(kind), "while it connected the ranks", extends=False):
        made: Communicator = kind(name)
    return made


def disconnect(name: str) -> None:
    """Forget the communicator of a name, which its plugin has closed; nothing if there is none."""
    with _connecting:
        _connected.pop(name, None)


@contextmanager
def communicator(name: str) -> Iterator[Communicator]:
    """Use a communicator in this context for all collectives that name none, and yield it.

    Raises what `connected` does.
    """
    found = connected(name)
    token = _chosen.set(name)
    try:
        yield found
    finally:
        _chosen.reset(token)
