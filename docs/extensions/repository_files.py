"""Lets pages link to files of the repository, and be files of the repository.

The pages are read in the repository too, where a link to a file outside ``docs`` works by itself.
On the site it leads to the page that shows this file (`PAGES`), or to a page made here with its
highlighted text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "README.md": "index",
    "SECURITY.md": "project/security",
    "benchmarks/RESULTS.md": "project/benchmarks",
}
"""The files that have a page, which holds their text (but for the start page)."""

FOLDER = "_files"
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".c": "c", ".h": "c", ".md": "md"}
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)#:\s]+)(?=[)#\s])", re.MULTILINE)


def read_from_repository(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the text of a file of the repository in the place of its page."""
    for name, page in PAGES.items():
        if page == docname and page != "index":
            path = ROOT / name
            app.env.note_dependency(str(path))
            here = (DOCS / docname).parent

            def moved(link: re.Match[str], path: Path = path, here: Path = here) -> str:
                return f"{link[1]}{os.path.relpath(path.parent / link[2], here)}"

            source[0] = LINK.sub(moved, path.read_text(encoding="utf-8"))


class RepositoryLinks(SphinxTransform):
    """Has links to files outside the site lead to pages of the site."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Redirect the links of one document."""
        kinds = (addnodes.pending_xref, addnodes.download_reference)
        for node in list(self.document.findall(lambda node: isinstance(node, kinds))):
            path = self._linked_file(node)
            if path is None:
                continue
            name = path.relative_to(ROOT).as_posix()
            if name in PAGES:
                redirected = self._redirected(node, refdomain="doc", reftype="myst")
                redirected["reftarget"] = PAGES[name]
            else:
                redirected = self._redirected(node, refdomain="", reftype="repository-file")
                redirected["reftarget"] = name
                linked_files(self.env).setdefault(name, set()).add(self.env.docname)
            node.replace_self(redirected)

    def _linked_file(self, node: nodes.Element) -> Path | None:
        """Return the file that a link of Markdown leads to, if it is not a page of the site."""
        if node.get("reftype") != "myst" or not node["reftarget"]:
            return None
        if node.get("refdomain") == "doc":
            path = DOCS / f"{node['reftarget']}.md"
        else:
            path = (DOCS / self.env.docname).parent / node["reftarget"].partition("#")[0]
        path = Path(os.path.normpath(path))
        is_page = path.suffix == ".md" and path.is_relative_to(DOCS)
        return path if path.exists() and path.is_relative_to(ROOT) and not is_page else None

    @staticmethod
    def _redirected(node: nodes.Element, **attributes: Any) -> addnodes.pending_xref:
        kept = {key: node[key] for key in ("refdoc", "refexplicit", "reftargetid") if key in node}
        return addnodes.pending_xref("", *node.children, **{**kept, **attributes})


def linked_files(env: BuildEnvironment) -> dict[str, set[str]]:
    """Return the linked files of the repository, with the documents that link to them."""
    if not hasattr(env, "repository_files"):
        env.repository_files = {}
    found: dict[str, set[str]] = env.repository_files
    return found


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Forget the links of a document that is read again."""
    for name, documents in list(linked_files(env).items()):
        documents.discard(docname)
        if not documents:
            del linked_files(env)[name]


def merge(app: Sphinx, env: BuildEnvironment, docnames: set[str], other: BuildEnvironment) -> None:
    """Add the links that another process has read."""
    for name, documents in linked_files(other).items():
        linked_files(env).setdefault(name, set()).update(documents & docnames)


def resolve(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.Element
) -> nodes.reference | None:
    """Return the reference to the page of a file."""
    if node.get("reftype") != "repository-file":
        return None
    page = f"{FOLDER}/{node['reftarget']}"
    uri = app.builder.get_relative_uri(node["refdoc"], page)
    return nodes.reference("", "", *node.children, internal=True, refuri=uri)


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the pages of the linked files, and of those in linked folders."""
    left = sorted(linked_files(app.env), reverse=True)
    made = set()
    while left:
        name = left.pop()
        if name in made:
            continue
        made.add(name)
        path = ROOT / name
        if path.is_dir():
            inside = [file for file in _files(path) if file not in made]
            left += inside
            text = "".join(_item(app, name, file) for file in _files(path))
            body = f"<ul>{text}</ul>"
        else:
            body = _highlighted(app, path)
        title = escape(name)
        yield f"{FOLDER}/{name}", {"title": title, "body": f"<h1>{title}</h1>{body}"}, "page.html"


def _files(folder: Path) -> list[str]:
    """Return the sources in a folder, and in those inside it, by their path from the root."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in folder.rglob("*")
        if path.suffix in LANGUAGES and path.is_file()
    )


def _item(app: Sphinx, folder: str, file: str) -> str:
    uri = app.builder.get_relative_uri(f"{FOLDER}/{folder}", f"{FOLDER}/{file}")
    return f'<li><a class="reference internal" href="{uri}">{escape(file)}</a></li>'


def _highlighted(app: Sphinx, path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    language = LANGUAGES.get(path.suffix, "none")
    return app.builder.highlighter.highlight_block(text, language)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("source-read", read_from_repository)
    app.add_transform(RepositoryLinks)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("missing-reference", resolve)
    app.connect("html-collect-pages", pages)
    return {"version": "1", "env_version": 1, "parallel_read_safe": True}
