"""Examines plugins from outside: loads them, probes devices, runs trials in processes.

A plugin may end the process that imports it, or never come back. So the commands that list plugins
have other processes do that, and say what became of them.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from weft import plugins, settings
from weft.errors import PluginError
from weft.passes.interface import PeepholeGraphPass
from weft.plugins.blame import said
from weft.plugins.entrypoints import (
    DEFAULT_BACKENDS,
    DEFAULT_PIPELINE,
    GROUPS,
    Entry,
    Key,
    discover,
    is_disabled,
    switching_off,
)
from weft.plugins.registry import BACKENDS, HOOKS, PASSES, RULES, PluginRecord
from weft.plugins.status import BackendStatus, Step, distribution_of, status_after

LIMIT = 120.0
"""The seconds that a process may take."""

_START = (
    "import json, os, sys; task = json.loads(sys.argv[1]); sys.path[:] = task['path']; "
    "from weft.cli.examination import work; work(task)"
)


@dataclass(frozen=True)
class Examined:
    """A plugin after an attempt to load it.

    Attributes
    ----------
    record
        What came of it.
    documentation
        The first line of its documentation, if it was loaded.
    kind
        Of a pass, whether it is a ``pattern`` or a ``transform``.
    """

    record: PluginRecord
    documentation: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Tried:
    """A backend: how far it gets, and whether it runs a small program; None if not tried."""

    status: BackendStatus
    runs: Step | None = None


# What the commands call


def loaded(groups: Sequence[str] = tuple(GROUPS)) -> list[Examined]:
    """Return every plugin of some groups after an attempt to load it in another process.

    Where one ends the process, another process loads those that come after it.
    """
    records = [record for record in plugins.records() if record.group in groups]
    found = {_identity(each): Examined(each) for each in records}
    waiting = list(dict.fromkeys((each.group, each.name) for each in records if each.distribution))
    while waiting:
        answer = _answer({"task": "load", "keys": waiting})
        done = 0
        for line in answer.lines:
            if "begin" in line:
                continue
            done += 1
            for record, documentation, kind in line["found"]:
                made = PluginRecord(**record)
                found[_identity(made)] = Examined(made, documentation, kind)
        if done < len(waiting):
            for each in list(found.values()):
                if (each.record.group, each.record.name) == waiting[done]:
                    reason = f"Loading it {answer.ending}"
                    failed = replace(each.record, state="failed", reason=reason)
                    found[_identity(failed)] = Examined(failed)
            done += 1
        waiting = waiting[done:]
    return list(found.values())


def statuses(with_trial: bool = False) -> list[Tried]:
    """Return how far each backend gets, several at a time, each in a process of its own.

    That of weft itself which needs no driver is looked at here, unless all are to be tried.
    """
    names = list(dict.fromkeys(record.name for record in plugins.records(BACKENDS)))
    by_hand = {each.name for each in plugins.records(BACKENDS) if each.distribution is None}

    def tried(name: str) -> Tried:
        if name in by_hand or (name == DEFAULT_BACKENDS[-1] and not with_trial):
            return Tried(plugins.backend_status(name))
        return _tried(name, with_trial)

    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(tried, names))


def _tried(name: str, with_trial: bool) -> Tried:
    answer = _answer({"task": "backend", "name": name, "try": with_trial})
    lines = {key: value for line in answer.lines for key, value in line.items()}
    if "status" not in lines:
        steps = 2 if "imported" in lines else 1
        doing = "Its probe" if steps == 2 else "Loading it"
        distribution = distribution_of(name)
        return Tried(status_after(steps, name, distribution, f"{doing} {answer.ending}", True))
    status = _status(lines["status"])
    if not (with_trial and status.usable):
        return Tried(status)
    runs = Step(**lines["runs"]) if "runs" in lines else Step(False, f"it {answer.ending}")
    if not (runs or any(entry.owner in runs.reason for entry in _third_parties())):
        runs = Step(False, runs.reason + _without(name))
    return Tried(status, runs)


def _without(backend: str) -> str:
    """Return whose fault a failure is that names nobody: that of the plugin without which it runs.

    Each third party's hooks and rules are left out in turn.
    """
    suspects = [
        entry
        for entry in _third_parties()
        if entry.group == HOOKS or (entry.group == RULES and entry.name.startswith(f"{backend}."))
    ]
    task = {"task": "backend", "name": backend, "try": True}
    off = settings.DISABLE_PLUGINS.text
    for entry in suspects:
        setting = switching_off(entry).partition("=")[2]
        answer = _answer(task, WEFT_DISABLE_PLUGINS=f"{off},{setting}")
        if any(line.get("runs", {}).get("ok") for line in answer.lines):
            return f" It runs without {entry}: {switching_off(entry)}"
    return ""


def _third_parties() -> list[Entry]:
    """Return the entries of all distributions but weft's own that are not disabled."""
    entries = [entry for same in discover().values() for entry in same]
    return [each for each in entries if not (each.is_own or is_disabled(*each.key))]


