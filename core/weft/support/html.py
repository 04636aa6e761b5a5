"""HTML of objects for notebooks: all text is escaped, so names of users are shown and never run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NewType

Html = NewType("Html", str)
"""Text that is HTML; any other text is escaped before it becomes part of it."""

ROWS = 30
"""The most rows of a table."""

LONGEST = 200
"""The most characters of a cell."""

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def escaped(text: str) -> Html:
    """Return text escaped for HTML and XML; what is not printable is replaced.

    >>> escaped("<b> & 'c'")
    '&lt;b&gt; &amp; &#39;c&#39;'
    """
    kept = (each if each.isprintable() or each in "\n\t" else _UNKNOWN for each in text)
    return Html("".join(kept).translate(_ESCAPES))


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the beginning of a text that is too long, with a mark.

    >>> shortened("a long text", 6)
    'a long…'
    """
    return text if len(text) <= longest else text[:longest] + "…"


def section(title: str, *parts: Html) -> Html:
    """Return some parts below a title."""
    return Html(f"<div><b>{escaped(shortened(title))}</b>{''.join(parts)}</div>")


def folded(title: str, *parts: Html) -> Html:
    """Return some parts that a click on their title shows."""
    summary = f"<summary>{escaped(shortened(title))}</summary>"
    return Html(f"<details>{summary}{''.join(parts)}</details>")


def text(line: str) -> Html:
    """Return a line of its own."""
    return Html(f"<div>{escaped(line)}</div>")


def facts(given: Mapping[str, str]) -> Html:
    """Return a table of names and what they stand for, without those that stand for nothing."""
    return table((), [(name, text) for name, text in given.items() if text])


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    count: int = 0,
    figures: int | None = None,
) -> Html:
    """Return a table of at most `ROWS` rows, and a line that says how many of `count` are left out.

    Columns from the index `figures` on hold numbers.
    """

    def line(cells: Iterable[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{_side(index, figures)}">{escaped(shortened(cell))}</{tag}>'
            for index, cell in enumerate(cells)
        )

    head = f"<thead><tr>{line(columns, 'th')}</tr></thead>" if columns else ""
    shown = [f"<tr>{line(row, 'td')}</tr>" for row in islice(rows, ROWS)]
    rest = count - len(shown)
    more = text(f"… {rest:,} more") if rest > 0 else ""
    return Html(f"<table>{head}<tbody>{''.join(shown)}</tbody></table>{more}")


def _side(index: int, figures: int | None) -> str:
    return "left" if figures is None or index < figures else "right"
