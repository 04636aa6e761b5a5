from __future__ import annotations

import pytest

from weft.runtime import profiling


@pytest.fixture(autouse=True)
def _small_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the rates of the machine with little work."""
    monkeypatch.setattr(profiling, "COPY_SIZE", 1 << 12)
    monkeypatch.setattr(profiling, "PRODUCT_SIZE", 64)
