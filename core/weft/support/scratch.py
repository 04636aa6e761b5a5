"""Folders for files that a process needs for a while, also removed if the process is killed.

A folder is locked as long as it is used, and the system unlocks it when the process is gone. The
first folder of a later process removes those that nobody has locked.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover  # Windows, where files in use cannot be removed
    fcntl = None  # type: ignore[assignment]

ENDING = ".scratch"
"""How the names of folders end."""

YOUNG = 60.0
"""The seconds in which a folder without a lock may be one that is about to get it."""

_NAMES = re.compile(rf"weft-[0-9]+-[a-z0-9_]{{8}}{re.escape(ENDING)}")


class ScratchFolder:
    """A new folder for files that are needed for a while; a context that returns its path.

    Attributes
    ----------
    path
        The folder, which only this user can read.
    """

    def __init__(self) -> None:
        _remove_abandoned_once(tempfile.gettempdir())
        self.path = Path(tempfile.mkdtemp(ENDING, f"weft-{os.getpid()}-"))
        self._lock = _locked(self.path)
        self._process = os.getpid()

    def close(self) -> None:
        """Remove the folder, unless this is a forked process; further calls do nothing."""
        if os.getpid() != self._process:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()


@cache
def _remove_abandoned_once(folder: str) -> None:
    remove_abandoned(folder)


def remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove the scratch folders of this user whose processes are gone."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAMES.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    is_mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_mine or found.st_mtime > time.time() - YOUNG:
        return
    lock = _locked(Path(entry.path))
    if lock is not None:
        shutil.rmtree(entry.path, ignore_errors=True)
        os.close(lock)


def _locked(path: Path) -> int | None:
    """Lock a folder, and return what holds the lock; None if another process has it."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # or the file system has no locks
        os.close(handle)
        return None
    return handle
