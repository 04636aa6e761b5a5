"""The OpenCL backend: one program in OpenCL C a computation, on any device that has a driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend; no driver is opened."""
    from weft_opencl.transformer import OpenCLTransformer

    register("opencl", OpenCLTransformer)
