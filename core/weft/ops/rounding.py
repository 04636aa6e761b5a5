"""Rounding, and what a float is: its sign, whether it is finite, its neighbours; complex parts."""

from __future__ import annotations

__all__: list[str] = []
