"""Compilers as processes: what hangs, is cut off or killed leaves nothing, and is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import BackendError
from weft.support import scratch
from weft.support.scratch import ScratchFolder, remove_abandoned
from weft_native import compiler, processes, shared_library
from weft_native.shared_library import damage, load
from weft_native.transformer import NativeTransformer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("posix", "compiler"),
    pytest.mark.usefixtures("anew"),
]

ANSWER = '__attribute__((visibility("default"))) int answer(void) { return 42; }'
PROGRAM = """
import numpy as np, weft
x = weft.placeholder((5,))
t = weft.make_transformer("native")
print(t.computation(weft.exp(x) * 3 - 1, x)(np.arange(5, dtype=np.float32)).tolist())
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let caches and scratch folders be those of the test."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a script the compiler, which only answers for its macros as the real one, ``$REAL``."""

    real = " ".join(compiler.command())

    def make(text: str) -> Path:
        path = tmp_path / "compiler"
        whole = f'#!/bin/sh\ncase "$*" in *-dM*) exec $REAL "$@";; esac\n{text}\n'
        path.write_text(whole.replace("$REAL", real))
        path.chmod(0o755)
        compiler.command.cache_clear()
        compiler.identity.cache_clear()
        monkeypatch.setenv("WEFT_CC", str(path))
        return path

    return make


def scratch_folders(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "scratch").iterdir())


