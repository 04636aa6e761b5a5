"""Finds the public functions, each of which has a page on the site."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

NAMESPACES = (
    "weft", "weft.fft", "weft.linalg", "weft.nn", "weft.optim", "weft.random", "weft.signal",
    "weft.special",
)  # fmt: skip
"""What exports them."""


def public_functions() -> dict[Callable[..., Any], list[str]]:
    """Return the names of each public function: the first is that of its page."""
    found: dict[Callable[..., Any], list[str]] = {}
    for room in NAMESPACES:
        exported = importlib.import_module(room)
        for name in exported.__all__:
            if inspect.isfunction(value := getattr(exported, name)):
                found.setdefault(value, []).append(f"{room}.{name}")
    return {
        function: sorted(names, key=lambda name: not name.endswith(f".{function.__name__}"))
        for function, names in found.items()
    }
