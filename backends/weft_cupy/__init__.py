"""The CuPy backend: one program in CUDA C a computation, on NVIDIA GPUs."""

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
