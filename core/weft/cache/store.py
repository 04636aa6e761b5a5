"""The cache folder: one file per key, safe for any number of processes.

A file is written under a temporary name in the same folder and then renamed, so writes are atomic
without a lock. It begins with its key and a digest of the rest, which are verified. The least
recently used files are evicted when the folder exceeds its limit.
"""

from __future__ import annotations

import os
import re
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from weft import settings
from weft.support.digest import digest_of

FORMAT = 2
"""Changes whenever the content of files changes its meaning."""
SUFFIX = ".weft"
SHARE = 4
"""A file larger than one part in this many of the limit is not kept."""
ABANDONED = 3600
"""Seconds after which a file that nobody finished writing is removed."""

_NAMES = re.compile(r"[0-9a-f]{40}(\.weft|\.[a-z0-9_]+\.tmp)")
"""The names of files that weft writes; no other file is counted or removed."""


class CacheWarning(UserWarning):
    """Warns once that programs cannot be cached on disk, or that a file was unusable."""


class Cache:
    """A folder of compiled programs.

    Parameters
    ----------
    folder
        The folder, created with access for its owner only at the first write.
    limit
        The most bytes of all files.
    problem
        Why the folder cannot be used, if that is known; a write warns of it once.
    """

    def __init__(
        self, folder: str | Path, limit: int = settings.CACHE_SIZE.default, problem: str = ""
    ) -> None:
        self.folder = Path(folder)
        self.limit = limit
        self.problem = problem
        self._held: int | None = None
        self._warned: set[str] = set()
        self._is_refused: bool | None = None
        self._is_writable = True

    def read(self, key: str) -> bytes | None:
        """Return the content under a key; None if it is missing or damaged."""
        if self.problem:
            return None
        path = self._path(key)
        try:
            with open(path, "rb", opener=_opener) as file:
                if self._refuses_folder():
                    return None
                status = os.fstat(file.fileno())
                is_ours = _is_ours(status) and status.st_size <= self.limit
                head, content = _parts(file, key) if is_ours else (b"", b"")
                is_whole = head == _head(key, content)
                if is_whole:
                    with suppress(OSError):
                        os.utime(file.fileno() if os.utime in os.supports_fd else path)
        except OSError:
            return None
        if not is_whole:
            self.warn(f"{path} is damaged or not of weft: it is not used, but written again")
            return None
        return content

    def write(self, key: str, content: bytes) -> None:
        """Store content under a key, if possible; a folder that is not writable warns once.

        Content that exceeds a share of the limit is not stored.
        """
        if not self._is_writable or len(content) * SHARE > self.limit:
            return
        if self.problem:
            self.warn(self.problem)
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._refuses_folder():
                return
            self._put(key, _head(key, content) + b"\n" + content)
        except OSError as error:
            self._is_writable = False
            self.warn(f"compiled programs cannot be kept in {self.folder}: {error}")

    def _put(self, key: str, whole: bytes) -> None:
        import tempfile

        handle, name = tempfile.mkstemp(".tmp", f"{key}.", self.folder)  # for its owner only
        try:
            with open(handle, "wb") as file:
                file.write(whole)
            self._move(name, self._path(key))
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
        before = self._held  # `clear` in another thread
        held = self.limit + 1 if before is None else before + len(whole)
        self._held = self._shrink() if held > self.limit else held

    def _move(self, name: str, path: Path) -> None:
        """Give a file its name; the one of that name stays where a reader keeps it from going."""
        try:
            os.replace(name, path)
        except FileNotFoundError:  # `clear` in another process
            return
        except PermissionError:  # Windows, which replaces no file that is open
            if not path.exists():
                raise
            os.unlink(name)

    def usage(self) -> tuple[int, int]:
        """Return the number of files and their bytes."""
        sizes = [status.st_size for _, status in self._files()]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove all files that weft wrote and return their number."""
        removed = 0
        for path, _ in list(self._files()):
            with suppress(OSError):
                path.unlink()
                removed += 1
        self._held = None
        return removed

    def _shrink(self) -> int:
        """Evict least recently used files, to below the limit; return the remaining bytes."""
        files = sorted(self._files(), key=lambda each: each[1].st_mtime_ns, reverse=True)
        held = 0
        for path, status in files:
            if path.suffix != SUFFIX:
                if status.st_mtime < time.time() - ABANDONED:
                    _remove(path)
            elif held + status.st_size > self.limit * 0.9:
                _remove(path)
            else:
                held += status.st_size
        return held

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if not _NAMES.fullmatch(entry.name):
                    continue
                with suppress(OSError):  # another process may have removed it just now
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield Path(entry.path), status

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{SUFFIX}"

    def _refuses_folder(self) -> bool:
        """Whether others may write to the folder, whose code runs here."""
        if self._is_refused is None:
            self._is_refused = not _is_ours(self.folder.stat())
            if self._is_refused:
                self.warn(
                    f"compiled programs are not kept in {self.folder}, because others may write "
                    "there: take away their permission, or set WEFT_CACHE_DIR to another folder"
                )
        return self._is_refused

    def warn(self, problem: str) -> None:
        """Warn of a problem once."""
        if problem not in self._warned:
            self._warned.add(problem)
            warnings.warn(problem, CacheWarning, stacklevel=2)


def _head(key: str, content: bytes) -> bytes:
    return f"weft-cache {FORMAT} {key} {digest_of(content)}".encode()


def _parts(file: IO[bytes], key: str) -> tuple[bytes, bytes]:
    """Return the first line of a file and, if it matches the key, the rest."""
    line = file.read(len(_head(key, b"")) + 1)
    head, newline = line[:-1], line[-1:]
    fits = newline == b"\n" and head.startswith(f"weft-cache {FORMAT} {key} ".encode())
    return (head, file.read()) if fits else (b"", b"")


def _opener(path: str, flags: int) -> int:
    """Open a regular file; raises OSError for others, which might block."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a regular file")
    return handle


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user or root can have written a file, where files have such owners."""
    if not hasattr(os, "geteuid"):
        return True
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & others


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def default_folder() -> Path:
    """Return the folder in ``WEFT_CACHE_DIR``, else the user's cache folder.

    It begins with ``~`` for a user without a home.
    """
    named = settings.CACHE_DIR.value
    if named is not None:
        return _expanded(named)
    import platformdirs

    try:
        folder = platformdirs.user_cache_dir("weft", appauthor=False)
    except RuntimeError:  # as in `_expanded`
        folder = "~/.cache/weft"
    return _expanded(Path(folder))


def _expanded(path: Path) -> Path:
    with suppress(RuntimeError):  # no HOME, and no entry for the user among the system's
        return path.expanduser()
    return path


def is_off() -> bool:
    """Whether ``WEFT_CACHE`` disables the cache."""
    return not settings.CACHE.value


_caches: dict[tuple[Path, int], Cache] = {}


def open_cache(folder: str | os.PathLike[str] | None = None) -> Cache:
    """Return the cache of a folder, one object per process; by default that of `default_folder`.

    Raises ArgumentError if ``WEFT_CACHE_SIZE`` is not a number of megabytes.
    """
    path = default_folder() if folder is None else _expanded(Path(folder))
    limit = settings.CACHE_SIZE.value
    problem = ""
    if path.parts[:1] and path.parts[0].startswith("~"):
        problem = (
            f"compiled programs are not kept in {path}, because there is no such home folder: "
            "set WEFT_CACHE_DIR to another folder, or WEFT_CACHE=0"
        )
    return _caches.setdefault((path, limit), Cache(path, limit, problem))
