"""Scripts of this package that run in a process of their own, which a faulty driver may end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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


def run(script: str, candidate: Candidate, patience: float, given: str = "") -> tuple[str, str]:
    """Run a script with a device, within `patience` seconds; `given` is its standard input.

    Returns the last line that it printed, empty if it failed, and how it ended. Raises OSError if
    no process can be started.
    """
    command = [
        sys.executable,
        "-P",
        "-c",
        text_of(script),
        str(candidate.platform),
        str(candidate.place),
    ]
    with drivers.intel_runtime_among_drivers(), drivers.folder_for_caches():
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        try:
            done = subprocess.run(
                command, env=environment, input=given, capture_output=True, encoding="utf-8",
                errors="replace", timeout=patience, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "", f"its driver did not end within {patience} seconds"
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return lines[-1] if lines else "", _ended(done.returncode, done.stderr)


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
