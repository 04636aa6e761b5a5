"""Linear systems: Cholesky's decomposition, solutions, inverses, determinants."""

from __future__ import annotations

__all__: list[str] = []
