"""Windows neither replaces nor removes files that are open; its rules are imitated here."""

from __future__ import annotations

import errno
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from needs import skip_without

from weft.cache.store import Cache, CacheWarning
from weft.errors import ArgumentError
from weft.files import replacing
from weft.support import scratch
from weft.support.scratch import LOCK, YOUNG, ScratchFolder, remove_abandoned

KEY, OTHER = "a" * 40, "b" * 40


def open_files() -> set[str]:
    """Return the paths of the files that this process has open."""
    found = set()
    for handle in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{handle}"))
        except OSError:  # the one that listed them
            continue
    return found


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse what Windows refuses: to remove a file that is open, or to take its name from it."""
    skip_without("linux")

    def refusing(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def refuse(*paths: Any, **options: Any) -> Any:
            folder = options.get("dir_fd")
            parent = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")
            if os.path.realpath(os.path.join(parent, paths[place])) in open_files():
                raise PermissionError(errno.EACCES, "Access is denied", str(paths[place]))
            return function(*paths, **options)

        return refuse

    monkeypatch.setattr(os, "unlink", refusing(os.unlink, 0))
    monkeypatch.setattr(os, "replace", refusing(os.replace, 1))
    monkeypatch.setattr(scratch, "fcntl", None)


pytestmark = pytest.mark.usefixtures("windows")


def test_the_cache_leaves_a_file_that_another_process_reads(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write(KEY, b"content")
    with warnings.catch_warnings(), open(tmp_path / f"{KEY}.weft", "rb"):
        warnings.simplefilter("error", CacheWarning)
        cache.write(KEY, b"content")
        cache.write(OTHER, b"other")
    assert cache.read(KEY) == b"content"
    assert cache.read(OTHER) == b"other"
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".weft", ".weft"]


def test_a_file_that_is_open_is_said_to_be_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "weights.npz"
    path.write_bytes(b"old")
    advice = "Access is denied. Close what has it open, or name a file in a folder"
    with open(path, "rb"), pytest.raises(ArgumentError, match=advice), replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def aged(path: Path) -> Path:
    old = time.time() - 2 * YOUNG
    os.utime(path, (old, old))
    return path


def test_folders_whose_processes_are_gone_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    with ScratchFolder() as used:
        (used / "program.c").write_text("int main;")
        left = ScratchFolder()
        assert left._lock is not None
        os.close(left._lock)  # as the system does when a process ends
        unlocked = tmp_path / "weft-1-abcdefgh.scratch"
        unlocked.mkdir()
        young = tmp_path / "weft-2-abcdefgh.scratch"
        young.mkdir()
        for path in (used, left.path, unlocked):
            aged(path)
        remove_abandoned(tmp_path)
        assert set(tmp_path.iterdir()) == {used, young}
        assert {path.name for path in used.iterdir()} == {"program.c", LOCK}
    assert list(tmp_path.iterdir()) == [young]


def test_a_library_that_was_loaded_is_removed_when_it_no_longer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    with ScratchFolder() as folder:
        library = folder / "program.dll"
        library.write_bytes(b"MZ")
        loaded = open(library, "rb")  # noqa: SIM115  # it outlives the folder
    assert list(folder.iterdir()) == [library]
    with loaded:
        remove_abandoned_later(tmp_path, folder)
        assert list(folder.iterdir()) == [library]
    remove_abandoned_later(tmp_path, folder)
    assert not folder.exists()


def remove_abandoned_later(where: Path, folder: Path) -> None:
    aged(folder)
    remove_abandoned(where)
