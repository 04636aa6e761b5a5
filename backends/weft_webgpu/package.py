"""The package `wgpu`, which brings WebGPU for Vulkan, Metal and Direct3D 12; browsers have it."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from weft.errors import BackendError


@cache
def wgpu() -> Any:
    """Return the module `wgpu`; raises BackendError with instructions if it is missing.

    In a browser that is a module of the same form.
    """
    if sys.platform == "emscripten":
        from weft_webgpu import browser

        return browser
    try:
        import wgpu as found
    except ModuleNotFoundError as error:
        if error.name != "wgpu":
            raise BackendError(f"wgpu cannot be imported: {error}") from error
        raise BackendError("wgpu is not installed: pip install 'weftc[webgpu]'") from error
    except (ImportError, OSError) as error:
        raise BackendError(f"wgpu cannot be loaded: {error}: install it from a wheel") from error
    return found
