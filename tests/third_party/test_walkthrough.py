"""The page "Write a backend" shows the files of the package as they are."""

from __future__ import annotations

import re

import pytest
from installation import SOURCES

pytestmark = pytest.mark.slow

PAGE = (SOURCES.parents[1] / "docs" / "write-a-backend.md").read_text(encoding="utf-8")
PACKAGE = SOURCES / "weft_toy"
BACKEND = (PACKAGE / "weft_toy" / "backend.py").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_the_page_goes_through_the_whole_file_from_top_to_bottom() -> None:
    shown = "".join(block for block in blocks("python") if block in BACKEND)
    assert lines(shown) == lines(BACKEND)


def test_the_other_blocks_are_parts_of_the_package_too() -> None:
    plugin = (PACKAGE / "weft_toy" / "__init__.py").read_text(encoding="utf-8")
    others = [block for block in blocks("python") if block not in BACKEND]
    assert others
    assert [block for block in others if block not in plugin] == []
    project = (PACKAGE / "pyproject.toml").read_text(encoding="utf-8")
    assert blocks("toml")
    assert [block for block in blocks("toml") if block not in project] == []
