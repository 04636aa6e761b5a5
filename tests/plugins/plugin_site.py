"""Distributions that are really installed, in a folder that lasts as long as a test."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

COUNT_IMPORTS = """\
import pathlib as _pathlib
with _pathlib.Path(__file__).with_suffix(".imports").open("a") as _file:
    _file.write("x")
"""


class Site:
    """A folder of really installed distributions, each on a path of its own."""

    def __init__(self, root: Path, put_on_path: Callable[[str], None]) -> None:
        self.root = root
        self._put_on_path = put_on_path

    def install(
        self,
        distribution: str,
        entry_points: str,
        modules: dict[str, str],
        *,
        extras: tuple[str, ...] = (),
        folder: str = "",
    ) -> None:
        place = self.root / (folder or distribution)
        info = place / f"{distribution.replace('-', '_')}-1.0.0.dist-info"
        info.mkdir(parents=True)
        metadata = ["Metadata-Version: 2.1", f"Name: {distribution}", "Version: 1.0.0"]
        metadata += [f"Provides-Extra: {extra}" for extra in extras]
        (info / "METADATA").write_text("\n".join(metadata) + "\n")
        (info / "entry_points.txt").write_text(entry_points)
        for module, text in modules.items():
            (place / f"{module}.py").write_text(COUNT_IMPORTS + text)
        self._put_on_path(str(place))
        importlib.invalidate_caches()

    def imports(self, module: str) -> int:
        return sum(len(path.read_text()) for path in self.root.glob(f"*/{module}.imports"))


def backend(name: str, probe: str = "return 'a pretended device', ''") -> str:
    """Return the text of a module that registers one backend."""
    return f"""
import numpy
from weft_array_api import ArrayTransformer
from weft.plugins import hookimpl

class Engine(ArrayTransformer):
    @classmethod
    def namespace(cls):
        return numpy

    @classmethod
    def probe(cls):
        {probe}

@hookimpl
def weft_register_backends(register):
    register({name!r}, Engine)
"""
