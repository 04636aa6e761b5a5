"""The cache folder under attack: no library is loaded that somebody else may have put there."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.cache import store
from weft.cache.store import Cache, CacheWarning
from weft_native import compiler, shared_library
from weft_native.shared_library import load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("posix", "compiler"),
    pytest.mark.usefixtures("anew"),
]

TEXT = '__attribute__((visibility("default"))) int answer(void) {{ return {}; }}'
GOOD, EVIL = TEXT.format(42), TEXT.format(666)
SOMEBODY = 65534


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a cache folder that other users can reach."""
    outer = Path(tempfile.mkdtemp())
    outer.chmod(0o755)
    found = outer / "cache"
    found.mkdir(0o700)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(found))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    monkeypatch.setattr(store, "_caches", {})
    yield found
    shutil.rmtree(outer)


def evil_content(key: str) -> bytes:
    """Return a file for a key that is whole, with a library that is not the one of the key."""
    content = compiler.build(EVIL, "a test")
    return store._head(key, content) + b"\n" + content


def entry_of(folder: Path) -> Path:
    return folder / f"{compiler.key_of(GOOD)}{store.SUFFIX}"


def answer() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        shared_library._loaded.clear()
        store._caches.clear()
        return int(load(GOOD, "a test", ["answer"]).answer())


def put(path: Path, mode: int = 0o600, owner: int | None = None) -> Path:
    """Write the evil file."""
    path.write_bytes(evil_content(compiler.key_of(GOOD)))
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def test_the_attack_would_work(folder: Path) -> None:
    put(entry_of(folder))
    assert answer() == 666, "what its owner writes is trusted"


@pytest.mark.parametrize("mode", [0o622, 0o606, 0o666, 0o660])
def test_a_file_that_others_may_write_is_not_loaded(folder: Path, mode: int) -> None:
    put(entry_of(folder), mode)
    assert answer() == 42
    assert stat.S_IMODE(entry_of(folder).stat().st_mode) == 0o600, "it is written again"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722])
def test_nothing_is_loaded_from_a_folder_that_others_may_write(folder: Path, mode: int) -> None:
    put(entry_of(folder))
    before = sorted(folder.iterdir())
    folder.chmod(mode)
    assert answer() == 42
    assert sorted(folder.iterdir()) == before, "nothing is written there"


@pytest.mark.needs("root")
def test_a_file_of_somebody_else_is_not_loaded(folder: Path) -> None:
    put(entry_of(folder), 0o644, SOMEBODY)
    assert answer() == 42


@pytest.mark.needs("root")
def test_a_folder_of_somebody_else_is_not_used(folder: Path) -> None:
    put(entry_of(folder))
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert answer() == 42
    link = folder.parent / "link"
    link.symlink_to(folder)
    os.environ["WEFT_CACHE_DIR"] = str(link)
    assert answer() == 42


@pytest.mark.needs("root")
@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hard link"])
def test_a_link_to_a_file_of_somebody_else_is_not_loaded(
    folder: Path, make: Callable[[Path, Path], None]
) -> None:
    target = put(folder.parent / "evil", 0o644, SOMEBODY)
    make(target, entry_of(folder))
    assert answer() == 42
    content = evil_content(compiler.key_of(GOOD))
    assert target.read_bytes() == content, "and is not written through"


@pytest.mark.needs("root")
def test_a_folder_that_somebody_exchanges_later_gives_nothing(folder: Path) -> None:
    assert answer() == 42
    cache = store.open_cache()
    assert cache.read(compiler.key_of(GOOD)) is not None
    folder.rename(folder.parent / "away")
    folder.mkdir(0o755)
    os.chown(folder, SOMEBODY, SOMEBODY)
    put(entry_of(folder), 0o644, SOMEBODY)
    shared_library._loaded.clear()
    with pytest.warns(CacheWarning):
        assert load(GOOD, "a test", ["answer"]).answer() == 42


def test_a_file_under_the_name_of_another_is_not_loaded(folder: Path) -> None:
    load(EVIL, "a test", ["answer"])
    (other,) = [each for each in folder.iterdir() if compiler.key_of(EVIL) in each.name]
    other.rename(entry_of(folder))
    assert answer() == 42


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(store._head(compiler.key_of(GOOD), b"") + b"\n")
        file.truncate(1 << 40)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as found:
        previous = os.getcwd()
        os.chdir(path.parent)  # since addresses are short
        try:
            found.bind(path.name)
        finally:
            os.chdir(previous)


