"""The CuPy backend: compiles each computation to a program in CUDA C, for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend; CuPy is not imported."""
    from weft_cupy.transformer import CuPyTransformer

    register("cupy", CuPyTransformer)
