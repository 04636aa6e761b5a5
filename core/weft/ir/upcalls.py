"""Upcalls: functions of higher layers that ops and graphs call.

A composite differentiates its decomposition, and a graph prints itself; autodiff and the printer
are layers above the graph. So each of them provides its function here when it is imported, at the
latest at the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Upcall:
    """Calls the function that a module of a higher layer provides."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.function: Callable[..., Any] | None = None

    def provide(self, function: F) -> F:
        """Make a function the one that is called; used as a decorator."""
        self.function = function
        return function

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        if self.function is None:
            import_module(self.module)
        assert self.function is not None, f"{self.module} provides it"
        return self.function(*args, **options)


adjoints_through = Upcall("weft.autodiff.reverse")
"""`weft.autodiff.reverse.adjoints_through`."""

adjoints_of_call = Upcall("weft.autodiff.call_adjoints")
"""`weft.autodiff.call_adjoints.adjoints_of_call`."""

adjoints_of_loop = Upcall("weft.autodiff.call_adjoints")
"""`weft.autodiff.call_adjoints.adjoints_of_loop`."""

adjoints_of_cond = Upcall("weft.autodiff.call_adjoints")
"""`weft.autodiff.call_adjoints.adjoints_of_cond`."""

print_graph = Upcall("weft.text.printer")
"""`weft.text.printer.print_graph`."""

op_as_html = Upcall("weft.text.notebook")
"""`weft.text.notebook.op_as_html`."""

graph_as_html = Upcall("weft.text.notebook")
"""`weft.text.notebook.graph_as_html`."""
