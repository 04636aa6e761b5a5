"""Methods that cannot be called as what calls them does."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any


def misfit(kind: type, root: str) -> str:
    """Return which method of a class does not take what a base class's does, or nothing.

    Base classes of the package `root` count, methods with two underscores do not, and of the
    parameters those that the base class requires, by position. The methods are those of the class
    and of those bases that have none of the package, which were not checked when they were defined.

    >>> class Base:
    ...     def run(self, graph, target): ...
    >>> class Mine(Base):
    ...     def run(self, ops): ...
    >>> misfit(Mine, "weft")
    'Mine.run(self, ops) takes other parameters than run(self, graph, target)'
    """
    bases = [base for base in kind.__mro__[1:] if base.__module__.partition(".")[0] == root]
    for owner in kind.__mro__:
        if owner is kind or not any(base in owner.__mro__ for base in bases):
            problem = _misfit(kind, owner, bases)
            if problem:
                return problem
    return ""


def _misfit(kind: type, owner: type, bases: Sequence[type]) -> str:
    for name, method in vars(owner).items():
        if name.startswith("__") or inspect.getattr_static(kind, name) is not method:
            continue
        declared = next((vars(base)[name] for base in bases if name in vars(base)), None)
        function = getattr(method, "__func__", method)
        if isinstance(function, FunctionType) and isinstance(declared, FunctionType):
            required = [
                each.name
                for each in inspect.signature(declared).parameters.values()
                if each.default is each.empty
            ]
            given = required[1:] if isinstance(method, staticmethod) else required
            mine = inspect.signature(function, follow_wrapped=False)
            if not _takes(mine, given):
                wanted = f"{name}({', '.join(required)})"
                taken = ", ".join(map(str, mine.parameters))
                return f"{owner.__name__}.{name}({taken}) takes other parameters than {wanted}"
    return ""


def refusal_of(function: Any, arguments: Sequence[str]) -> str:
    """Return why something cannot be called with positional arguments, or nothing if it can.

    >>> refusal_of(print, ["graph"]), refusal_of(3, ["graph"])
    ('', 'is 3, which cannot be called')
    """
    if not callable(function):
        return f"is {function!r}, which cannot be called"
    if isinstance(function, MethodType):
        return refusal_of(function.__func__, ("self", *arguments))
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # which some of those have that are written in C
        return ""
    if _takes(signature, arguments):
        return ""
    return f"takes ({', '.join(map(str, signature.parameters))}){_place(function)}"


def _takes(signature: inspect.Signature, arguments: Sequence[str]) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _place(function: Any) -> str:
    """Return the file and line of a function in Python, as messages have it."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return f' (File "{code.co_filename}", line {code.co_firstlineno})' if code else ""
