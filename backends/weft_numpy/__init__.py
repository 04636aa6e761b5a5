"""The NumPy backend: compiles each computation to Python functions of NumPy calls."""

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
