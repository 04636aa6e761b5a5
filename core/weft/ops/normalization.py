"""Normalisation over batches, layers, groups and instances."""

from __future__ import annotations

__all__: list[str] = []
