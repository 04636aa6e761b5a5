"""Upcalls: functions of higher layers that ops and graphs call.

A composite differentiates its decomposition, and a graph prints itself; autodiff and the printer
are layers above the graph. So each of them provides its function here when it is imported, at the
latest at the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:  # both import this module
    from weft.ir.graph import Graph
    from weft.ir.op import Op
    from weft.support.html import Html

P = ParamSpec("P")
R = TypeVar("R")


class Upcall(Generic[P, R]):
    """Calls the function that a module of a higher layer provides."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.function: Callable[P, R] | None = None

    def provide(self, function: Callable[P, R]) -> Callable[P, R]:
        """Make a function the one that is called; used as a decorator."""
        self.function = function
        return function

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        """Call the function."""
        if self.function is None:
            import_module(self.module)
        assert self.function is not None, f"{self.module} provides it"
        return self.function(*args, **options)


adjoints_through: Upcall[[Any, Any, Iterable[Op]], list[Any]] = Upcall("weft.autodiff.reverse")
"""`weft.autodiff.reverse.adjoints_through`."""

without_value: Upcall[[Op, str, str], str] = Upcall("weft.ir.traced")
"""`weft.ir.traced.without_value`."""

updated_at: Upcall[[Any, Any, Any, str], Any] = Upcall("weft.ops.indexing.updates")
"""`weft.ops.indexing.updates.updated_at`."""

print_graph: Upcall[[Graph, bool], str] = Upcall("weft.text.printer")
"""`weft.text.printer.print_graph`."""

op_as_html: Upcall[[Op], Html] = Upcall("weft.text.notebook")
"""`weft.text.notebook.op_as_html`."""

graph_as_html: Upcall[[Graph], Html] = Upcall("weft.text.notebook")
"""`weft.text.notebook.graph_as_html`."""
