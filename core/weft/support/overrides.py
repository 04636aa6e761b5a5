"""Overrides that cannot be called as the methods that they stand for."""

from __future__ import annotations

import inspect
from types import FunctionType


def misfit(kind: type, root: str) -> str:
    """Return which method of a class does not take what a base class's does, or nothing.

    Base classes of the package `root` count, methods with two underscores do not, and of the
    parameters those that the base class requires, by position.

    >>> class Base:
    ...     def run(self, graph, target): ...
    >>> class Mine(Base):
    ...     def run(self, ops): ...
    >>> misfit(Mine, "weft")
    'Mine.run(self, ops) takes other parameters than run(self, graph, target)'
    """
    bases = [base for base in kind.__mro__[1:] if base.__module__.partition(".")[0] == root]
    for name, method in vars(kind).items():
        if name.startswith("__"):
            continue
        declared = next((vars(base)[name] for base in bases if name in vars(base)), None)
        if isinstance(method, FunctionType) and isinstance(declared, FunctionType):
            required = [
                each.name
                for each in inspect.signature(declared).parameters.values()
                if each.default is each.empty
            ]
            mine = inspect.signature(method)
            try:
                mine.bind(*required)
            except TypeError:
                wanted = f"{name}({', '.join(required)})"
                taken = ", ".join(map(str, mine.parameters))
                return f"{kind.__name__}.{name}({taken}) takes other parameters than {wanted}"
    return ""
