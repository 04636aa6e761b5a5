"""Writes `environment.md`, the page of environment variables, from the table of settings."""

from __future__ import annotations

from pathlib import Path

from weft.settings import SETTINGS, Setting

PAGE = Path(__file__).parents[1] / "environment.md"


def page() -> str:
    """Return the page."""
    return "\n".join(
        ["# Environment variables", "", "| variable | effect |", "| --- | --- |", *rows(), ""]
    )


def rows() -> list[str]:
    """Return the rows of the table."""
    return [f"| `{each.name}` | {each.meaning}{link(each)} |" for each in SETTINGS.values()]


def link(setting: Setting[object]) -> str:
    """Return a link to the page that says more."""
    title = setting.page.partition(".")[0].replace("-", " ")
    return f"; see [{title}]({setting.page})" if setting.page else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
