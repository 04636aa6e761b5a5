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

REPORT = Path(__file__).with_name("support")
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


if __name__ == "__main__":
    options = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", Path(__file__).stem]
    options += ["-n", "auto", "--dist", "worksteal", "--pyargs", "weft.testing"]
    backends = [f"--weft-backend={name}" for name in BACKENDS]
    sys.exit(pytest.main([*options, *backends, f"--weft-report={REPORT}"]))
