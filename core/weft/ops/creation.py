"""Tensors made from nothing: ranges, identities, meshes, constants everywhere."""

from __future__ import annotations

__all__: list[str] = []
