"""Run the tutorial: its blocks one after the other, comparing what each prints."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.usefixtures("fresh_names")
def test_each_block_runs_and_prints_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    pages.run(PAGE, {"__name__": "tutorial"}, is_complete=True)


def test_every_block_of_output_belongs_to_one_of_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = pages.BLOCK.findall(text)
    assert text.count("```text") == sum(bool(expected) for _, expected in blocks)
    assert len(blocks) >= 12
