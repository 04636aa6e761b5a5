"""Optimisers: updates of trainable states from gradients, as graphs."""

from __future__ import annotations

__all__: list[str] = []
