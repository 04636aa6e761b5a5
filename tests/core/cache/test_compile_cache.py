from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from weft.cache.store import (  # fmt: skip
    ABANDONED,
    FORMAT,
    SUFFIX,
    Cache,
    CacheWarning,
    default_folder,
    is_off,
    open_cache,
)
from weft.cli.app import app
from weft.errors import ArgumentError

KEY, OTHER = "a" * 40, "b" * 40
CONTENT = bytes(range(256)) * 10


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def file_of(cache: Cache, key: str = KEY) -> Path:
    return cache.folder / f"{key}{SUFFIX}"


def test_what_is_written_is_read(cache: Cache) -> None:
    assert cache.read(KEY) is None
    cache.write(KEY, CONTENT)
    cache.write(OTHER, b"")
    assert (cache.read(KEY), cache.read(OTHER)) == (CONTENT, b"")
    cache.write(KEY, CONTENT[::-1])
    assert Cache(cache.folder).read(KEY) == CONTENT[::-1]
    assert {path.name for path in cache.folder.iterdir()} == {KEY + SUFFIX, OTHER + SUFFIX}


def test_files_and_folder_are_for_their_owner_only(cache: Cache) -> None:
    cache.write(KEY, CONTENT)
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert file_of(cache).stat().st_mode & 0o777 == 0o600


def warned_once(problem: str, *actions: Callable[[], Any]) -> list[Any]:
    with pytest.warns(CacheWarning) as caught:
        results = [action() for action in actions]
    assert len(caught) == 1
    assert re.search(problem, str(caught[0].message))
    return results


def copied(cache: Cache) -> None:
    cache.write(OTHER, CONTENT)
    file_of(cache).write_bytes(file_of(cache, OTHER).read_bytes())


def edited(cache: Cache, change: slice, by: bytes) -> None:
    whole = bytearray(file_of(cache).read_bytes())
    whole[change] = by
    file_of(cache).write_bytes(whole)


DAMAGE = {
    "empty": lambda cache: edited(cache, slice(None), b""),
    "foreign": lambda cache: edited(cache, slice(None), b"PNG\n\x00\x00" * 20),
    "truncated": lambda cache: edited(cache, slice(-1, None), b""),
    "cut in the head": lambda cache: edited(cache, slice(20, None), b""),
    "longer": lambda cache: edited(cache, slice(10**6, None), b"\n"),
    "wrong magic": lambda cache: edited(cache, slice(0, 4), b"WEFT"),
    "another format": lambda cache: edited(cache, slice(11, 12), b"9"),
    "wrong digest": lambda cache: edited(cache, slice(60, 61), b"-"),
    "changed content": lambda cache: edited(cache, slice(-5, -4), b"!"),
    "of another key": copied,
    "writeable by others": lambda cache: file_of(cache).chmod(0o622),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_not_used_and_written_again(cache: Cache, damage: str) -> None:
    cache.write(KEY, CONTENT)
    before = file_of(cache).read_bytes()
    DAMAGE[damage](cache)
    assert file_of(cache).read_bytes() != before or "others" in damage
    problem = f"{KEY}.* is damaged or not of weft"
    assert warned_once(problem, lambda: cache.read(KEY), lambda: cache.read(KEY)) == [None, None]
    cache.write(KEY, CONTENT)
    assert cache.read(KEY) == CONTENT


def test_a_folder_that_cannot_be_made_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    cache = Cache(tmp_path / "file" / "cache")
    writes = [lambda: cache.write(KEY, CONTENT), lambda: cache.write(OTHER, CONTENT)]
    warned_once("cannot be kept in", *writes)
    assert cache.read(KEY) is None
    assert (cache.usage(), cache.clear()) == ((0, 0), 0)


def test_a_read_only_folder_is_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    cache.write(KEY, CONTENT)
    again = Cache(cache.folder)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)  # the superuser may write anywhere
    writes = [lambda: again.write(OTHER, CONTENT)] * 2
    warned_once("cannot be kept in .*read-only", *writes)
    assert (again.read(KEY), again.read(OTHER)) == (CONTENT, None)


