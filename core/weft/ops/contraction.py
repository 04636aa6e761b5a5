"""Sums of products in Einstein's notation, and the products of tensors that it names."""

from __future__ import annotations

__all__: list[str] = []
