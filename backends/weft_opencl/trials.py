"""Trials: programs are compiled in a process of their own where a driver may end the process."""

from __future__ import annotations

import re
from typing import Any

from weft.cache.store import is_off, open_cache
from weft.errors import BackendError
from weft.support.digest import digest_of
from weft_opencl import drivers, scripts, trial
from weft_opencl.drivers import POCL

TRIAL = "trial.py"
PATIENCE = 600
"""The time limit of a trial, in seconds."""

_POCL_VERSION = re.compile(r"PoCL (\d+)")
_ABORTING_POCL = 7
"""The first version of PoCL that is known to abort in a kernel that others compile."""

_known: dict[str, str] = {}


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
                line, ended = scripts.run(TRIAL, candidate, PATIENCE, source)
            except OSError as error:
                what = f"no process could be started to try a program of {candidate}: {error}"
                raise BackendError(what) from error
            cached = b"" if line == trial.ENDED else ended.encode()
            if not is_off():
                open_cache().write(key, cached)
        _known[key] = cached.decode()
    return _known[key]
