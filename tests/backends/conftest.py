from __future__ import annotations

import pytest

from weft_numpy.kernels import costs, frames, fusible, lowering, reductions, values


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even small kernels into tiles, and share them among threads."""
    for module, name, value in (
        (frames, "LEAST", 1),
        (frames, "MOST", 12),
        (frames, "ONCE", 12),
        (frames, "SHORTEST_RUN", 2),
        (frames, "LONGEST_ROW", 24),
        (frames, "ROWS", 2),
        (frames, "PRODUCT", 16),
        (costs, "SMALLEST", 1),
        (fusible, "SMALLEST", 1),
        (lowering, "THREADS_FROM", 0.0),
        (lowering, "PRODUCTS_FROM", 0.0),
        (values, "ROW", 64),
        (reductions, "ROW", 64),
        (reductions, "SHORTEST_ROW", 2),
    ):
        monkeypatch.setattr(module, name, value)
