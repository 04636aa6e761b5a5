"""Attention, its masks and its cache of keys and values; rotary embedding of places."""

from __future__ import annotations

__all__: list[str] = []
