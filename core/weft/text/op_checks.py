"""Checks of ops that are read from a text, which may say anything.

What a program builds has passed the checks of a function in front of the op. A text builds the op
itself, whose own inference looks at axes and dtypes only.
"""

from __future__ import annotations

import inspect
import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.errors import ParseError
from weft.ir.op import Op
from weft.ops.pointwise.elementwise import ElementwiseOp

_PLAIN = (float, str, bytes, tuple, list, dict, types.NoneType)
"""The types of what a text can say in the place of an integer."""


def require_sound(op: Op) -> None:
    """Raise ParseError for an op with attributes of other types, or another number of operands."""
    kind: Any = type(op)
    hints = _hints(kind)
    for name in op.fields:
        value = getattr(op, name)
        if name in hints and not fits(value, hints[name]):
            raise ParseError(f"{kind.__name__} has no {name} like {value!r:.100}")
    wanted = _arity(kind)
    if wanted is not None and len(op.args) != wanted:
        raise ParseError(f"{kind.__name__} takes {wanted} operands, not {len(op.args)}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value of a text fits a type; true for types that no text can tell apart.

    >>> fits((1, 2), tuple[int, ...]), fits((1, 2.5), tuple[int, ...]), fits("x", int | None)
    (True, False, False)
    """
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, inside[1])
    if origin is Literal:
        return value in inside
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in inside)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if inside[-1:] == (Ellipsis,):
            return all(fits(each, inside[0]) for each in value)
        pairs = zip(value, inside, strict=False)
        return len(value) == len(inside) and all(fits(each, kind) for each, kind in pairs)
    if hint in (str, types.NoneType):
        return isinstance(value, hint)
    if hint is int and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, float) or not isinstance(value, _PLAIN)
    if isinstance(hint, type) and hint is not Any:
        return isinstance(value, hint) or not isinstance(value, _PLAIN)
    return True


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the attributes of a class, of those that can be told."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        for name, hint in inspect.get_annotations(base).items():
            holder = type("Holder", (), {"__annotations__": {name: hint}})
            holder.__module__ = base.__module__
            try:
                found |= get_type_hints(holder, include_extras=True)
            except (NameError, TypeError):  # a name that only type checkers import
                found.pop(name, None)
    return found


@cache
def _arity(kind: Any) -> int | None:
    """Return the number of operands of an elementwise op; None if it is not known."""
    if not issubclass(kind, ElementwiseOp):
        return None
    reference = inspect.getattr_static(kind, "reference", None)
    function = getattr(reference, "__func__", reference)
    if isinstance(function, np.ufunc):
        return function.nin
    if kind.partials is ElementwiseOp.partials:
        return None
    parameters = list(inspect.signature(kind.partials).parameters.values())[2:]
    is_fixed = all(each.kind is each.POSITIONAL_OR_KEYWORD for each in parameters)
    return len(parameters) if is_fixed else None
