"""Gathers definitions of modules, and all that they use, into the text of one module.

Definitions are taken from the source of their modules, so that the text needs NumPy and the
standard library alone. Errors of weft derive from the built-in ones that they are.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType

import weft.errors
from weft.errors import BackendError

OWN = ("weft", "weft_numpy")

SUBSTITUTES = {
    ("weft_numpy.thread_pool", "parallel_for"): (
        "def parallel_for(work, count, lanes):\n    work(iter(range(count)), lanes[0])"
    ),
    ("weft.support.interrupts", "interruptible"): (
        "def interruptible(function, *args):\n    return function(*args)"
    ),
    ("weft.ir.dtypes", "as_dtype"): "def as_dtype(dtype):\n    return np.dtype(dtype)",
    ("weft.support.locks", "cached_property"): "from functools import cached_property",
    ("weft.support.backports", "override"): "def override(method):\n    return method",
}
"""What stands for a definition that has to do with the process rather than with values."""

_ERROR = """\
class {name}({base}):
    def __init__(self, problem):
        super().__init__(problem)
        self.problem = problem
"""


class Bundle:
    """Imports and the texts of definitions, in the order in which they must be executed."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {"import numpy as np": None}
        self.texts: list[str] = []
        self.names: dict[tuple[str, str], str] = {}
        self.taken = {"np", *dir(builtins)}

    def named(self, module: str, name: str) -> str:
        """Return the name in the bundle of a definition of a module, ``Class.method`` for a method.

        Raises BackendError if it cannot be gathered.
        """
        key = module, name
        if key in self.names:
            return self.names[key]
        node = _definitions(module).get(name)
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in OWN:
            return self.named(str(node.module), _imported(node, name).name)
        own = name.replace(".", "_")
        while own in self.taken and not isinstance(node, ast.Import | ast.ImportFrom):
            own += "_"
        self.names[key] = own
        self.taken.add(own)
        value = getattr(sys.modules[module], name, None)
        if key in SUBSTITUTES:
            self.texts.append(SUBSTITUTES[key])
        elif isinstance(node, ast.Import | ast.ImportFrom):
            alone = copy.copy(node)
            alone.names = [_imported(node, name)]
            self.imports[ast.unparse(alone)] = None
        elif module == weft.errors.__name__ and isinstance(value, type):
            base = next(each for each in value.__mro__ if each.__module__ == "builtins")
            self.texts.append(_ERROR.format(name=own, base=base.__name__))
        elif node is None:
            raise BackendError(f"{module}.{name} has no definition that can be gathered")
        else:
            self._add(node, module, {name.rpartition(".")[2]: own})
        return own

    def method(self, kind: type, name: str) -> str:
        """Return the name in the bundle of a method as a function of ``self``."""
        owner = next(each for each in kind.__mro__ if name in vars(each))
        return self.named(owner.__module__, f"{owner.__name__}.{name}")

    def _add(self, node: ast.stmt, module: str, renamed: dict[str, str]) -> None:
        """Add a definition after those that it uses."""
        known = _definitions(module)
        node = copy.deepcopy(node)
        if isinstance(node, ast.FunctionDef) and "self" in (arg.arg for arg in node.args.args):
            node.decorator_list = []
        used = {each for each in _used(node) if each in known and each not in renamed}
        modules = {each: own for each in used if (own := _module_of(module, each)) is not None}
        for name in sorted(used - modules.keys()):
            renamed[name] = self.named(module, name)
        changed = _Renamed(self, renamed, modules).visit(node)
        self.texts.append(ast.unparse(ast.fix_missing_locations(changed)))


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Return the statements of a module that define its names, and the methods of its classes."""
    definitions: dict[str, ast.stmt] = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        for name in _defined(node):
            definitions[name] = node
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            definitions |= {f"{node.name}.{each.name}": each for each in methods}
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


def _imported(node: ast.Import | ast.ImportFrom, name: str) -> ast.alias:
    return next(each for each in node.names if (each.asname or each.name) == name)


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition reads, other than in annotations."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _used(child)


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
