"""A pytest plugin that runs, for each mutant, the tests that evaluate the changed expression.

Tests are collected once. Each mutant is a fork of that process, up to its first failure.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import mutant_switch
import pytest

import weft.testing.together
import weft_pytest
from weft.plugins.status import BackendStatus, Step
from weft_opencl import drivers

SECONDS = 20.0
"""How much time of a processor the tests of a tier take for a mutant that they do not catch."""
STUCK = 120.0
"""After how many seconds a test without an end is one that caught the mutant."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--mutants", default=None, help="the folder of mutants")
    parser.addoption("--mutant-share", default="0/1", help="K/N: each Nth mutant, from the Kth")


def pytest_configure(config: pytest.Config) -> None:
    """Compute each row of the op table by itself, so that it is known what it evaluates."""
    weft.testing.together.MOST = 1


class Outcomes:
    """Tells whether a test failed."""

    failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        self.failed = self.failed or report.failed


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the time that each test takes while it is found out what it evaluates, and failures."""
    folder = os.environ.get("WEFT_MUTANT_HITS")
    if hasattr(report, "node"):
        return  # told by another process, which notes it itself
    if folder and (report.when == "call" or report.failed):
        with Path(folder, f"times-{os.getpid()}").open("a") as file:
            print(report.nodeid, report.duration, int(report.failed), sep="\t", file=file)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests of all mutants of the share."""
    folder = session.config.getoption("--mutants")
    if folder is None:
        return None
    if drivers.candidates.cache_info().currsize:
        raise pytest.UsageError("OpenCL was used while tests were collected: no fork could use it")
    share, of = map(int, session.config.getoption("--mutant-share").split("/"))
    found = Path(folder, f"found-{share}.jsonl")
    plan: dict[str, list[str]] = json.loads(Path(folder, "plan.json").read_text())
    selection = Selection(session.items)
    text = found.read_text() if found.exists() else ""
    known = {json.loads(line)["mutant"] for line in text.splitlines()}
    numbers = [*map(int, plan)]
    random.Random(0).shuffle(numbers)
    for number in numbers:
        if number % of == share and number not in known:
            line = {"mutant": number} | fate(session, number, selection.tests(plan[str(number)]))
            with found.open("a") as file:
                print(json.dumps(line), file=file, flush=True)
    return True


class Selection:
    """Which tests are run for a mutant.

    Those of `make test` that evaluate it, and then those that only `make test-all` runs and that
    are like one that evaluates it: of the same row of the op table, or else the same function.
    """

    def __init__(self, items: list[pytest.Item]) -> None:
        from tiers import TEST, members  # which pytest registers as a plugin first

        self.items = {item.nodeid: item for item in items}
        self.lower = set(members(items, TEST))
        self.others: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item not in self.lower:
                self.others.setdefault(_alike(item), []).append(item)

    def tests(self, names: list[str]) -> tuple[list[pytest.Item], list[pytest.Item]]:
        """Return the tests of `make test`, quick ones first, and the others."""
        evaluating = [self.items[name] for name in names if name in self.items]
        kinds = dict.fromkeys(map(_alike, evaluating))
        others = [item for kind in kinds for item in self.others.get(kind, ())]
        random.Random(0).shuffle(others)
        return [item for item in evaluating if item in self.lower], others


def _alike(item: pytest.Item) -> str:
    row = getattr(getattr(item, "callspec", None), "params", {}).get("row")
    return f"row {row.name}" if hasattr(row, "name") else item.nodeid.partition("[")[0]


def fate(
    session: pytest.Session, number: int, tests: tuple[list[pytest.Item], list[pytest.Item]]
) -> dict[str, Any]:
    """Return which tier catches a mutant and by which test, from a process of its own."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        os.close(reading)
        status = 1
        try:
            _be(session, number, tests, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    told = b""
    found: dict[str, Any] = {"caught": "", "by": "", "tests": [len(each) for each in tests]}
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], STUCK)
            data = pipe.read(1 << 16) if ready else b""
            told += data
            if not data:
                break
    lines = told.decode().split("\n")[:-1]
    last = json.loads(lines[-1]) if lines else {}
    if not last.get("end"):
        found |= {"caught": last.get("tier", "test"), "by": last.get("test", ""), "stuck": True}
    elif last["tier"]:
        found |= {"caught": last["tier"], "by": last["test"]}
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return found


def _be(
    session: pytest.Session,
    number: int,
    tests: tuple[list[pytest.Item], list[pytest.Item]],
    pipe: int,
) -> None:
    """Be a mutant: tell before each test which it is, and at the end what caught it."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    mutant_switch.active = number
    outcomes = Outcomes()
    session.config.pluginmanager.register(outcomes)

    def tell(tier: str, test: str, end: bool = False) -> None:
        line = json.dumps({"tier": tier, "test": test, "end": end})
        os.write(pipe, f"{line}\n".encode())

    for tier, chosen in zip(("test", "all"), tests, strict=True):
        start = _seconds()
        for place, item in enumerate(chosen):
            if _seconds() - start > SECONDS:
                break
            tell(tier, item.nodeid)
            following = chosen[place + 1] if place + 1 < len(chosen) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if outcomes.failed:
                tell(tier, item.nodeid, end=True)
                return
    tell("", "", end=True)


def _seconds() -> float:
    """Return the time that this process, and those it waited for, had a processor."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Do not start drivers before the process is forked."""
    if session.config.getoption("--mutants"):
        known = session.config.stash.setdefault(weft_pytest._statuses, {})
        yes = Step(True, "it is needed")
        for name in ("numpy", "opencl"):
            known[name] = BackendStatus(name, None, yes, yes, yes, yes)
