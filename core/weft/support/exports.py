"""What a package exports that imports everything of its modules with ``*``.

mypy knows no list of names but one that is written out: without a list it exports what it imports
with ``*``, and with a computed one nothing.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def declare(package: dict[str, Any], *modules: str) -> list[str]:
    """Set `__all__` in the globals of a package to its public names, without modules but some."""
    package["__all__"] = names = [
        name
        for name, value in package.items()
        if not name.startswith("_") and (not isinstance(value, ModuleType) or name in modules)
    ]
    return names
