"""Random choices: drawn from distributions, dropped out, permuted."""

from __future__ import annotations

__all__: list[str] = []
