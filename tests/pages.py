"""Pages of the documentation as programs: their blocks of Python, one after the other."""

from __future__ import annotations

import contextlib
import doctest
import io
import linecache
import re
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.DOTALL)
"""A block of code, and the output that follows on it."""


def run(page: Path, scope: dict[str, Any] | None = None, is_complete: bool = False) -> None:
    """Run the blocks of a page; output that follows on one is what it prints.

    With `is_complete` every block that prints something is followed by its output.
    """
    text = page.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    name, names = f"{page.stem}.py", {} if scope is None else scope
    source = "".join(code for code, _ in blocks)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        line = 0
        for code, expected in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * line + code, name, "exec"), names)
            line += code.count("\n")
            if expected or is_complete:
                _compare(expected, printed.getvalue())
    finally:
        del linecache.cache[name]


def _compare(expected: str, printed: str) -> None:
    texts = ["\n".join(filter(str.strip, each.splitlines())) for each in (expected, printed)]
    is_same = doctest.OutputChecker().check_output(*texts, doctest.ELLIPSIS)
    assert is_same, f"expected:\n{expected}\nprinted:\n{printed}"
