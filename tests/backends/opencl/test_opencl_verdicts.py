"""A device is probed in a process of its own, and what was found is remembered."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from machines import CPU, Driver, fake_device

from weft.cache.store import open_cache
from weft_opencl import drivers, probe, scripts, verdicts
from weft_opencl.drivers import Candidate
from weft_opencl.verdicts import Verdict, verdict_on

pytestmark = pytest.mark.slow


@pytest.fixture
def candidate() -> Candidate:
    handle = fake_device("Sleepy", CPU)
    handle.platform = SimpleNamespace(name="Fake", version="3")
    return Candidate(0, 0, 0, handle)


@pytest.fixture(autouse=True)
def _nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_known", {})
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(tmp_path, monkeypatch)


WORKS = """print("noise")\nprint('{"wrong": "", "coherent": true}')"""

FAILURES = {
    "abort": ("import os; os.abort()", "SIGABRT"),
    "exit": ("import sys; sys.exit('LLVM ERROR: unknown CPU znver5')", "unknown CPU znver5"),
    "silence": ("pass", "status 0"),
    "other words": ("print('driver unloaded')", "status 0"),
    "another version": ("""print('{"is_fast": true}')""", "status 0"),
    "sleep": ("import time; time.sleep(60)", "within 0.5 seconds"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_driver_may_end_or_stop_the_process(
    candidate: Candidate, driver: Driver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    code, words = FAILURES[name]
    if name == "sleep":
        monkeypatch.setattr(verdicts, "PATIENCE", 0.5)
    driver.does(code)
    found = verdict_on(candidate)
    assert words in found.wrong
    assert not found.coherent


def test_a_frozen_program_tries_devices_itself_and_does_not_start_itself(
    candidate: Candidate, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.does(WORKS)
    tried = []

    def tries(*place: int) -> dict[str, Any]:
        tried.append(place)
        return {"wrong": "", "warp": 32}

    monkeypatch.setattr(scripts.sys, "frozen", True, raising=False)
    monkeypatch.setattr(probe, "verdict_on", tries)
    assert verdict_on(candidate) == Verdict("", warp=32)
    assert tried == [(candidate.platform, candidate.place)]
    assert driver.runs == 0


def test_a_verdict_costs_one_process_for_a_version_of_a_driver(
    candidate: Candidate, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.does(WORKS)
    works = Verdict("", coherent=True)
    assert [verdict_on(candidate), verdict_on(candidate)] == [works, works]
    assert driver.runs == 1
    monkeypatch.setattr(verdicts, "_known", {})  # as in another process
    assert verdict_on(candidate, again=True) == works
    assert driver.runs == 1
    candidate.handle.driver_version = "2"
    assert verdict_on(candidate) == works
    assert driver.runs == 2


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b'{"wrong": ""', b'{"is_fast": true}'])
def test_what_another_version_remembered_is_found_out_anew(
    content: bytes, candidate: Candidate, driver: Driver
) -> None:
    driver.does(WORKS)
    open_cache().write(verdicts._key(candidate.driver), content)
    assert verdict_on(candidate) == Verdict("", coherent=True)
    assert driver.runs == 1


def test_a_driver_that_did_not_work_is_asked_again_when_that_is_wanted(
    candidate: Candidate, driver: Driver
) -> None:
    driver.does("import os; os.abort()")
    assert verdict_on(candidate).wrong
    script = driver.path.read_text()
    driver.path.write_text(script.replace("import os; os.abort()", WORKS))
    assert verdict_on(candidate).wrong
    assert not verdict_on(candidate, again=True).wrong
    assert not verdict_on(candidate).wrong
    assert driver.runs == 2


def test_nothing_is_kept_where_caching_is_off(
    candidate: Candidate, driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    driver.does(WORKS)
    verdict_on(candidate)
    assert not (tmp_path / "cache").exists()


def test_no_process_can_be_started(candidate: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.sys, "executable", "/no/such/python")
    assert "no process could be started" in verdict_on(candidate).wrong


@pytest.mark.usefixtures("device")
def test_the_real_probe_finds_a_device_that_works() -> None:
    worked = [each for each in drivers.candidates() if not verdict_on(each).wrong]
    assert worked
    assert probe.verdict_on(worked[0].platform, worked[0].place)["wrong"] == ""
    assert "list index out of range" in probe.verdict_on(99, 0)["wrong"]


@pytest.mark.usefixtures("device")
@pytest.mark.filterwarnings("ignore::UserWarning")  # pyopencl's, about its cache
def test_the_probe_finds_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    handle: Any = next(e.handle for e in drivers.candidates() if not verdict_on(e).wrong)
    monkeypatch.setattr(probe, "SOURCE", probe.SOURCE.replace("+ 1.0f", "+ 1.01f"))
    assert "wrong results" in probe.probe(drivers.opencl(), handle)["wrong"]
