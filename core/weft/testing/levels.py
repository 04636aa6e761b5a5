"""The levels of the conformance kit, by which a backend is tested while it is being written."""

from __future__ import annotations

import pytest

from weft_pytest import LEVELS, MARK, TOGETHER, includes

__all__ = [
    "BEHAVIOR",
    "DTYPES",
    "GRADIENTS",
    "LEVELS",
    "MARK",
    "RANDOM",
    "THREADS",
    "TOGETHER",
    "VALUES",
    "includes",
    "level",
]

VALUES, GRADIENTS, DTYPES, BEHAVIOR, THREADS, RANDOM = LEVELS


def level(name: str) -> pytest.MarkDecorator:
    """Return the mark of the tests from a level on."""
    return getattr(pytest.mark, MARK)(name)  # type: ignore[no-any-return]
