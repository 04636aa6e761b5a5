"""Names that a user probably meant, for messages."""

from __future__ import annotations

from collections.abc import Iterable


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that is most like a word, or nothing if none is like it.

    >>> closest("transposse", ["tile", "transpose"]), closest("sin", ["matmul"])
    ('transpose', '')
    """
    # Only messages of errors need it.
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), "")
