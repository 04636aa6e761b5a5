"""Finds the user's line that built an op: the first frame outside weft and its plugins."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable
from contextvars import ContextVar
from os.path import basename, normpath
from types import FrameType

Location = tuple[str, int]

_internal_roots = {
    "weft": True, "abc": True, "contextlib": True, "copy": True, "functools": True, "numpy": True
}  # fmt: skip
"""By top-level package, whether it is weft's or a plugin's, or calls back what it was given."""
plugin_packages: list[Callable[[str], bool]] = []
"""Say whether a top-level package holds an installed plugin; `weft.plugins` adds to it."""
started_at: ContextVar[Location | None] = ContextVar("weft_started_at", default=None)
"""The user's line that started what an event loop or a thread runs."""
_STARTED_BY = ("asyncio", "concurrent", "pyodide")
"""The packages that run it."""
_KIT = "weft.testing"
_is_internal: dict[str, bool] = {}
"""By file, whether it is part of weft or of a plugin."""


def add_internal_package(root: str) -> None:
    """Count a package's frames as internal, so that ops made in it point at its caller.

    Packages that hold an installed plugin count as internal without this. A library of ops that has
    no entry point calls it in its ``__init__``.
    """
    global _is_internal
    _internal_roots[root] = True
    _is_internal = {}  # another thread may still write to the old one what it found before


def user_location() -> Location:
    """Return file and line of the innermost frame that is the user's own."""
    frame = sys._getframe(2)
    known = _is_internal
    while True:
        filename = frame.f_code.co_filename
        internal = known.get(filename)
        if internal is None:
            internal = _classified(frame, filename)
        outer = frame.f_back if internal else None
        if outer is None:
            return _location(frame)
        frame = outer


def entry() -> tuple[Location, str]:
    """Return the user's file and line, and the name of the public function that was called there.

    The name is empty where it was none, but a method or a class.
    """
    frame = sys._getframe(2)
    name = ""
    while frame.f_back is not None and _classified(frame, frame.f_code.co_filename):
        if frame.f_code.co_name == "__init__":
            name = ""  # what a class calls is not a function of the user's
        elif _is_public(frame):
            name = frame.f_code.co_name
        frame = frame.f_back
    return _location(frame), name


def _location(frame: FrameType) -> Location:
    """Return the line of a frame, or the line that started what runs there."""
    started = started_at.get()
    if started and frame.f_globals.get("__name__", "").partition(".")[0] in _STARTED_BY:
        return started
    return frame.f_code.co_filename, frame.f_lineno


def _is_public(frame: FrameType) -> bool:
    """Whether a frame is of an operator, a function that weft exports or one of a plugin."""
    name = frame.f_code.co_name
    if name.startswith(("_", "<")):
        return name.startswith("__") and name != "__init__"
    is_own = frame.f_globals.get("__name__", "").partition(".")[0] == "weft"
    return not is_own or name in getattr(sys.modules["weft"], "__all__", ())


def _classified(frame: FrameType, filename: str) -> bool:
    """Return whether a frame is internal, and remember it for real files; others share names."""
    known = _is_internal
    internal = is_internal(frame.f_globals.get("__name__", ""))
    if not filename.startswith("<"):
        known[filename] = internal
    return internal


def is_internal(module: str | None) -> bool:
    """Whether a module is not the user's own, by its name."""
    # The conformance kit is a user: what it builds points at its rows.
    name = module or ""
    return _is_internal_root(name.partition(".")[0]) and not name.startswith(_KIT)


def _is_internal_root(root: str) -> bool:
    """Whether a package is weft's, was added, or is installed with a plugin, loaded or not."""
    known = _internal_roots.get(root)
    if known is None:
        known = _internal_roots[root] = any(holds(root) for holds in plugin_packages)
    return known


def file_info(location: Location) -> str:
    """Return a location in the form of a traceback, which editors make clickable.

    In a notebook it is the cell and the line, as in ``In[3]:2``.
    """
    cell = _cell(location[0])
    return f"{cell}:{location[1]}" if cell else f'File "{shown(location[0])}", line {location[1]}'


def shown(filename: str) -> str:
    """Return the name of a file without ``..`` and ``.``, or of a cell, as messages show it."""
    is_path = not filename.startswith("<") and ("/." in filename or "\\." in filename)
    return _cell(filename) or (normpath(filename) if is_path else filename)


def short_info(location: Location) -> str:
    """Return a location as the file's name and the line; in a notebook as the cell and the line."""
    return f"{_cell(location[0]) or basename(location[0])}:{location[1]}"


def _cell(filename: str) -> str:
    """Return how a notebook names the cell that a file stands for, as ``In[3]``, or nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = named(filename) if named is not None else None
    return found[1] if found else ""


def quoted_line(location: Location) -> str:
    """Return a location as in `short_info` with the text of the line, where there is one."""
    text = source_line(location)
    return f"{short_info(location)}  {text}" if text else short_info(location)


def function_around(location: Location) -> str:
    """Return the name of the user's function that a line is in, as in ``Block.__call__``.

    Empty outside of functions, and where there is no Python source.
    """
    path, line = location
    spans = _functions_in(path)
    return next((name for first, last, name in spans if first <= line <= last), "")


@functools.cache
def _functions_in(path: str) -> list[tuple[int, int, str]]:
    """Return first line, last line and name of the functions in a file, inner ones first."""
    import ast  # few programs need it

    try:
        waiting: list[tuple[ast.AST, str]] = [(ast.parse("".join(linecache.getlines(path))), "")]
    except (SyntaxError, ValueError):
        return []
    found = []
    while waiting:
        node, prefix = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            prefix = f"{name}."
            if not isinstance(node, ast.ClassDef):
                found.append((node.lineno, node.end_lineno or node.lineno, name))
        waiting += [(child, prefix) for child in ast.iter_child_nodes(node)]
    return sorted(found, reverse=True)


def source_line(location: Location) -> str:
    """Return the text of the user's line without indentation; empty where there is no file."""
    try:
        return linecache.getline(*location).strip()
    except ValueError:  # the name holds a null character
        return ""
