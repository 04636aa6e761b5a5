"""Scripts of this package that run in a process of their own, which a faulty driver may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files

from weft_opencl import drivers
from weft_opencl.drivers import Candidate

_WORDS = 60
"""The last words of an ended process that are repeated."""


def can_run() -> bool:
    """Whether an interpreter can be started: the executable of a frozen program is the program."""
    return not getattr(sys, "frozen", False)


def text_of(script: str) -> str:
    """Return the text of a script; this package may be in a zip file."""
    return files("weft_opencl").joinpath(script).read_text(encoding="utf-8")


def run(script: str, candidate: Candidate, patience: float) -> tuple[str, str]:
    """Run a script with a device, within `patience` seconds.

    Returns the last line that it printed, empty if it failed, and how it ended. Raises OSError if
    no process can be started.
    """
    with _environment() as environment:
        try:
            done = subprocess.run(
                _command(script, candidate), env=environment, capture_output=True,
                encoding="utf-8", errors="replace", timeout=patience, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "", _late(patience)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return lines[-1] if lines else "", _ended(done.returncode, done.stderr)


class Server:
    """A script that stays in a process of its own, with a device, and answers texts.

    Raises OSError if no process can be started.

    Attributes
    ----------
    has_answered
        Whether it has answered a text, so that the next one is not the first.
    """

    def __init__(self, script: str, candidate: Candidate) -> None:
        self.has_answered = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115, `forget` closes it
        try:
            with _environment() as environment:
                self._process = subprocess.Popen(
                    _command(script, candidate), env=environment, stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=self._errors,
                )  # fmt: skip
        except BaseException:
            self._errors.close()
            raise

    def answer(self, text: str, expected: str, patience: float) -> str:
        """Return how the process ended at a text; empty if the line that it printed is `expected`.

        After `patience` seconds it is ended.
        """
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self._process.kill()

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        content = text.encode()
        timer = threading.Timer(patience, end)
        timer.daemon = True
        timer.start()
        try:
            with suppress(BrokenPipeError):
                self._process.stdin.write(b"%d\n%b" % (len(content), content))
                self._process.stdin.flush()
            for line in self._process.stdout:
                if line.decode(errors="replace").rstrip() == expected:
                    self.has_answered = True
                    return ""
            status = self._process.wait()
        finally:
            timer.cancel()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace")
        return _late(patience) if is_late.is_set() else _ended(status, words)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self.forget()

    def forget(self) -> None:
        """Let go of the process, which is that of another process after a fork."""
        for file in (self._process.stdin, self._process.stdout, self._errors):
            assert file is not None
            with suppress(OSError):  # what could not be written
                file.close()
        self._process.returncode = self._process.returncode or 0  # else Popen waits for it


def _command(script: str, candidate: Candidate) -> list[str]:
    """Return the command that runs a script with a device."""
    place = str(candidate.platform), str(candidate.place)
    return [sys.executable, "-P", "-c", text_of(script), *place]


@contextmanager
def _environment() -> Iterator[dict[str, str]]:
    """Give the environment in which a script finds the drivers and modules of this process."""
    with drivers.intel_runtime_among_drivers(), drivers.folder_for_caches():
        yield {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def _late(patience: float) -> str:
    """Return the message for a driver that took too long."""
    return f"its driver did not end within {patience} seconds"


def _ended(status: int, stderr: str) -> str:
    """Return the message for a driver that ended the process."""
    if status < 0:
        how = f"signal {-status}"
        if -status in signal.valid_signals():
            how = f"{how}, {signal.Signals(-status).name}"
    else:
        how = f"status {status}"
    words = " ".join(stderr.split()[-_WORDS:])
    return f"its driver ended the process that tried it ({how}){': ' if words else ''}{words}"
