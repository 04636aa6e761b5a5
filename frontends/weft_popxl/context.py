"""The scopes of construction, and the context in force: its graph, its names, its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

from weft_popxl.arguments import text, whole
from weft_popxl.errors import refuse_type
from weft_popxl.program import Context, Graph, Ir, current

__all__ = [
    "Context", "current", "gcg", "get_current_context", "get_current_graph", "get_ir",
    "get_main_graph", "gir", "gmg", "in_sequence", "io_tiles", "ipu", "name_scope",
]  # fmt: skip

T = TypeVar("T")

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager

    Scope = _GeneratorContextManager[T]


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
