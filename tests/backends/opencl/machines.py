"""Machines with devices that are made up, and forms of one that is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import weft
from weft_opencl import scripts
from weft_opencl.transformer import OpenCLTransformer

CPU, GPU, ACCELERATOR = 2, 4, 8

FORMS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "copies": {"shares_host": False},
    "groups": {"is_serial": False, "group": 64, "shares_host": False, "access_bytes": 16},
    "maps": {"is_serial": False, "group": 128, "shares_host": False, "access_bytes": 16},
}
"""How kernels are written for the device of the tests and where memory is: as on a GPU too."""

Machine = Callable[..., None]


def transformer_for(form: str) -> OpenCLTransformer:
    made = weft.make_transformer("opencl")
    assert isinstance(made, OpenCLTransformer)
    made.processor = replace(made.processor, **FORMS[form])
    made.maps_host = form == "maps"
    return made


def fake_device(name: str, kind: int, **facts: Any) -> Any:
    """A device as pyopencl shows it."""
    known = {"host_unified_memory": True, "max_compute_units": 2, "driver_version": "1"}
    return SimpleNamespace(name=name, type=kind, **{**known, **facts})


class Driver:
    """A driver that is a script; each run of it is counted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.log = folder / "script.py", folder / "runs"
        self.log.write_text("")
        monkeypatch.setattr(scripts, "text_of", lambda script: self.path.read_text())

    def does(self, code: str) -> None:
        self.path.write_text(f"open({str(self.log)!r}, 'a').write('x')\n{code}\n")

    @property
    def runs(self) -> int:
        return len(self.log.read_text())
