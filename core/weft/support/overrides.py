"""Overrides that cannot be called as the method that they stand for."""

from __future__ import annotations

import inspect
from types import FunctionType


def misfit(kind: type, base: type) -> str:
    """Return which method of a class does not take what that of a base class does, or nothing.

    Only parameters that the base class requires count, by position.

    >>> class Base:
    ...     def run(self, graph, target): ...
    >>> class Mine(Base):
    ...     def run(self, ops): ...
    >>> misfit(Mine, Base)
    'Mine.run(self, ops) takes other parameters than run(self, graph, target)'
    """
    for name, method in vars(kind).items():
        declared = vars(base).get(name)
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
