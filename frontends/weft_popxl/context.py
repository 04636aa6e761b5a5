"""The construction context: the stack of open graphs, the name scope, and the order of execution.

It is an immutable value in a context variable. So threads and tasks have separate contexts, and
leaving a context, even by an exception, restores the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from weft_popxl.arguments import text, whole
from weft_popxl.errors import ContextError, refuse_type

T = TypeVar("T")

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

    from weft_popxl.graph import Graph
    from weft_popxl.ir import Ir

    Scope = _GeneratorContextManager[T]


@dataclass(frozen=True)
class Context:
    """The open graphs, innermost last; the name scopes; whether ops run in program order."""

    graphs: tuple[Graph, ...] = ()
    names: tuple[str, ...] = ()
    in_sequence: bool = False
    outer: Context | None = None

    @property
    def graph(self) -> Graph:
        """The innermost open graph; raises RuntimeError if there is none."""
        if not self.graphs:
            raise ContextError("there is no open graph: build inside `with ir.main_graph:`")
        return self.graphs[-1]

    @property
    def main_graph(self) -> Graph:
        """The main graph of the Ir; raises RuntimeError if no graph is open."""
        return self.graph.ir.main_graph

    @property
    def name_scopes(self) -> list[str]:
        """The names of the open name scopes, innermost last."""
        return list(self.names)


current: ContextVar[Context] = ContextVar("weft_popxl_context", default=Context())  # noqa: B039


def get_current_context() -> Context:
    """Return the context of ops that are built now, as it is at this moment."""
    return current.get()


@contextmanager
def _scope(change: Callable[[Context], Context], show: Callable[[Context], T]) -> Iterator[T]:
    """Change the context inside, and give what is to be shown of the new one.

    Both happen when the scope is entered, since as a decorator it is entered at each call.
    """
    token = current.set(change(current.get()))
    try:
        yield show(current.get())
    finally:
        current.reset(token)


def enter(graph: Graph) -> None:
    """Make a graph the current one; raises RuntimeError inside a graph of another Ir."""
    outer = current.get()
    if outer.graphs and outer.graphs[-1].ir is not graph.ir:
        raise ContextError(
            f"{graph} belongs to another Ir than the open {outer.graphs[-1]}: leave that first"
        )
    current.set(Context((*outer.graphs, graph), (), outer.in_sequence, outer))


def leave() -> None:
    """Restore the context before the last `enter`."""
    current.set(current.get().outer or Context())


def get_current_graph() -> Graph:
    """Return the innermost open graph; raises RuntimeError outside of all."""
    return current.get().graph


def get_main_graph() -> Graph:
    """Return the main graph of the current Ir; raises RuntimeError outside of all graphs."""
    return current.get().main_graph


def get_ir() -> Ir:
    """Return the Ir of the current graph; raises RuntimeError outside of all graphs."""
    return get_current_graph().ir


gcg, gmg, gir = get_current_graph, get_main_graph, get_ir


def in_sequence(mode: bool | Literal["pass"] = True) -> Scope[bool]:
    """Run the ops built inside in program order, or without a fixed order.

    ``"pass"`` keeps the enclosing setting. The context is what holds inside. Also a decorator.
    Raises TypeError for other values.
    """
    if not isinstance(mode, bool) and not (isinstance(mode, str) and mode == "pass"):
        refuse_type(f"in_sequence takes True, False or 'pass', not {mode!r}")
    return _scope(
        lambda context: context if mode == "pass" else replace(context, in_sequence=mode),
        lambda context: context.in_sequence,
    )


def name_scope(name: str) -> Scope[list[str]]:
    """Prefix the names of tensors built inside with a name and a slash. Also a decorator.

    The context is the list of all open scopes. Raises TypeError if the name is not a string.
    """
    label = text("the name of a name_scope", name)
    return _scope(
        lambda context: replace(context, names=(*context.names, label)),
        lambda context: context.name_scopes,
    )


def ipu(ipu: int) -> Scope[int]:
    """Accept the number of an IPU, without effect: a backend has one device.

    Raises TypeError if it is not an integer.
    """
    number = whole("the number of an ipu", ipu)
    return _scope(lambda context: context, lambda _: number)


@contextmanager
def io_tiles() -> Iterator[None]:
    """Accept a request for tiles that exchange data, without effect."""
    yield