STRANGE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a folder that is not empty": lambda path: (path / "inside").mkdir(parents=True),
    "a socket": listening,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a link to a pipe": lambda path: (os.mkfifo(path.parent / "pipe"), path.symlink_to("pipe")),
    "a file of a terabyte": sparse,
    "an empty file": Path.touch,
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_no_file_of_weft_neither_stops_nor_harms(folder: Path, name: str) -> None:
    STRANGE[name](entry_of(folder))
    start = time.monotonic()
    assert answer() == 42
    assert answer() == 42
    assert time.monotonic() - start < 60
    assert Path("/dev/zero").exists()


def as_somebody(function: Callable[[], object]) -> None:
    """Call a function in a forked process of another user; fails if it raises."""
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(SOMEBODY)
            os.setuid(SOMEBODY)
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.needs("root")
def test_files_of_the_system_are_read_and_the_folder_stays_as_it_is(folder: Path) -> None:
    folder.chmod(0o755)
    assert answer() == 42
    entry_of(folder).chmod(0o644)
    before = sorted(folder.iterdir())

    def look() -> None:
        cache = Cache(folder)
        assert cache.read(compiler.key_of(GOOD)) is not None, "root wrote it"
        with pytest.warns(CacheWarning, match="cannot be kept"):
            cache.write("0" * 40, b"content")
        cache.write("1" * 40, b"content")  # without another warning

    as_somebody(look)
    assert sorted(folder.iterdir()) == before


@pytest.mark.needs("root")
def test_a_user_reads_nothing_of_a_third_one(folder: Path) -> None:
    folder.chmod(0o755)
    put(entry_of(folder), 0o644, 12345)

    def look() -> None:
        with pytest.warns(CacheWarning):
            assert Cache(folder).read(compiler.key_of(GOOD)) is None

    as_somebody(look)
    os.chown(folder, SOMEBODY, SOMEBODY)
    as_somebody(look)


@pytest.mark.needs("mounts")
def test_a_full_disk_is_said_once_and_leaves_nothing(folder: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        folder.chmod(0o700)
        cache = Cache(folder)
        with pytest.warns(CacheWarning, match="No space left"):
            cache.write("0" * 40, bytes(100_000))
        cache.write("1" * 40, bytes(10))
        assert list(folder.iterdir()) == []
        assert answer() == 42
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_file_that_is_larger_than_a_process_may_write_leaves_nothing(folder: Path) -> None:
    program = (
        "import resource, sys, warnings; from weft.cache.store import Cache\n"
        "warnings.simplefilter('ignore')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "cache = Cache(sys.argv[1]); cache.write('0' * 40, bytes(100_000))\n"
        "assert cache.read('0' * 40) is None\n"
    )
    subprocess.run([sys.executable, "-c", program, folder], check=True, timeout=120)
    assert list(folder.iterdir()) == []


def test_what_killed_writers_left_is_removed_at_the_first_write(folder: Path) -> None:
    left = folder / f"{'0' * 40}.abc123_x.tmp"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    Cache(folder).write("1" * 40, b"content")
    assert [each.name for each in folder.iterdir()] == ["1" * 40 + store.SUFFIX]


@pytest.mark.slow
def test_libraries_are_loaded_while_others_are_evicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [TEXT.format(number) for number in range(6)]
    contents = [compiler.build(text, "a test") for text in texts]
    limit = len(contents[0]) * store.SHARE + 1000  # room for four
    monkeypatch.setattr(store, "_caches", {(folder, limit): Cache(folder, limit)})
    monkeypatch.setenv("WEFT_CACHE_SIZE", str(limit / 2**20))
    is_over = threading.Event()
    problems: list[BaseException] = []

    def evict(first: int) -> None:
        cache = Cache(folder, limit)
        while not is_over.is_set():
            for number in range(first, first + 6):
                cache.write(compiler.key_of(texts[number % 6]), contents[number % 6])
            if first == 3:
                cache.clear()

    def read() -> None:
        cache = Cache(folder, limit)
        found = 0
        try:
            while not is_over.is_set() or not found:
                for text, content in zip(texts, contents, strict=True):
                    read = cache.read(compiler.key_of(text))
                    assert read is None or read == content
                    found += read is not None
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=evict, args=(first,)) for first in (0, 3)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in threads:
            each.start()
        for _ in range(5):
            for number, text in enumerate(texts):
                shared_library._loaded.clear()
                assert load(text, "a test", ["answer"]).answer() == number
        is_over.set()
        for each in threads:
            each.join()
    assert problems == []
