"""Writes `public-names.txt`, the list of all public names.

Public is what `weft` exports, what the frontends export, and what the pages of the documentation
import or use from other modules; and the hooks, entry-point groups, commands and environment
variables. A test compares the list with the code.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import weft
from weft import layers
from weft.cli.app import app
from weft.plugins import GROUPS, hookspecs

DOCS = Path(__file__).parents[1]
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
LIST = DOCS / "public-names.txt"
OWN = re.compile(r"weft(_passes|_c|_numpy|_opencl|_webgpu|_cupy|_array_api|_hamkaas|_popxl)?(\.|$)")
WITH_ALL = (
    "weft", "weft.fft", "weft.linalg", "weft.optim", "weft.plugins", "weft.kernels", "weft.random",
    "weft.signal", "weft.special", "weft_c", "weft_array_api", "weft_hamkaas", "weft_popxl",
    "weft_popxl.ops",
)  # fmt: skip
"""Packages that are public as a whole: each lists its names."""

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
VARIABLE = re.compile(r"^\| `(WEFT_\w+)` \|", re.MULTILINE)


def public_names() -> list[str]:
    """Return the public names of this tree, in order."""
    names = {
        f"{module}.{name}"
        for module in WITH_ALL
        for name in importlib.import_module(module).__all__
        if not name.startswith("_") or name.startswith("__")
    }
    names |= {f"weft.nn.{name}" for name in layers.__all__}
    names |= {
        f"weft.errors.{name}" for name, value in vars(weft.errors).items() if _is_error(value)
    }
    for page in PAGES:
        names |= {name for name in used_names(page.read_text(encoding="utf-8")) if OWN.match(name)}
    names |= {f"hook {name}" for name in vars(hookspecs) if name.startswith("weft_")}
    names |= {f"entry-point group {name}" for name in GROUPS}
    names |= {f"command weft {name}" for name in _commands()}
    names |= {
        f"variable {name}"
        for page in PAGES
        for name in VARIABLE.findall(page.read_text(encoding="utf-8"))
    }
    return sorted(names)


def used_names(page: str) -> Iterator[str]:
    """Yield the dotted names that the Python blocks of a page import, or read from modules."""
    for block in BLOCK.findall(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Attribute):
                module, _, name = ast.unparse(node).rpartition(".")
                is_own = module.count(".") and OWN.match(module) and _is_module(module)
                if is_own and not _is_module(f"{module}.{name}"):
                    yield f"{module}.{name}"


def read() -> list[str]:
    """Return the names of the list as it was written."""
    return LIST.read_text(encoding="utf-8").splitlines()


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _is_module(dotted: str) -> bool:
    try:
        return inspect.ismodule(pkgutil.resolve_name(dotted))
    except (AttributeError, ImportError, ValueError):
        return False


def _commands() -> Iterator[str]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield command.name or command.callback.__name__
    for group in app.registered_groups:
        yield str(group.name)


if __name__ == "__main__":
    LIST.write_text("\n".join([*public_names(), ""]), encoding="utf-8")
