"""The OpenCL backend: compiles each computation to a program in OpenCL C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend; no driver is loaded."""
    from weft_opencl.transformer import OpenCLTransformer

    register("opencl", OpenCLTransformer)
