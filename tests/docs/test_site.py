"""The site: every page has its place, Sphinx builds it without a warning, and no link is broken."""

from __future__ import annotations

import importlib
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import FunctionType
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DOCUMENTED = (
    "weft", "weft.linalg", "weft.optim", "weft.random", "weft.communicators",
    "weft.distributed", "weft.kernels", "weft.plugins", "weft_array_api",
    "weft_hamkaas", "weft_popxl", "weft_popxl.ops",
)  # fmt: skip
"""The packages that are public as a whole, but for `weft_c`."""

SOURCES = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}
"""The attributes that a browser fetches when it opens a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without running the gallery; its pages go to a folder that git ignores."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"]
    options = ["--define", "plot_gallery=0", "--doctree-dir", folder / "doctrees"]
    built = subprocess.run(
        [*command, *options, ROOT / "docs", folder / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder / "html"


class Page(HTMLParser):
    """What an HTML page links to, what it fetches, and its anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag == "a" and "href" in attributes:
            self.links.add(attributes["href"])
        if SOURCES.get(tag) in attributes:
            self.fetched.add(attributes[SOURCES[tag]])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_every_link_leads_to_a_page_and_an_anchor(pages: dict[Path, Page]) -> None:
    broken, checked = [], 0
    for path, page in pages.items():
        for link in page.links | page.fetched:
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            checked += 1
            file = (path.parent / unquote(target.path)).resolve() if target.path else path
            anchor = unquote(target.fragment)
            is_page = file in pages and (not anchor or anchor in pages[file].anchors)
            if not is_page and (file in pages or not file.is_file()):
                broken.append(f"{path.name}: {link}")
    assert checked > 1000
    assert broken == []


def test_no_page_fetches_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    fetched = {link for page in pages.values() for link in page.fetched}
    assert {link for link in fetched if urlsplit(link).scheme not in ("", "data")} == set()
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not any("url(http" in text or "@import url" in text for text in styles)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_the_reference_and_the_search_have_every_public_function_and_class(
    site: Path, module: str
) -> None:
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    entries = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    package = importlib.import_module(module)
    values = {name: getattr(package, name) for name in package.__all__}
    named = {name for name, value in values.items() if isinstance(value, type | FunctionType)}
    found = (site / "searchindex.js").read_text(encoding="utf-8")
    assert {name for name in named if f"{module}.{name}" not in entries} == set()
    assert {name for name in named if name.lower() not in found.lower()} == set()


def test_each_public_function_has_a_page_in_the_index(site: Path, pages: dict[Path, Page]) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "public_functions.py"))
    names = {own[0] for own in script["public_functions"]().values()}
    linked = {urlsplit(link).path for link in pages[site / "generated" / "api.html"].links}
    assert len(names) > 400
    assert {name for name in names if f"api/{name}.html" not in linked} == set()


def test_each_op_has_its_shapes_dtypes_gradient_and_backends(site: Path) -> None:
    page = (site / "generated" / "api" / "weft.softmax.html").read_text(encoding="utf-8")
    text = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert "(2, 3) → (2, 3)" in text
    assert "dtypes, as tested float32, float64" in text
    assert "gradient for every operand" in text
    assert "builds weft.SoftmaxOp decomposes into weft.MaxOp" in text
    assert "runs whole on none" in text


def test_links_to_files_of_the_repository_lead_to_pages(
    site: Path, pages: dict[Path, Page]
) -> None:
    source = site / "_files" / "core" / "weft" / "ir" / "op.py.html"
    assert "A node of a graph." in source.read_text(encoding="utf-8")
    assert "_files/core/weft/ir/op.py.html" in pages[site / "from-scratch.html"].links
    assert "contributing.html" in pages[site / "project" / "changelog.html"].links
    assert "project/contributing.html" in pages[site / "index.html"].links


def test_commands_are_described(site: Path) -> None:
    page = (site / "generated" / "commands.html").read_text(encoding="utf-8")
    text = re.sub(r"<[^>]+>", "", page)
    commands = {"run", "show", "profile", "doctor"}
    assert {name for name in commands if f"weft {name}" not in text} == set()
