"""A pytest plugin with which the backend `cupy` finds a GPU that is made up.

``pytest -p emulated_kit --pyargs weft.testing --weft-backend=cupy`` is the conformance kit in CUDA
C, with ``--form=opencl`` in OpenCL C; tests/backends/cuda must be on the path. ``--units=132``
makes it as large as an H200.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from emulator import Emulator
from pretended import FACTS, FORMS, Machine, install

from weft_cupy.device import Device


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--form", choices=FORMS, default="cuda", help="the dialect of kernels")
    parser.addoption(
        "--units", type=int, default=FACTS["multiProcessorCount"], help="the multiprocessors"
    )
    parser.addoption("--kernels", default=None, help="the folder of what is compiled")


def pytest_configure(config: pytest.Config) -> None:
    """Let the backend find the GPU."""
    folder = Path(config.getoption("--kernels") or mkdtemp(prefix="weft_kernels_"))
    facts = {**FORMS[config.getoption("--form")], "units": config.getoption("--units")}
    known: Any = Device.__dict__["processor"]
    changed = cached_property(lambda device: replace(known.func(device), **facts))
    changed.__set_name__(Device, "processor")
    machine = Machine(Emulator(folder), size=1 << 36)
    install(setattr, machine)
    setattr(Device, "processor", changed)  # noqa: B010
    config.stash[MACHINE] = machine


MACHINE = pytest.StashKey[Machine]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many launches there were."""
    terminalreporter.write_line(f"emulated launches: {config.stash[MACHINE].emulator.launches}")
