"""Elements taken and put by indices that are tensors themselves."""

from __future__ import annotations

__all__: list[str] = []
