"""Trials: programs are compiled in another process first where a driver may end the process.

That process stays, since PoCL takes a second for its first program and a seventh for others.
"""

from __future__ import annotations

import atexit
import re
import threading
from typing import Any

from weft.cache.store import is_off, open_cache
from weft.errors import BackendError
from weft.support.backports import after_fork
from weft.support.digest import digest_of
from weft.support.locks import renewed
from weft_opencl import drivers, scripts, trial
from weft_opencl.drivers import POCL, Candidate

TRIAL = "trial.py"
PATIENCE = 600
"""The time limit of a trial, in seconds."""

_POCL_VERSION = re.compile(r"PoCL (\d+)")
_ABORTING_POCL = 7
"""The first version of PoCL that is known to abort in a kernel that others compile."""

_known: dict[str, str] = {}
_servers: dict[tuple[int, int], scripts.Server] = {}
"""By platform and place."""
_lock = renewed(threading.Lock())


def _forget_servers() -> None:
    """Leave the processes of the one that was forked."""
    while _servers:
        _servers.popitem()[1].forget()


@atexit.register
def close_servers() -> None:
    """End all processes."""
    while _servers:
        _servers.popitem()[1].close()


after_fork(_forget_servers)


def is_needed(handle: Any) -> bool:
    """Whether the compiler of a device is known to end processes."""
    found = _POCL_VERSION.search(str(handle.platform.version))
    is_pocl = handle.platform.name.strip() == POCL
    return scripts.can_run() and is_pocl and found is not None and int(found[1]) >= _ABORTING_POCL


def trouble_with(source: str, handle: Any) -> str:
    """Return how the compiler of a device ended the process that tried a program; empty if not.

    A program is tried once for each version of a driver; the outcome is kept in the cache. Raises
    BackendError if no process can be started.
    """
    candidate = next(each for each in drivers.candidates() if each.handle == handle)
    key = digest_of("\n".join(["opencl program", *candidate.driver, source]).encode())
    if key not in _known:
        cached = None if is_off() else open_cache().read(key)
        if cached is None:
            try:
                cached = _tried(source, candidate).encode()
            except OSError as error:
                what = f"no process could be started to try a program of {candidate}: {error}"
                raise BackendError(what) from error
            if not is_off():
                open_cache().write(key, cached)
        _known[key] = cached.decode()
    return _known[key]


def _tried(source: str, candidate: Candidate) -> str:
    """Return how the compiler ended the process that tried a program; empty if not.

    One that ends after other programs, or was idle for long, proves nothing: the next one does.
    """
    place = candidate.platform, candidate.place
    with _lock:
        while True:
            server = _servers.pop(place, None) or scripts.Server(TRIAL, candidate)
            is_first = not server.has_answered
            try:
                ended = server.answer(source, trial.ENDED, PATIENCE)
            except BaseException:  # such as Ctrl-C, after which its next line answers nothing
                server.close()
                raise
            if not ended:
                _servers[place] = server
                return ""
            server.close()
            if is_first:
                return ended
