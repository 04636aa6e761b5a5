"""Pooling: the maximum, mean or p-norm of each window; and their inverses."""

from __future__ import annotations

__all__: list[str] = []
