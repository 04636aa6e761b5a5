"""Compilers as processes that end with the one that started them, or when it gives up.

A compiler starts others, which outlive it if it is killed. So each has a process group of its own,
with a watcher that kills the group when its pipe to this process is closed: at the latest by the
system, when this process is gone, whatever ended it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from weft.errors import BackendError

TIME_LIMIT = 300.0
"""The seconds after which a compiler is stopped."""

SHELL = "/bin/sh"
"""The shell that watches a compiler; where there is none, it only ends with `run_all`."""

_WATCHED = """
exec 3<&0
{ read -r line <&3; kill -9 0; } >/dev/null 2>&1 &
watcher=$!
"$0" "$@" 3<&- </dev/null
status=$?
{ kill -9 $watcher; wait $watcher; } 2>/dev/null
exit $status
"""
"""A script that runs a command with a watcher, and leaves no process for others to wait for."""


def run_all(
    commands: Sequence[Sequence[str]],
    doing: str,
    folder: Path,
    on_end: Callable[[], object] | None = None,
) -> list[tuple[str, int]]:
    """Run commands at the same time, and return the output and the exit status of each.

    They run in `folder`, which also holds the files that they need for a while, and `on_end` is
    called for each when it has ended. Raises BackendError for a command that does not run, or not
    end within `TIME_LIMIT`. After an error or an interrupt none of them runs any longer.
    """
    started: list[subprocess.Popen[str]] = []
    end = time.monotonic() + TIME_LIMIT
    try:
        started.extend(_started(command, folder) for command in commands)
        results = []
        for each in started:
            results.append((_output(each, end), each.returncode))
            if on_end is not None:
                on_end()
        return results
    except subprocess.TimeoutExpired:
        problem = f"{commands[0][0]} did not end within {TIME_LIMIT:.0f} s, and was stopped"
        raise BackendError(f"{doing}: {problem}") from None
    except OSError as error:
        raise BackendError(f"{doing}: {commands[0][0]} does not run: {error}") from error
    finally:
        for each in started:
            _end(each)


def _started(command: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    is_watched = os.path.exists(SHELL)
    folders = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(folder))
    return subprocess.Popen(
        [SHELL, "-c", _WATCHED, *command] if is_watched else list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0 if os.name == "posix" else None,
        cwd=folder,
        env=os.environ | folders | {"LC_ALL": "C"},  # what it says is looked through, in English
    )


def _output(process: subprocess.Popen[str], end: float) -> str:
    """Return the output of a process that has ended."""
    stdin, process.stdin = process.stdin, None  # which communicate would close: the watcher's
    try:
        return process.communicate(timeout=max(end - time.monotonic(), 0.0))[0]
    finally:
        process.stdin = stdin


def _end(process: subprocess.Popen[str]) -> None:
    """Kill what still runs of a process and those that it started."""
    if process.poll() is None:
        with suppress(OSError):
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
