"""The NumPy backend: one generated Python function a computation, on any machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend."""
    from weft_numpy.transformer import NumPyTransformer

    register("numpy", NumPyTransformer)
