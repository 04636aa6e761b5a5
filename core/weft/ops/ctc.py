"""Connectionist temporal classification: the loss of an unaligned sequence of labels."""

from __future__ import annotations

__all__: list[str] = []
