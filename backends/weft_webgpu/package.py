"""The package `wgpu`, which brings WebGPU for Vulkan, Metal and Direct3D 12; browsers have it."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from typing import Any

from weft.errors import BackendError
from weft_webgpu import browser

NATIVE = ("Vulkan", "Metal", "DX12")
"""The interfaces that are asked for adapters: OpenGL lacks features, and takes seconds to load."""


@cache
def wgpu() -> Any:
    """Return the module `wgpu`; raises BackendError with instructions if it is missing.

    In a browser that is a module of the same form.
    """
    if sys.platform == "emscripten":
        return browser
    try:
        import wgpu as found
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except ModuleNotFoundError as error:
        if error.name != "wgpu":
            raise BackendError(f"wgpu cannot be imported: {error}") from error
        raise BackendError("wgpu is not installed: pip install 'weftc[webgpu]'") from error
    except (ImportError, OSError) as error:
        raise BackendError(f"wgpu cannot be loaded: {error}: install it from a wheel") from error
    with suppress(RuntimeError):  # somebody has listed adapters already
        set_instance_extras(backends=NATIVE)
    return found
