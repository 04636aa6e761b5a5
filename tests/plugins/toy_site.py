"""Puts the backend of tests/third_party/weft_toy on the path, as installing it would."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.plugins import registry

SOURCE = Path(__file__).parents[1] / "third_party" / "weft_toy"


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Have the distribution in place, with the metadata that its pyproject.toml gives it."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path, before = list(sys.path), registry._registry
    sys.path[:0] = [str(folder), str(SOURCE)]
    registry._registry = registry._Registry()
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = path
        registry._registry = before
        sys.modules.pop("weft_toy", None)
        importlib.invalidate_caches()
