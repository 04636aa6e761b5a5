"""Hints for keywords that a function does not have, added where an error is shown.

Python raises this TypeError before anything of the function runs, so only a wrapper around every
function could change it, for the price of a call. Where the error is shown it costs nothing, and
that is where Python looks for names of its own that were meant.
"""

from __future__ import annotations

import inspect
import re
import sys
from functools import reduce
from types import TracebackType
from typing import Any

from weft.support.spelling import KEYWORDS, did_you_mean

_UNEXPECTED = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")


def hint(error: BaseException) -> str:
    """Return what keyword of a public function was meant, and those it has; else nothing."""
    found = _UNEXPECTED.match(str(error)) if isinstance(error, TypeError) else None
    if found is None:
        return ""
    title, keyword = found.groups()
    try:
        function: Any = reduce(getattr, title.split("."), sys.modules["weft"])
        known = [each for each in inspect.signature(function).parameters if each != "self"]
    except (AttributeError, TypeError, ValueError):
        return ""
    here = next((each for each in KEYWORDS.get(keyword, ()) if each in known), "")
    return (
        f"{title} has no {keyword}=.{did_you_mean(keyword, known, here)} It has {', '.join(known)}"
    )


def add_hint(error: BaseException) -> None:
    """Add the hint to what is shown of an error, once."""
    text = hint(error)
    if text and text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def install() -> None:
    """Add hints to errors that nobody catches, in the interpreter and in notebooks."""
    shown_by = sys.excepthook

    def with_hint(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        add_hint(error)
        shown_by(kind, error, traceback)

    sys.excepthook = with_hint
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and not getattr(shell, "custom_exceptions", True):
        shell.set_custom_exc((TypeError,), _show_in_notebook)


def _show_in_notebook(
    shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: int | None = None
) -> None:
    add_hint(error)
    shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