def _identity(record: PluginRecord) -> tuple[str, str, str, str | None]:
    return record.group, record.name, record.value, record.distribution


def _status(fields: dict[str, Any]) -> BackendStatus:
    steps = ("installed", "importable", "device", "usable")
    return BackendStatus(**{**fields, **{name: Step(**fields[name]) for name in steps}})


# The other process, seen from here


@dataclass(frozen=True)
class _Answer:
    """What a process said, and how it ended, as the end of a sentence."""

    lines: list[dict[str, Any]]
    ending: str


def _answer(task: dict[str, Any], **variables: str) -> _Answer:
    """Do a task in another process; what that prints is quoted if it does not end well."""
    message = json.dumps({**task, "path": sys.path})
    environment = {**os.environ, "WEFT_CACHE": "0", "WEFT_PROGRESS": "off", **variables}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _START, message],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=LIMIT,
        )
        out, err = done.stdout, done.stderr
        code = done.returncode
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"
        ending = f"did not come back: the process {how}."
    except subprocess.TimeoutExpired as error:
        out, err = error.stdout or b"", error.stderr or b""
        ending = f"did not come back within {LIMIT:g} seconds."
    printed = err.decode(errors="replace").strip()
    if printed:
        ending += " It printed: " + " / ".join(printed.splitlines()[-3:])[-400:]
    lines = [line for line in out.decode(errors="replace").splitlines() if line.startswith("{")]
    return _Answer([json.loads(line) for line in lines], ending)


# What the other process does


def work(task: dict[str, Any]) -> None:
    """Do a task and say line by line what came of it; what plugins print is not part of that."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(**line: Any) -> None:
        pipe.write(json.dumps(line) + "\n")
        pipe.flush()

    if task["task"] == "load":
        _load((tuple(key) for key in task["keys"]), say)
    else:
        _look_at(task["name"], task["try"], say)
    # Threads that a plugin left running, and what it does at exit, are not waited for.
    pipe.close()
    os._exit(0)


def _load(keys: Iterable[Key], say: Callable[..., None]) -> None:
    defaults = {
        *((BACKENDS, name) for name in DEFAULT_BACKENDS),
        *((PASSES, name) for name in DEFAULT_PIPELINE),
    }
    for key in keys:
        say(begin=key)
        offer: Any = None
        with suppress(PluginError):  # the record says why
            offer = plugins.load(*key, is_default=key in defaults)
        documentation, kind = _described(key[0], offer)
        same = [each for each in plugins.records(key[0]) if each.name == key[1]]
        say(
            found=[
                (asdict(each), *((documentation, kind) if each.state == "loaded" else ("", "")))
                for each in same
            ]
        )


def _described(group: str, offer: Any) -> tuple[str, str]:
    documentation = "" if offer is None else inspect.cleandoc(str(offer.__doc__ or ""))
    first = next(iter(documentation.splitlines()), "")
    if group != PASSES or offer is None:
        return first, ""
    return first, "pattern" if issubclass(offer, PeepholeGraphPass) else "transform"


def _look_at(name: str, with_trial: bool, say: Callable[..., None]) -> None:
    with suppress(PluginError):  # the status says why
        plugins.load(BACKENDS, name, is_default=name in DEFAULT_BACKENDS)
        say(imported=True)
    status = plugins.backend_status(name)
    say(status=asdict(status))
    if with_trial and status.usable:
        say(runs=asdict(_runs(name)))


def _runs(name: str) -> Step:
    from weft.cli.trial import try_backend

    try:
        try_backend(name)
    except (Exception, SystemExit) as error:
        return Step(False, str(error) if isinstance(error, PluginError) else said(error))
    return Step(True, "")
