"""Files of text are read and written as UTF-8, whatever the system's own encoding is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core", "passes", "codegen", "backends", "frontends", "communicators", "examples", "docs",
    "benchmarks",
)  # fmt: skip


def without_encoding(text: str) -> Iterator[int]:
    """Yield the lines of calls that open text in the encoding of the system."""
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and "encoding" not in {each.arg for each in call.keywords}:
            match call.func:
                case ast.Attribute(attr="read_text"):
                    is_text = not call.args
                case ast.Attribute(attr="write_text"):
                    is_text = len(call.args) < 2
                case ast.Name(id="open") | ast.Attribute(attr="fdopen"):
                    is_text = is_for_text(call, 1)
                case ast.Attribute(value=ast.Name(id="os"), attr="open"):
                    is_text = False
                case ast.Attribute(attr="open"):
                    is_text = is_for_text(call, 0)
                case _:
                    is_text = False
            if is_text:
                yield call.lineno


def is_for_text(call: ast.Call, place: int) -> bool:
    """Whether the mode of a file, which is an argument of this place, is one of text."""
    named = [each.value for each in call.keywords if each.arg == "mode"]
    match [*named, *call.args[place:]]:
        case []:
            return True
        case [ast.Constant(value=str(mode)), *_]:
            return "b" not in mode
        case _:  # no mode, but the name of a file in an archive
            return False


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_has_its_encoding(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in without_encoding(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_open"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open(path)", True),
        ("open(path, 'w')", True),
        ("open(path, mode='rb')", False),
        ("open(path, 'rb')", False),
        ("path.open()", True),
        ("path.open('wb')", False),
        ("os.fdopen(1, 'w')", True),
        ("os.open(path, flags)", False),
        ("archive.open(name)", False),
    ],
)
def test_it_is_seen_where_it_lacks(line: str, is_open: bool) -> None:
    assert list(without_encoding(line)) == [1] * is_open
