"""Gathers definitions of modules, and all that they use, into the text of one module.

Definitions are taken from the source of their modules, so that the text needs NumPy and the
standard library alone. Errors of weft derive from the built-in ones that they are.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import weft.errors
from weft.errors import BackendError

OWN = ("weft", "weft_numpy")

SUBSTITUTES = {
    ("weft_numpy.thread_pool", "parallel_for"): (
        "def parallel_for(work, count, lanes, *arrays):\n"
        "    work(iter(range(count)), lanes[0], *arrays)"
    ),
    ("weft.support.interrupts", "interruptible"): (
        "def interruptible(function, *args):\n    return function(*args)"
    ),
    ("weft.ir.dtypes", "as_dtype"): "def as_dtype(dtype):\n    return np.dtype(dtype)",
    ("weft.support.locks", "cached_property"): "from functools import cached_property",
}
"""What stands for a definition that has to do with the process rather than with values."""


_ERROR = """\
class {name}({base}):
    def __init__(self, problem):
        super().__init__(problem)
        self.problem = problem
"""


class Bundle:
    """Definitions in the order in which they must be executed.

    Attributes
    ----------
    imports, texts
        The lines of imports, and the definitions.
    """

    def __init__(self) -> None:
        self.imports: dict[str, None] = {"import numpy as np": None}
        self.texts: list[str] = []
        self.names: dict[tuple[str, str], str] = {}
        self.taken = {"np", *dir(builtins)}

    def named(self, module: str, name: str) -> str:
        """Return the name in the bundle of a definition of a module.

        Raises BackendError if it cannot be gathered.
        """
        key = (module, name)
        if key in self.names:
            return self.names[key]
        if key in SUBSTITUTES:
            return self._added(key, SUBSTITUTES[key])
        value = getattr(sys.modules[module], name)
        if module == weft.errors.__name__ and isinstance(value, type):
            base = next(each for each in value.__mro__ if each.__module__ == "builtins")
            return self._added(key, _ERROR.format(name=name, base=base.__name__))
        node = _definitions(module).get(name)
        if node is None:
            raise BackendError(f"{module}.{name} has no definition that can be gathered")
        if isinstance(node, ast.Import | ast.ImportFrom):
            return self._imported(module, name, node)
        self.names[key] = unused = self._unused_name(name)
        self._add(node, module, {name: unused})
        return unused

    def method(self, kind: type, name: str) -> str:
        """Return the name in the bundle of a method as a function of ``self``."""
        owner = next(each for each in kind.__mro__ if name in vars(each))
        key = (owner.__module__, f"{owner.__name__}.{name}")
        if key not in self.names:
            (node,) = [
                each
                for each in _definitions(owner.__module__)[owner.__name__].body  # type: ignore[attr-defined]
                if isinstance(each, ast.FunctionDef) and each.name == name
            ]
            self.names[key] = unused = self._unused_name(f"{owner.__name__}_{name}")
            above = kind.__mro__[kind.__mro__.index(owner) + 1 :]
            body = _WithoutSuper(self, above).visit(_copied(node))
            body.name, body.decorator_list = unused, []
            self._add(body, owner.__module__, {})
        return self.names[key]

    def _added(self, key: tuple[str, str], text: str) -> str:
        self.names[key] = key[1]
        self.taken.add(key[1])
        if text.startswith("from "):
            self.imports[text] = None
        else:
            self.texts.append(text)
        return key[1]

    def _unused_name(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self.taken:
            number += 1
            candidate = f"{name}_{number}"
        self.taken.add(candidate)
        return candidate

    def _imported(self, module: str, name: str, node: ast.Import | ast.ImportFrom) -> str:
        (alias,) = [each for each in node.names if (each.asname or each.name) == name]
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in OWN:
            return self.named(str(node.module), alias.name)
        text = ast.unparse(_of_one(node, alias))
        self.imports[text] = None
        self.taken.add(name)
        self.names[module, name] = name
        return name

    def _add(self, node: ast.stmt, module: str, renamed: dict[str, str]) -> None:
        """Add a definition after those that it uses."""
        known = _definitions(module)
        used = {each for each in _used_names(node) if each in known and each not in renamed}
        modules = {
            each: holder for each in used if (holder := _module_of(module, each)) is not None
        }
        for name in sorted(used - modules.keys()):
            renamed[name] = self.named(module, name)
        node = _Renamed(self, renamed, modules).visit(_copied(node))
        self.texts.append(ast.unparse(ast.fix_missing_locations(node)))


@functools.cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the statements of a module that define its names."""
    definitions: dict[str, ast.stmt] = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        for name in _defined(node):
            definitions[name] = node
    return definitions


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Import() | ast.ImportFrom():
            yield from (each.asname or each.name for each in node.names)
        case ast.Assign():
            for target in node.targets:
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _copied(node: ast.stmt) -> Any:
    return ast.parse(ast.unparse(node)).body[0]


def _of_one(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    if isinstance(node, ast.Import):
        return ast.Import([alias])
    return ast.ImportFrom(node.module, [alias], node.level)


def _used_names(node: ast.AST) -> set[str]:
    """Return the names that a definition reads, other than in annotations."""
    names: set[str] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if isinstance(each, ast.Name):
            names.add(each.id)
        for field, value in ast.iter_fields(each):
            if field not in ("annotation", "returns"):
                values = value if isinstance(value, list) else [value]
                stack.extend(child for child in values if isinstance(child, ast.AST))
    return names


def _module_of(module: str, name: str) -> str | None:
    """Return the module of weft that a name in a module stands for, if it is one."""
    value = getattr(sys.modules[module], name, None)
    is_own = isinstance(value, ModuleType) and value.__name__.partition(".")[0] in OWN
    return value.__name__ if is_own else None  # type: ignore[union-attr]


class _Renamed(ast.NodeTransformer):
    """Replaces names by those in a bundle, and attributes of modules by what they stand for."""

    def __init__(self, bundle: Bundle, renamed: dict[str, str], modules: dict[str, str]) -> None:
        self.bundle, self.renamed, self.modules = bundle, renamed, modules

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.renamed.get(node.id, node.id), node.ctx)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self.renamed.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.renamed.get(node.name, node.name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id in self.modules:
            return ast.Name(self.bundle.named(self.modules[node.value.id], node.attr), node.ctx)
        return self.generic_visit(node)


class _WithoutSuper(ast.NodeTransformer):
    """Replaces calls of methods of a base class by calls of functions."""

    def __init__(self, bundle: Bundle, above: tuple[type, ...]) -> None:
        self.bundle, self.above = bundle, above

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                owner = next(each for each in self.above if name in vars(each))
                function = self.bundle.method(owner, name)
                return ast.Call(ast.Name(function), [ast.Name("self"), *node.args], node.keywords)
        return node
