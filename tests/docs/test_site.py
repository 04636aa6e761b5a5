"""The site: every page has its place, Sphinx builds it without a warning, and no link is broken."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
SOURCES = {"link": "href", "script": "src", "img": "src", "source": "src", "iframe": "src"}
"""The attributes that a browser fetches when it opens a page."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site without running the gallery; its pages go to a folder that git ignores."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
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


def test_the_search_finds_functions_and_classes(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for name in ("deriv", "Transformer", "softmax", "attention", "fusion"):
        assert name.lower() in index.lower(), name