def test_a_folder_that_others_may_write_is_not_used(cache: Cache) -> None:
    cache.write(KEY, CONTENT)
    os.chmod(cache.folder, 0o777)
    again = Cache(cache.folder)
    uses = [lambda: again.read(KEY), lambda: again.write(OTHER, CONTENT)]
    assert warned_once("because others may write there", *uses) == [None, None]
    assert again.usage()[0] == 1


def aged(cache: Cache, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file_of(cache, key), (then, then))


def test_what_was_used_longest_ago_goes_when_the_folder_is_full(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=20_000)
    keys = [f"{number:040}" for number in range(8)]
    for number, key in enumerate(keys[:7]):
        cache.write(key, bytes(2_500))
        aged(cache, key, 1_000 - number)
    assert cache.usage()[0] == 7
    assert cache.read(keys[0]) is not None  # used just now
    cache.write(keys[7], bytes(2_500))
    left = {path.name.removesuffix(SUFFIX) for path in tmp_path.iterdir()}
    assert left == {keys[0], *keys[3:]}
    assert cache.usage()[1] <= cache.limit


def test_files_of_other_processes_count(tmp_path: Path) -> None:
    one, other = Cache(tmp_path, limit=10_000), Cache(tmp_path, limit=10_000)
    for number in range(3):
        one.write(f"{number:040}", bytes(2_400))
    for number in range(3, 6):
        other.write(f"{number:040}", bytes(2_400))
    assert one.usage()[1] <= 10_000


def test_content_that_would_fill_the_folder_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    cache.write(KEY, bytes(2_600))
    cache.write(OTHER, bytes(2_400))
    assert (cache.read(KEY), cache.read(OTHER)) == (None, bytes(2_400))


def test_what_killed_writers_left_is_removed_later(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=8_000)
    old, new = tmp_path / f"{KEY}.old.tmp", tmp_path / f"{KEY}.new.tmp"
    for path in (old, new):
        path.write_bytes(bytes(1000))
    then = time.time() - ABANDONED - 10
    os.utime(old, (then, then))
    for number in range(4):
        cache.write(f"{number:040}", bytes(1_900))
    assert (old.exists(), new.exists()) == (False, True)
    cache.clear()
    assert list(tmp_path.iterdir()) == []


def test_other_peoples_files_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=8_000)
    names = [
        "notes.weft", "thesis.tmp", ".tmp", "model.weft.bak", f"{'A' * 40}.weft", f"{KEY}.weft~",
        f"{KEY[1:]}.weft", f"{KEY}.txt", f"x{KEY}.weft", f"{KEY}..tmp", f".{KEY}.weft",
    ]  # fmt: skip
    then = time.time() - 10 * ABANDONED
    for name in names:
        (tmp_path / name).write_bytes(bytes(5_000))
        os.utime(tmp_path / name, (then, then))
    (tmp_path / f"{'c' * 40}.weft").mkdir()
    for number in range(6):
        cache.write(f"{number:040}", bytes(1_900))
    assert cache.usage()[1] <= 8_000
    assert cache.clear() >= 3
    assert {path.name for path in tmp_path.iterdir()} == {*names, f"{'c' * 40}.weft"}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(f"weft-cache {FORMAT} {KEY} {'0' * 40}\n".encode())
        file.truncate(2 * 10**12)


def linked(path: Path) -> None:
    path.symlink_to("/dev/zero")


def looped(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [fifo, sparse, linked, looped, Path.mkdir])
def test_what_is_no_file_of_weft_stops_nothing(cache: Cache, make: Callable[[Path], None]) -> None:
    cache.write(OTHER, CONTENT)
    try:
        make(file_of(cache))
    except OSError as error:
        pytest.skip(f"such a file cannot be made here: {error}")
    before = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        assert cache.read(KEY) is None
        cache.write(KEY, CONTENT)
        assert cache.read(KEY) == (None if make is Path.mkdir else CONTENT)
    assert cache.read(OTHER) == CONTENT
    assert time.monotonic() - before < 60
    cache.clear()


HOMELESS = """
import pwd, warnings
import weft

def missing(user):
    raise KeyError(user)

pwd.getpwuid = missing
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        x = weft.placeholder((3,))
        with weft.make_transformer("numpy") as transformer:
            print(transformer.computation(x * (2 + _), x)([1, 2, 3]).tolist())
print([str(each.message)[:60] for each in caught])
from weft.cli.app import app
app(["cache"], standalone_mode=False)
app(["cache", "clear"], standalone_mode=False)
"""


