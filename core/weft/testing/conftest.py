"""Fixtures of the kit's own tests: they compile into a cache folder of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(weft_cache_folder: str) -> None:
    """Use a cache folder for this run."""