def running(mark: str) -> list[str]:
    """Return the commands that are running with a mark among their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if mark in words:
            found.append(words)
    return found


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)


COMMANDS = ("gcc '", 'gcc "-O2', "gcc \\", "'", "''", "/", "gcc-no-such 'x'", "\t")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_cannot_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("WEFT_CC", command)
    if command.strip():
        with pytest.raises(BackendError) as caught:
            NativeTransformer.probe()
        assert f"WEFT_CC={command.strip()!r} is not a command" in caught.value.problem
    else:
        assert compiler.command()


def test_a_compiler_that_has_gone_is_named(script: Callable[[str], Path]) -> None:
    script("exit 0").unlink()
    with pytest.raises(BackendError, match="is not a command"):
        load(ANSWER, "a test", ["answer"])
    path = script("exit 0")
    assert compiler.command() == (str(path),)
    path.unlink()
    with pytest.raises(BackendError, match="is gone"):
        load(ANSWER, "a test", ["answer"])


# What a compiler makes


def test_what_is_cut_off_anywhere_is_seen_before_it_is_loaded() -> None:
    whole = compiler.build(ANSWER, "a test")
    assert damage(whole) == ""
    assert all(damage(whole[:length]) for length in range(len(whole)))
    assert damage(b"\x7fELF" + b"\xff" * 5000) == "cut off"
    assert damage(b"#!/bin/sh\n") == "no library"


LAST = 'for out; do case "$before" in -o) found=$out;; esac; before=$out; done\n'
BROKEN = {
    "half": ('$REAL "$@"; head -c 1000 "$found" > "$found.2"; mv "$found.2" "$found"', "cut off"),
    "nothing": (': > "$found"', "no library"),
    "text": ('echo hello > "$found"', "no library"),
    "another": ('echo "int x;" | $REAL -shared -fPIC -x c - -o "$found"', "no function answer"),
    "object": ('echo "int x;" | $REAL -c -x c - -o "$found"', "cut off|loading a test"),
    "folder": ('mkdir "$found"', "no room for its files"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_not_the_library_is_refused(
    script: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    text, message = BROKEN[name]
    path = script(LAST + text)
    with pytest.raises(BackendError, match=message) as caught:
        load(ANSWER, "a test", ["answer"])
    assert str(path) in str(caught.value) or name in ("object", "folder")
    assert scratch_folders(tmp_path) == []


def test_a_library_in_the_cache_that_is_not_whole_is_made_again() -> None:
    whole = compiler.build(ANSWER, "a test")
    cache = shared_library.open_cache()
    cache.write(compiler.key_of(ANSWER), whole[:1000])
    assert load(ANSWER, "a test", ["answer"]).answer() == 42


# Processes that hang, and those that are killed


@pytest.mark.parametrize("units", [1, 3])
def test_a_compiler_that_hangs_is_stopped_with_all_it_started(
    script: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, units: int
) -> None:
    path = script(f"sh -c 'sleep 321; : {tmp_path}' & sleep 321; : {tmp_path}")
    monkeypatch.setattr(processes, "TIME_LIMIT", 0.7)
    start = time.monotonic()
    with pytest.raises(
        BackendError, match=r"compiling a test: .* did not end within 1 s"
    ) as caught:
        compiler.build("int x;", "a test", units=units)
    assert time.monotonic() - start < 20
    assert str(path) in str(caught.value)
    wait_for(lambda: not running(str(tmp_path)))
    assert scratch_folders(tmp_path) == []


def started(script: Callable[[str], Path], tmp_path: Path) -> subprocess.Popen[str]:
    """Start a process, and return it when its compiler hangs, with a process that this started."""
    script(f": > {tmp_path}/hangs; sh -c 'sleep 321; : {tmp_path}' & sleep 321; : {tmp_path}")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: (tmp_path / "hangs").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    wait_for(lambda: running(f"sleep 321; : {tmp_path}"))
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_no_compiler_outlives_its_process(
    script: Callable[[str], Path], tmp_path: Path, number: signal.Signals
) -> None:
    process = started(script, tmp_path)
    start = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - start < 20
    assert process.returncode == (-number if number != signal.SIGINT else -signal.SIGINT)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
    wait_for(lambda: not running(f"sleep 321; : {tmp_path}"))
    left = scratch_folders(tmp_path)
    assert len(left) == (0 if number == signal.SIGINT else 1)
    for each in left:
        old = time.time() - 2 * scratch.YOUNG
        os.utime(each, (old, old))
    scratch._remove_abandoned_once.cache_clear()
    with ScratchFolder() as own:
        assert scratch_folders(tmp_path) == [own]


# Scratch folders


def test_only_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    used = ScratchFolder()
    kept = [folder / "weft-results", folder / "weft-1-abcdefgh", folder / "weft-12.scratch"]
    gone = folder / "weft-1-abcdefgh.scratch"
    for each in (*kept, gone):
        each.mkdir()
        (each / "file").touch()
    (folder / "weft-2-abcdefgh.scratch").symlink_to(tmp_path)
    (folder / "weft-3-abcdefgh.scratch").write_text("a file")
    young = folder / "weft-4-abcdefgh.scratch"
    young.mkdir()
    before = set(scratch_folders(tmp_path))
    remove_abandoned(folder)
    assert set(scratch_folders(tmp_path)) == before, "all are young"
    old = time.time() - 2 * scratch.YOUNG
    for each in before - {young}:
        os.utime(each, (old, old), follow_symlinks=False)
    remove_abandoned(folder)
    assert set(scratch_folders(tmp_path)) == before - {gone}
    used.close()
    used.close()
    assert set(scratch_folders(tmp_path)) == before - {gone, used.path}


def test_a_forked_process_removes_no_folder(tmp_path: Path) -> None:
    folder = ScratchFolder()
    child = os.fork()
    if not child:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.exists()
    folder.close()
    assert not folder.path.exists()


def test_without_a_shell_compilers_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "SHELL", "/no/such/shell")
    assert load(ANSWER, "a test", ["answer"]).answer() == 42
    with pytest.raises(BackendError, match="/no/such/compiler does not run"):
        processes.run_all([["/no/such/compiler"]], "a test", tmp_path)


@pytest.mark.needs("linux")
def test_without_a_temporary_folder_a_library_is_loaded_from_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise OSError("no room")

    monkeypatch.setattr(shared_library, "ScratchFolder", full)
    assert load(f"{ANSWER}/* from memory */", "a test", ["answer"]).answer() == 42
