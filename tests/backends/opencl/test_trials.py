"""A program is tried in another process where the driver's compiler may end the process."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machines import Driver, transformer_for

import weft
from weft.errors import BackendError
from weft_opencl import drivers, scripts, trial, trials
from weft_opencl.devices import best

ABORTS = "import os; os.abort()"
READS = """
import sys
size = sys.stdin.buffer.readline()
if not size: sys.exit()
source = sys.stdin.buffer.read(int(size)).decode()
"""
ANSWERS = f"print('noise'); print({trial.ENDED!r}, flush=True)"
WORKS = f"{READS}\n{ANSWERS}"
FAILURES = {
    "abort": (ABORTS, "SIGABRT"),
    "exit": ("import sys; sys.exit('LLVM ERROR: cannot select')", "cannot select"),
    "silence": ("pass", "status 0"),
    "sleep": ("import time; time.sleep(60)", "within 0.5 seconds"),
}


@pytest.mark.parametrize(
    ("platform", "version", "needed"),
    [
        (drivers.POCL, "OpenCL 3.0 PoCL 7.1  Linux, Release, RELOC, SPIR-V, LLVM 21.1.8", True),
        (drivers.POCL, "OpenCL 3.0 PoCL 12.0  Linux", True),
        (drivers.POCL, "OpenCL 3.0 PoCL 6.0  Linux, Release, RELOC, SPIR-V, LLVM 19.1.7", False),
        (drivers.POCL, "OpenCL 3.0", False),
        (drivers.INTEL, "OpenCL 3.0 LINUX", False),
    ],
)
def test_drivers_that_have_ended_processes_are_known(
    platform: str, version: str, needed: bool
) -> None:
    handle = SimpleNamespace(platform=SimpleNamespace(name=platform, version=version))
    assert trials.is_needed(handle) is needed


@pytest.fixture
def driver(device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Have the device's driver be one that is tried, and that works or not as a script does."""
    monkeypatch.setattr(trials, "is_needed", lambda handle: True)
    monkeypatch.setattr(trials, "_known", {})
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    trials.close_servers()
    yield Driver(tmp_path, monkeypatch)
    trials.close_servers()


def compute() -> Any:
    """Compile a program anew and run it."""
    x = weft.placeholder((3,))
    with weft.make_transformer("opencl", cache=False) as transformer:
        return transformer.computation(x * 2, x)(np.ones(3, np.float32)).tolist()


@pytest.mark.parametrize("name", FAILURES)
def test_an_ended_process_is_an_error_with_the_kernel_and_the_users_line(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    code, words = FAILURES[name]
    driver.does(code)
    if name == "sleep":
        monkeypatch.setattr(trials, "PATIENCE", 0.5)
    with pytest.raises(BackendError) as caught:
        compute()
    message = str(caught.value)
    assert words in message
    assert "this is an error of the driver" in message
    assert f'File "{__file__}"' in message
    assert "void multiply_" in message, "the kernel's text"


def test_only_the_kernel_that_fails_is_shown(driver: Driver) -> None:
    """The driver aborts in a kernel of 64 work items, which has no other functions."""
    driver.does(f"{READS}\nimport os\nif '(64, 1, 1)' in source: os.abort()\n{ANSWERS}")
    x = weft.placeholder((1, 4000))
    with transformer_for("groups") as transformer:
        computation = transformer.computation(weft.sum(weft.exp(x)) * weft.tanh(x), x)
        with pytest.raises(BackendError, match="cannot compile the kernel") as caught:
            computation(np.ones((1, 4000), np.float32))
    assert driver.runs > 1
    assert "reqd_work_group_size(64" in str(caught.value)


def test_a_program_is_tried_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.does(WORKS)
    assert compute() == [2, 2, 2]
    assert compute() == [2, 2, 2]
    assert driver.runs == 1
    monkeypatch.setattr(trials, "_known", {})  # as in another process
    assert compute() == [2, 2, 2]
    assert driver.runs == 1


def test_a_failure_is_remembered_too(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.does(ABORTS)
    for _ in range(2):
        with pytest.raises(BackendError, match="SIGABRT"):
            compute()
        runs = driver.runs
        monkeypatch.setattr(trials, "_known", {})
    assert driver.runs == runs


COUNTS = f"""
import os, sys
for count in range(9):
{textwrap.indent(READS, "    ")}
    if "tan" in source and count: os.abort()
    {ANSWERS}
"""


def compute_each(*functions: Any) -> None:
    x = weft.placeholder((3,))
    with weft.make_transformer("opencl", cache=False) as transformer:
        for function in functions:
            transformer.computation(function(x), x)(np.ones(3, np.float32))


def test_one_process_tries_many_programs(driver: Driver) -> None:
    driver.does(COUNTS)
    compute_each(weft.exp, weft.sin, weft.cos)
    assert driver.runs == 1


def test_a_process_that_ends_after_other_programs_blames_none(driver: Driver) -> None:
    driver.does(COUNTS)
    compute_each(weft.exp, weft.tan)
    assert driver.runs == 2


@pytest.mark.needs("posix")
def test_the_process_outlives_a_forked_one(driver: Driver) -> None:
    driver.does(COUNTS)
    compute_each(weft.exp)
    child = os.fork()
    if not child:
        try:
            trials.close_servers()  # as at the end of Python
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    compute_each(weft.cos)
    assert driver.runs == 1


def test_no_process_can_be_started(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(scripts.sys, "executable", "/no/such/python")
        with pytest.raises(BackendError, match="no process could be started"):
            compute()
    driver.does(WORKS)
    assert compute() == [2, 2, 2], "that was no fault of the program"


@pytest.mark.usefixtures("device")
def test_a_real_trial_compiles_what_the_driver_can_and_what_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "_known", {})
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    trials.close_servers()
    handle = best(None)[0].handle
    assert trials.trouble_with("__kernel void f(__global int *x) { x[0] = 'é'; }", handle) == ""
    assert trials.trouble_with("an error of the program, not of the driver", handle) == ""
