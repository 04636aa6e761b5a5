"""Renders the navigation of pages of sources once for each depth of folders, not for each page.

None of them is in the navigation, so two pages of one depth have the same links. The theme renders
the whole tree for every page, which for these would be a third of the time of a build.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

FOLDERS = ("_files/", "_modules/")


def share(navigations: dict[int, str], page: str, context: dict[str, Any]) -> None:
    """Replace the function that renders the navigation by one that remembers what it gave."""
    render, depth = context["toctree"], page.count("/")

    def rendered(**options: Any) -> str:
        if depth not in navigations:
            navigations[depth] = str(render(**options))
        return navigations[depth]

    if page.startswith(FOLDERS):
        context["toctree"] = rendered


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension, before the theme."""
    navigations: dict[int, str] = {}
    app.connect(
        "html-page-context",
        lambda app, page, template, context, doctree: share(navigations, page, context),
        priority=400,
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
