"""Convolutions in one to three dimensions, transposed ones, and their adjoints."""

from __future__ import annotations

__all__: list[str] = []
