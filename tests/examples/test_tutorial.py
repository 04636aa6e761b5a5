"""Run the tutorial: its blocks one after the other, comparing what each prints."""

from __future__ import annotations

import doctest
import linecache
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", PAGE, flags=re.DOTALL)
NAME = "tutorial.py"


def without_blank_lines(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.strip())


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    """All code of the page, known to Python as the source of a file."""
    source = "".join(code for code, _ in BLOCKS)
    entry = (len(source), None, source.splitlines(keepends=True), NAME)
    monkeypatch.setitem(linecache.cache, NAME, entry)
    return source


@pytest.mark.usefixtures("fresh_names")
def test_each_block_runs_and_prints_what_the_page_says(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEFT_BACKEND", raising=False)
    names: dict[str, Any] = {"__name__": "tutorial"}
    checker = doctest.OutputChecker()
    line = 0
    for code, expected in BLOCKS:
        exec(compile("\n" * line + code, NAME, "exec"), names)
        line += code.count("\n")
        printed = without_blank_lines(capsys.readouterr().out)
        assert checker.check_output(without_blank_lines(expected), printed, doctest.ELLIPSIS), (
            f"expected:\n{expected}\nprinted:\n{printed}"
        )


def test_every_block_of_output_belongs_to_one_of_code() -> None:
    assert PAGE.count("```text") == sum(bool(expected) for _, expected in BLOCKS)
    assert len(BLOCKS) >= 12
