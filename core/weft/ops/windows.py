"""Sliding windows over a tensor, a view, and the sum of overlapping windows, its adjoint."""

from __future__ import annotations

__all__: list[str] = []
