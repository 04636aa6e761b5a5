"""The WebGPU backend: compiles each computation to compute shaders in WGSL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_register_backends(register: Callable[[str, Any], None]) -> None:
    """Register the backend; no adapter is asked for."""
    from weft_webgpu.transformer import WebGPUTransformer

    register("webgpu", WebGPUTransformer)
