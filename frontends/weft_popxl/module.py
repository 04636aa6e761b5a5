"""What graphs are created from: a function, or a Module, which has state."""

from __future__ import annotations

from functools import partial
from typing import Any

from weft_popxl.errors import NotProvided, refuse_type


class Module:
    """A callable with state: `build` stores the results of `graph_input` as attributes.

    ``ir.create_graph(module, x)`` calls ``module.build(x)``; another graph from the same module
    overwrites the attributes.
    """

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Build the graph and return its outputs; overridden by subclasses."""
        raise NotProvided(f"{type(self).__name__} must define build")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `build`, to use a module inside another one."""
        return self.build(*args, **kwargs)


def graph_name(function: Any) -> str:
    """Return the name of a graph that is created from a function or a module.

    Raises TypeError for a value that is not callable.
    """
    if not callable(function):
        refuse_type(f"a graph is created from a function or a Module, not from {function!r}")
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).replace(".<locals>", "")
