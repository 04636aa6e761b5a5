"""The same elements arranged anew: flipped, rolled, repeated, split, padded."""

from __future__ import annotations

__all__: list[str] = []
