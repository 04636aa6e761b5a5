"""Folders for files that a process needs for a while, also removed if the process is killed.

A folder is locked as long as it is used, and the system unlocks it when the process is gone. The
first folder of a later process removes those that nobody has locked. On Windows a file in the
folder is the lock: one that is open cannot be removed there. Nor can a library that is loaded, so
what a folder has left of it is removed in the same way.
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
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ENDING = ".scratch"
"""How the names of folders end."""

LOCK = "lock"
"""The name of the file that locks a folder on Windows."""

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
        lock, self._lock = self._lock, None
        _remove(self.path, lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()


@cache
def _remove_abandoned_once(folder: str) -> None:
    remove_abandoned(folder)


def remove_abandoned(folder: str | os.PathLike[str]) -> None:
    """Remove the scratch folders of this user whose processes are gone."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAMES.fullmatch(entry.name):
                with suppress(OSError):
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    is_mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    if not (stat.S_ISDIR(found.st_mode) and is_mine) or found.st_mtime > time.time() - YOUNG:
        return
    lock = _locked(Path(entry.path))
    if lock is not None:
        _remove(Path(entry.path), lock)


def _remove(path: Path, lock: int | None) -> None:
    """Unlock a folder and remove it; another process may do so at the same time."""
    if lock is not None:
        os.close(lock)
    shutil.rmtree(path, ignore_errors=True)


def _locked(path: Path) -> int | None:
    """Lock a folder, and return what holds the lock; None if another process has it."""
    if fcntl is None:
        file = path / LOCK
        try:
            file.unlink(missing_ok=True)
            return os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except OSError:
            return None
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # or the file system has no locks
        os.close(handle)
        return None
    return handle
