"""Runs the conformance kit and writes what it found to `support.md` and `support.json`.

On NumPy, on the array backend with the strictest namespace there is, and on OpenCL. It takes about
ten minutes on two cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import pytest

import weft_array_api
from weft import plugins
from weft.plugins import hookimpl

REPORT = Path(__file__).parents[1] / "support"
STRICT = "array-api-strict"
BACKENDS = ("numpy", "native", STRICT, "opencl")


class StrictTransformer(weft_array_api.ArrayTransformer):
    """The array backend on array-api-strict."""

    transformer_name = STRICT

    @classmethod
    def namespace(cls) -> Any:
        """Return the namespace."""
        return array_api_strict


class StrictPlugin:
    """Makes it a backend."""

    @hookimpl
    def weft_register_backends(self, register: Callable[[str, Any], None]) -> None:
        """Register the backend."""
        register(STRICT, StrictTransformer)


def pytest_configure() -> None:
    """Register the backend in each process of pytest-xdist, of whose pytest this is a plugin."""
    plugins.register(StrictPlugin())


SYSTEMS = """
## Systems

All of this was found on Linux on x86-64. Of other systems this is known:

| target | C of the native backend | Python |
| --- | --- | --- |
| Linux on x86-64 | compiled by GCC 12, 14 and 16, Clang 14, 19 and 21, and Zig, run | run |
| Linux on AArch64 | compiled by Zig and GCC 14, run under QEMU | `weft doctor` run under QEMU |
| Linux on RISC-V, 64 bits | compiled by Zig, run under QEMU | not run |
| Windows on x86-64 | compiled by Zig, run under Wine | not run |
| Windows on AArch64 | compiled by Zig, not run | not run |
| macOS on x86-64, and on ARM | compiled by Zig, not run | not run |

The C is that of five programs (elementwise, a reduction, a product, a convolution and a loop) as
the backend compiles it and as `export_c` writes it, with the runtime and its threads; the command
is `make test-targets`.
[Install](install.md#what-was-tried-where) says what of the Python side was imitated.
"""

MACHINES = """
## Machines

"""
"""The heading of what `tests/machines` writes, which is kept."""


if __name__ == "__main__":
    options = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", Path(__file__).stem]
    options += ["-n", "auto", "--dist", "worksteal", "--pyargs", "weft.testing"]
    backends = [f"--weft-backend={name}" for name in BACKENDS]
    before = REPORT.with_suffix(".md").read_text(encoding="utf-8")
    status = pytest.main([*options, *backends, f"--weft-report={REPORT}"])
    with REPORT.with_suffix(".md").open("a", encoding="utf-8") as file:
        file.write(SYSTEMS + MACHINES + before.partition(MACHINES)[2])
    sys.exit(status)
