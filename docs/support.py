"""Runs the conformance kit and writes what it found to `support.md` and `support.json`.

On NumPy, and on the array backend with the strictest namespace there is. It takes some minutes;
`--weft-backend=opencl` on the command line of pytest tests the OpenCL backend in the same way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_strict
import pytest

import weft
from weft import plugins
from weft.hookspecs import hookimpl

REPORT = Path(__file__).with_name("support")
STRICT = "array-api-strict"


class StrictTransformer(weft.ArrayTransformer):
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


if __name__ == "__main__":
    plugins.register(StrictPlugin())
    options = ["-q", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--pyargs", "weft.testing"]
    backends = [f"--weft-backend={name}" for name in ("numpy", STRICT)]
    sys.exit(pytest.main([*options, *backends, f"--weft-report={REPORT}"]))
