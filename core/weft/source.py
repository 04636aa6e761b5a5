"""Where in the user's program an op was written: the first frame outside weft and its plugins."""

from __future__ import annotations

import linecache
import sys

Location = tuple[str, int]

_internal_roots = {"weft"}
_is_internal: dict[str, bool] = {}


def add_internal_package(root: str) -> None:
    """Count a package's frames as internal, so that ops made in it point at its caller."""
    _internal_roots.add(root)
    _is_internal.clear()


def user_location() -> Location:
    """Return file and line of the innermost frame that is the user's own."""
    frame = sys._getframe(2)
    while True:
        name = frame.f_globals.get("__name__", "")
        internal = _is_internal.get(name)
        if internal is None:
            internal = _is_internal[name] = name.partition(".")[0] in _internal_roots
        if not internal:
            return frame.f_code.co_filename, frame.f_lineno
        outer = frame.f_back
        if outer is None:
            return frame.f_code.co_filename, frame.f_lineno
        frame = outer


def file_info(location: Location) -> str:
    """Return a location in the form of a traceback, which editors make clickable."""
    return f'File "{location[0]}", line {location[1]}'


def source_line(location: Location) -> str:
    """Return the text of the user's line without indentation; empty where there is no file."""
    return linecache.getline(*location).strip()
