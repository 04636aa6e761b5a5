"""Images in another resolution, and at freely chosen places."""

from __future__ import annotations

__all__: list[str] = []
