"""Sorting, the largest elements, and what is distinct or not zero, up to a declared number."""

from __future__ import annotations

__all__: list[str] = []
