"""Puts the pass of this package into every pipeline.

This is a plugin of its own, so that ``WEFT_DISABLE_PLUGINS=hooks:toy`` leaves out it alone.
"""

from __future__ import annotations

from typing import Any

from weft.plugins import hookimpl

WEFT_API = "1.0"


@hookimpl
def weft_change_pipeline(pipeline: list[Any]) -> list[Any]:
    """Put the pass in front of the others, which clean up after it."""
    return ["direct-casts", *pipeline]
