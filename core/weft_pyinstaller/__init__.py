"""What PyInstaller asks weft for: the folder of the hook that collects weft's parts and plugins.

It stands outside the package `weft`, whose modules PyInstaller collects.
"""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """Return the folders with hooks, which PyInstaller finds by an entry point."""
    return [str(Path(__file__).parent)]
