"""Draws the layers of weft, as import-linter checks them, with what each package says of itself."""

from __future__ import annotations

import ast
import tomllib
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
IMAGE = Path(__file__).parents[1] / "images" / "layers.svg"
SOURCES = ("core", "codegen", "backends", "passes", "frontends", "communicators")
WIDTH, ROW, GAP, MARGIN, LABEL = 960, 34, 6, 16, 200
STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:13px;fill:#1b1f24}"
    ".name{font-weight:600}.what{font-size:12px;fill:#57606a}"
    ".core{fill:#ddf4ff}.above{fill:#fff1e5}rect{stroke:#d0d7de}"
)


class Package(NamedTuple):
    """A package, and the first line of its docstring."""

    name: str
    sentence: str


def layers() -> tuple[list[list[str]], list[list[str]]]:
    """Return the layers above the core and those of the core, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    found = {
        tuple(each.get("containers", ())): [
            [name.strip() for name in layer.split("|")] for layer in each["layers"]
        ]
        for each in contracts
        if each["type"] == "layers"
    }
    core, above = found["weft",], found[()]
    inside = [[f"weft.{name}" for name in layer] for layer in core if layer != ["__main__"]]
    return [layer for layer in above if layer != ["weft"]], inside


def package(name: str) -> Package:
    """Return what a package, or a module, says of itself."""
    place = Path(*name.split("."))
    for source in SOURCES:
        folder = ROOT / source / place
        file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if file.exists():
            doc = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            return Package(name, doc.partition("\n")[0])
    raise FileNotFoundError(f"no source folder holds {name}")


def picture() -> str:
    """Return the picture as SVG: a row for each layer, which imports only those below it."""
    above, core = layers()
    rows = [("above", layer) for layer in above] + [("core", layer) for layer in core]
    lines: list[str] = []
    y = MARGIN
    for kind, layer in rows:
        packages = [package(name) for name in layer]
        height = ROW * len(packages)
        lines.append(
            f'<rect class="{kind}" x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" '
            f'height="{height}" rx="6"/>'
        )
        for number, each in enumerate(packages):
            middle = y + ROW * number + ROW // 2 + 5
            lines += [
                f'<text class="name" x="{MARGIN + 12}" y="{middle}">{escape(each.name)}</text>',
                f'<text class="what" x="{MARGIN + LABEL}" y="{middle}">{escape(each.sentence)}'
                "</text>",
            ]
        y += height + GAP
    size = f'viewBox="0 0 {WIDTH} {y + MARGIN - GAP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = "<title>The packages of weft; each imports only those below it</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *lines, "</svg>", ""])


if __name__ == "__main__":
    IMAGE.write_text(picture(), encoding="utf-8")
