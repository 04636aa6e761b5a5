from __future__ import annotations

import pytest

from weft_numpy.kernels import lowering, tiling

TINY = {
    "MIN_TILE": 12,
    "MAX_TILE": 12,
    "MAX_ROW": 24,
    "STREAMED_TILE": 12,
    "MIN_COLUMNS": 2,
    "MIN_SUMMED": 2,
    "MIN_PRODUCT_ROWS": 2,
    "CACHE": 64,
    "MIN_ELEMENTS": 1,
    "MIN_THREADED": 0,
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even small kernels into tiles, and share them among threads."""
    for name, value in TINY.items():
        found = [module for module in (lowering, tiling) if hasattr(module, name)]
        assert found, name
        for module in found:
            monkeypatch.setattr(module, name, value)
