"""Writes the pages that the code tells: those of functions and families, and of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import catalog
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

DESCRIBE = [sys.executable, "-m", "typer", "weft.cli.app", "utils", "docs", "--name", "weft"]


def commands() -> str:
    """Return the page of the commands, from their help texts; raises ExtensionError."""
    described = subprocess.run(DESCRIBE, capture_output=True, text=True, check=False)
    if described.returncode:
        raise ExtensionError(f"typer does not describe the commands: {described.stderr}")
    return described.stdout.replace("# `weft`", "# Commands", 1)


def write(folder: Path) -> None:
    """Write the pages that have changed."""
    pages = {f"{name}.md": text for name, text in catalog.pages().items()}
    pages["commands.md"] = commands()
    found = {path for inner in ("ops", "api") for path in folder.joinpath(inner).glob("*.md")}
    stale = found - {folder / name for name in pages}
    for path in stale:
        path.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Sphinx reads again what is newer than its last build.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for sources."""
    write(Path(app.srcdir) / "generated")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
