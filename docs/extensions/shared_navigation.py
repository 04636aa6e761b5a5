"""Renders the navigation of pages of one kind once for each depth of folders, not for each page.

None of them is in the navigation, so two pages of one kind and depth have the same links. The theme
renders the whole tree for every page, which for these would be a third of the time of a build.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

FOLDERS = ("_files/", "_modules/", "generated/api/")
"""The folders of pages of sources, and of those of functions."""


def share(navigations: dict[tuple[str, int], str], page: str, context: dict[str, Any]) -> None:
    """Replace the function that renders the navigation by one that remembers what it gave."""
    render, folder = context["toctree"], next(filter(page.startswith, FOLDERS), None)

    def rendered(**options: Any) -> str:
        key = (str(folder), page.count("/"))
        if key not in navigations:
            navigations[key] = str(render(**options))
        return navigations[key]

    if folder is not None:
        context["toctree"] = rendered


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension, before the theme."""
    navigations: dict[tuple[str, int], str] = {}
    app.connect(
        "html-page-context",
        lambda app, page, template, context, doctree: share(navigations, page, context),
        priority=400,
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
