"""Running sums, products and extrema along an axis."""

from __future__ import annotations

__all__: list[str] = []
