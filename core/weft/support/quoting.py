"""Quotes users' names and lines for generated code."""

from __future__ import annotations

import keyword
import re

from weft.support.digest import digest_of

LONGEST_NAME = 80
"""The characters of a name that are part of a file's; systems take 255 bytes in all."""

_ENDING = re.compile(r"\?(?=\?)|\*(?=/)|/(?=\*)")
"""A character that may begin a trigraph, or the end or the beginning of a comment in C."""

_NO_LETTERS = re.compile(r"[^0-9A-Za-z]+")


def harmless(text: str) -> str:
    r"""Return a text that ends no comment, neither in Python nor in C, and continues none.

    It is one line of printable characters without backslashes, trigraphs and marks of comments.
    Every name, path and line of a user's that gets into generated code passes here.

    >>> harmless("a.py:1\n*/ b\\")
    'a.py:1 ./ b/'
    """
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    return _ENDING.sub(".", text.replace("\\", "/"))


def identifier(text: str) -> str:
    """Return a text as part of an identifier, in Python and in C.

    >>> identifier("my kernel; */ evil")
    'my_kernel_evil'
    """
    return _NO_LETTERS.sub("_", text).strip("_").lower()[:48] or "kernel"


def variable(hint: str) -> str:
    """Return a hint at a variable's name in Python as an identifier; most hints are one.

    >>> variable("tanh"), variable("lambda"), variable("? (vectorized)")
    ('tanh', 'a_lambda', 'a_vectorized')
    """
    is_name = hint.isascii() and hint.isidentifier() and not keyword.iskeyword(hint)
    return hint if is_name else f"a_{identifier(hint)}"


def file_name(text: str) -> str:
    """Return a text as part of the name of a file; different texts have different ones.

    >>> file_name("train.step-1"), file_name("../a b")
    ('train.step-1', '.._a_b-b180f781')
    """
    found = "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_" for c in text)
    if found == text and len(text) <= LONGEST_NAME:
        return text
    digest = digest_of(text.encode(errors="surrogatepass"))
    return f"{found[:LONGEST_NAME]}-{digest[:8]}"
