"""The page of the architecture: its picture is up to date, its functions run, its paths exist."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def called_by(code: str, scope: dict[str, Any]) -> list[str]:
    """Return the qualified names of the functions that code calls, in order."""
    names: list[str] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            names.append(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")

    sys.setprofile(profile)
    try:
        exec(compile(code, "<architecture.md>", "exec"), scope)
    finally:
        sys.setprofile(None)
    return names


def test_the_functions_on_the_way_of_an_expression_are_called_in_this_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEFT_CACHE", "0")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    steps = re.findall(r"^\| (\d+) \| `([\w.<>]+)` \|", PAGE, re.MULTILINE)
    assert [int(number) for number, _ in steps] == list(range(1, 13))
    scope: dict[str, Any] = {}
    left = iter(called_by(code, scope))
    for _, name in steps:
        assert name in left, f"{name} is not called after the function before it"
    assert scope["result"].tolist() == [3, 3, 3]


def test_every_path_on_the_page_exists() -> None:
    paths = re.findall(r"`((?:core|codegen|backends|passes|tests)/[\w/.]+)`", PAGE)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_picture_of_the_layers_is_what_its_script_draws() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "tools" / "layers.py"))
    assert script["IMAGE"].read_text() == script["picture"](), "run: make docs"
