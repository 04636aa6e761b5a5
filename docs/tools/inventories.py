"""Writes the inventories of Python and NumPy that the site links to: ``docs/inventories``.

A build has no network, so the names that docstrings and signatures use are listed here, with the
pages that describe them. The form is version 1 of Sphinx's inventories, which is text.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "inventories"
PYTHON_PAGES = {
    "library/collections.abc.html": [
        f"collections.abc.{name}"
        for name in (
            "Callable", "Collection", "Container", "Generator", "Hashable", "Iterable", "Iterator",
            "Mapping", "MutableMapping", "Sequence", "Set",
        )
    ],
    "library/contextlib.html": ["contextlib.AbstractContextManager"],
    "library/exceptions.html": [
        "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "MemoryError",
        "OSError", "RuntimeError", "TypeError", "UserWarning", "ValueError", "Warning",
    ],
    "library/functions.html": ["bool", "float", "int", "object", "type"],
    "library/os.html": ["os.PathLike"],
    "library/pathlib.html": ["pathlib.Path"],
    "library/stdtypes.html": ["bytes", "dict", "frozenset", "list", "set", "str", "tuple"],
    "library/typing.html": ["typing.Any", "typing.Literal"],
}  # fmt: skip
NUMPY_NAMES = [
    f"numpy.{name}"
    for name in (
        "array", "asarray", "dtype", "einsum", "errstate", "frombuffer", "memmap", "ndarray",
        "ufunc",
    )
]  # fmt: skip


def inventories() -> dict[str, str]:
    """Return the text of each inventory by the name of its file."""
    python = ((name, page) for page, names in PYTHON_PAGES.items() for name in names)
    numpy = ((name, f"reference/generated/{name}.html") for name in NUMPY_NAMES)
    return {
        "python.inv": _inventory("Python", "3", python),
        "numpy.inv": _inventory("NumPy", "2", numpy),
    }


def _inventory(project: str, version: str, entries: Iterable[tuple[str, str]]) -> str:
    lines = ["# Sphinx inventory version 1", f"# Project: {project}", f"# Version: {version}"]
    lines += [f"{name} {_kind(name)} {page}" for name, page in sorted(entries)]
    return "\n".join(lines) + "\n"


def _kind(name: str) -> str:
    """Return what a name is in Sphinx's Python domain; raises AttributeError if nothing has it."""
    value = pkgutil.resolve_name(name if "." in name else f"builtins.{name}")
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) else "data"


if __name__ == "__main__":
    for name, text in inventories().items():
        FOLDER.joinpath(name).write_text(text, encoding="utf-8")
