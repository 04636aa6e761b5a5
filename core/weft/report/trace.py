"""Chrome traces: a profile in the Trace Event Format, which Perfetto and Chrome open.

The format is described in "Trace Event Format" by the Chromium project: complete events (``X``)
with times in microseconds, and metadata events (``M``) that name processes and threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from weft.files import replacing
from weft.report.recorder import HOST

PROCESS = 1
CALL, HOST_WORK, DEVICE = 1, 2, 3
"""The threads of a trace: the call as a whole, Python functions, and kernels."""


def write_chrome_trace(profile: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a profile, as `Profile.to_dict` returns it; raises ArgumentError if that fails."""
    import json  # most programs write no trace

    trace = {
        "traceEvents": list(_events(profile)),
        "displayTimeUnit": "ns",
        "otherData": {key: profile[key] for key in ("computation", "backend", "device", "repeat")},
    }
    with replacing(path) as file:
        file.write(json.dumps(trace).encode())


def _events(profile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield _name_event("process_name", 0, f"weft: {profile['computation']} on {profile['backend']}")
    for thread, name in ((CALL, "call"), (HOST_WORK, "host work"), (DEVICE, profile["device"])):
        yield _name_event("thread_name", thread, name)
    events, rows = profile["events"], profile["rows"]
    yield _complete(profile["computation"], "call", CALL, 0.0, profile["call"], {})
    for number, start, end in events:
        row = rows[number]
        thread = HOST_WORK if row["kind"] == HOST else DEVICE
        about = {
            "ops": row["ops"],
            "lines": [f"{file}:{line}  {text}" for file, line, text in row["lines"]],
            "bytes": row["bytes"] / row["calls"],
            "flops": row["flops"] / row["calls"],
        }
        yield _complete(row["name"], row["kind"], thread, start, end, about)


def _complete(
    name: str, category: str, thread: int, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": start * 1e6,
        "dur": (end - start) * 1e6,
        "pid": PROCESS,
        "tid": thread,
        "args": args,
    }


def _name_event(what: str, thread: int, name: str) -> dict[str, Any]:
    about = {"name": what, "ph": "M", "pid": PROCESS, "args": {"name": name}}
    return {**about, "tid": thread}
