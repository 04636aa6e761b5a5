"""For the tests of the kit: what they compile stays out of the user's cache."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(weft_cache_folder: str) -> None:
    """Have a folder for this run."""
