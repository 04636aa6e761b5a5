"""Recurrent layers: plain, gated and long short-term memory."""

from __future__ import annotations

__all__: list[str] = []
