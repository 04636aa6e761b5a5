"""Output of the `weft` command: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def table(*columns: str) -> Table:
    """Return an empty table; what is too long for a column goes on in the next line."""
    made = Table()
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def cells(*values: str | None) -> list[Text]:
    """Return the cells of a row, with a dash for what is not there."""
    return [plain(value or "-") for value in values]


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
