"""Output of the `weft` command: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table, with a dash for an empty cell; long text is folded within its column."""
    made = Table()
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(plain("-" if value in (None, "") else str(value)) for value in row))
    show(made)


def plain(value: str) -> Text:
    """Return text that a terminal shows as it is: no markup, no control characters."""
    return Text(re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", value))


def show(what: Table | Text) -> None:
    """Print to a terminal of its width, and to anything else without breaking any line."""
    console = Console()
    if not console.file.isatty():
        wide = console.options.update(max_width=100_000)
        console.width = max(100, console.measure(what, options=wide).maximum)
    console.print(what)


def show_json(what: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(what, indent=1))
