"""The native backend: compiles each computation to C for the processors of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend; no compiler is run."""
    from weft_native.transformer import NativeTransformer

    register("native", NativeTransformer)
