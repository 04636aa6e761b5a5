"""Module: a function with state, of which graphs are created."""

from __future__ import annotations

from typing import Any

from weft_popxl.errors import NotProvided


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
