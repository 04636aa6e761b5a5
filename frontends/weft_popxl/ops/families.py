"""Ops generated from a body that several of them share, and a row with what is their own.

The parameters of an op are those of its body after the name, which says what is built, and after
the function of weft, if the row has one.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from weft import TensorOp
from weft_popxl.building import apply, change, pair
from weft_popxl.data import as_tensor
from weft_popxl.program import Tensor

__all__ = ["applied", "binary", "family", "named", "twins", "unary"]

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[..., TensorOp]


def named(
    body: Callable[Concatenate[str, P], R], name: str, doc: str | None = None
) -> Callable[P, R]:
    """Return an op that calls a body with its name; without a docstring it has that of the body."""
    return _generated(body, (name,), doc or body.__doc__, body.__module__)


def twins(
    body: Callable[Concatenate[str, P], R], doc: str
) -> tuple[Callable[P, R], Callable[P, R]]:
    """Return the op of a body, and the one in place, whose name ends with an underscore."""
    name = body.__name__.strip("_")
    return named(body, name), named(body, f"{name}_", doc)


def family(
    body: Callable[Concatenate[str, Function, P], R],
) -> Callable[[str, Function, str], Callable[P, R]]:
    """Return the constructor of the ops that share a body: a row is a name, function and docstring.

    It is called in the module that has the op.
    """

    def row(name: str, function: Function, doc: str) -> Callable[P, R]:
        module = sys._getframe(1).f_globals["__name__"]  # as namedtuple finds its own
        return _generated(body, (name, function), doc, module)

    return row


def _generated(
    body: Callable[..., R], bound: tuple[Any, ...], doc: str | None, module: str
) -> Callable[..., R]:
    """Return a function that calls a body with its first arguments bound."""
    name: str = bound[0]
    whole = inspect.signature(body)
    signature = whole.replace(parameters=list(whole.parameters.values())[len(bound) :])

    def op(*args: Any, **kwargs: Any) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        return body(*bound, *given.args, **given.kwargs)

    update_wrapper(op, body)
    # Errors of weft name the function that the user called, which they read from the frame.
    op.__code__ = op.__code__.replace(co_name=name, co_qualname=name)
    op.__name__ = op.__qualname__ = name
    op.__doc__, op.__module__ = doc, module
    op.__annotations__ = {
        key: hint
        for key, hint in body.__annotations__.items()
        if key in signature.parameters or key == "return"
    }
    vars(op).update(__signature__=signature)
    return op


def applied(kind: str, function: Function, *operands: Tensor) -> Tensor:
    """Apply a function to tensors: in place to the first if the name ends with an underscore."""
    build = change if kind.endswith("_") else apply
    return build(kind, function, *operands)


@family
def unary(kind: str, function: Function, t: Tensor) -> Tensor:
    """Apply a function to a tensor."""
    return applied(kind, function, as_tensor(t))


@family
def binary(kind: str, function: Function, lhs: Any, rhs: Any) -> Tensor:
    """Apply a function to two tensors of one dtype, which are broadcast."""
    return apply(kind, function, *pair(kind, lhs, rhs))
