"""Hints for keywords that a function does not have, added where an error is shown.

Python raises this TypeError before anything of the function runs, so only a wrapper around every
function could change it, for the price of a call. Where the error is shown it costs nothing, and
that is where Python looks for names of its own that were meant.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sys
from contextlib import suppress
from functools import reduce
from types import TracebackType
from typing import Any

from weft.support.spelling import KEYWORDS, did_you_mean

_UNEXPECTED = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
_CALLS = (
    (r"object is not callable", r"\.size\(", "x.size is the number of elements: use x.shape"),
    (r"object is not callable", r"\.shape\(", "x.shape is a tuple: use x.shape[0]"),
    (
        r"missing .* argument: 'size'",
        "",
        "size is how many there are at most: shapes are known first",
    ),
    (r"Op\.view\(\) takes", r"\.view\(", "use x.reshape"),
    (r"Layer\.__call__\(\) missing", "", "a layer takes its parameters first: layer(params, x)"),
)
"""What is meant by calls from habit: the error, the line, and what to write."""


def hint(error: BaseException) -> str:
    """Return what was meant by a call that Python refused; nothing if that is unknown.

    For a keyword of a public function it names those that there are.
    """
    if not isinstance(error, TypeError):
        return ""
    line, names = _place_of(error)
    for problem, call, text in _CALLS:
        if re.search(problem, str(error)) and re.search(call, line):
            return text
    found = _UNEXPECTED.match(str(error))
    if found is None:
        return ""
    title, keyword = found.groups()
    try:
        function = _function(title, line, names)
        known = [each for each in inspect.signature(function).parameters if each != "self"]
    except (AttributeError, TypeError, ValueError):
        return ""
    title = title.removeprefix("ArrayOp.")
    here = next((each for each in KEYWORDS.get(keyword, ()) if each in known), "")
    return (
        f"{title} has no {keyword}=.{did_you_mean(keyword, known, here)} It has {', '.join(known)}"
    )


def _place_of(error: BaseException) -> tuple[str, dict[str, Any]]:
    """Return the line of the user's where an error was raised, and the names that are known there.

    A function that weft wraps raises it one frame further in.
    """
    place = step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__") != "weft.ops.keywords":
            place = step
        step = step.tb_next
    if place is None:
        return "", {}
    frame = place.tb_frame
    line = linecache.getline(frame.f_code.co_filename, place.tb_lineno)
    return line, {**frame.f_globals, **frame.f_locals}


def _function(title: str, line: str, names: dict[str, Any]) -> Any:
    """Return the function of weft that a line calls, or the one that `weft` has by that name."""
    for dotted in re.findall(rf"([\w.]*\b{title.rpartition('.')[2]})\s*\(", line):
        root, *path = dotted.split(".")
        with suppress(Exception):  # of properties of the user's, too
            found = reduce(getattr, path, names[root])
            if found.__module__.startswith("weft"):
                return found
    home = "weft.ir.methods" if title.startswith("ArrayOp.") else "weft"
    return reduce(getattr, title.split("."), sys.modules[home])


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
