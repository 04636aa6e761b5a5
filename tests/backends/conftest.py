from __future__ import annotations

import pytest

from weft_numpy import costs
from weft_numpy.kernels import fusible, kernel_values, lowering, reductions, tiling

TINY = {
    "MIN_TILE": 1,
    "MAX_TILE": 12,
    "STREAMED_TILE": 12,
    "MIN_RUN": 2,
    "MAX_ROW": 24,
    "MIN_MATMUL_ROWS": 2,
    "MATMUL_TILE": 16,
    "MIN_ELEMENTS": 1,
    "MIN_THREADED": 0.0,
    "MIN_THREADED_MATMUL": 0.0,
    "BLAS_ROW": 64,
    "MIN_BLAS_ROW": 2,
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even small kernels into tiles, and share them among threads."""
    for name, value in TINY.items():
        modules = costs, fusible, kernel_values, lowering, reductions, tiling
        found = [module for module in modules if hasattr(module, name)]
        assert found, name
        for module in found:
            monkeypatch.setattr(module, name, value)