@pytest.mark.needs("posix")
@pytest.mark.parametrize("named", [None, "~nobody-at-all/weft"])
def test_a_user_without_a_home_is_told_once(named: str | None, tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "200"}
    for name in ("HOME", "XDG_CACHE_HOME", "WEFT_CACHE_DIR"):
        environment.pop(name, None)
    if named is not None:
        environment["WEFT_CACHE_DIR"] = named
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second, told, *_ = done.stdout.splitlines()
    assert (first, second) == ("[2.0, 4.0, 6.0]", "[3.0, 6.0, 9.0]")
    assert told.count("compiled programs are not kept in ~") == 1, told
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys, itertools
from weft.cache.store import Cache
cache = Cache(sys.argv[1])
print("ready", flush=True)
for number in itertools.count():
    cache.write("a" * 40, bytes([number % 256]) * 3_000_000)
"""


def test_killed_writers_leave_nothing_half_written(cache: Cache) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(cache.folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    seen = set()
    for number, writer in enumerate(writers):
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        until = time.monotonic() + 0.3 + 0.1 * number
        while time.monotonic() < (until if seen else until + 60):
            content = cache.read(KEY)
            if content is not None:
                seen.add((len(content), len(set(content))))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    assert seen == {(3_000_000, 1)}
    content = cache.read(KEY)
    assert content is not None
    assert len(set(content)) == 1


def test_clearing_in_the_middle_of_a_write_is_no_error(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def replace(source: str, target: str) -> None:
        Cache(cache.folder).clear()
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        cache.write(KEY, CONTENT)
    assert cache.read(KEY) is None
    cache.write(KEY, CONTENT)
    assert cache.read(KEY) == CONTENT


@pytest.mark.parametrize("value", ["0", "off", "No", " false "])
def test_the_variable_switches_it_off(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("WEFT_CACHE", value)
    assert is_off()
    for other in ("", "1", "yes"):
        monkeypatch.setenv("WEFT_CACHE", other)
        assert not is_off()


def test_the_folder_is_the_users_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "here"))
    assert default_folder() == tmp_path / "here"
    assert open_cache() is open_cache()
    assert open_cache(tmp_path).folder == tmp_path
    monkeypatch.delenv("WEFT_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert default_folder().name == "weft"
    assert default_folder().is_relative_to(tmp_path)


def test_the_size_is_in_megabytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert open_cache(tmp_path).limit == 512 * 2**20
    monkeypatch.setenv("WEFT_CACHE_SIZE", "1.5")
    assert open_cache(tmp_path).limit == 3 * 2**19
    for wrong in ("much", "nan", "inf"):
        monkeypatch.setenv("WEFT_CACHE_SIZE", wrong)
        with pytest.raises(
            ArgumentError, match=f"WEFT_CACHE_SIZE={wrong} is not a number of megabytes"
        ):
            open_cache(tmp_path)


@pytest.fixture
def _own_folder(monkeypatch: pytest.MonkeyPatch, cache: Cache) -> None:
    monkeypatch.setenv("WEFT_CACHE_DIR", str(cache.folder))
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.mark.usefixtures("_own_folder")
def test_the_command_shows_and_clears(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*arguments: str) -> str:
        found = CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)
        assert found.exit_code == 0
        return " ".join(found.output.split())

    assert f"{cache.folder} │ 0 │ 0 " in command()
    cache.write(KEY, CONTENT)
    assert f"{cache.folder} │ 1 │ {file_of(cache).stat().st_size} " in command()
    assert command("clear") == f"removed 1 file from {cache.folder}"
    assert f"{cache.folder} │ 0 │ 0 " in command()
    monkeypatch.setenv("WEFT_CACHE", "0")
    assert "WEFT_CACHE switches it off" in command()


def test_reading_and_writing_warn_of_nothing_else(cache: Cache) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.write(KEY, CONTENT)
        cache.read(KEY)
        cache.read(OTHER)


def test_tests_have_a_cache_of_their_own(weft_cache_folder: str) -> None:
    assert default_folder() == Path(weft_cache_folder)
