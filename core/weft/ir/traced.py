"""What messages say of values that depend on arguments of a traced function."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from weft.ir import traversal, upcalls
from weft.ir.op import Op, next_serial

_ARGUMENT = object()


@dataclass
class Argument:
    """An argument of a traced function, which an op stands for.

    Attributes
    ----------
    function
        The name of the function.
    name
        The argument as it is written, as in ``params['w']``.
    may_be_static
        Whether `jit` may take it as it is.
    first, last
        The serial numbers between which the function was traced.
    """

    function: str
    name: str
    may_be_static: bool
    first: int
    last: float = math.inf

    def is_inside(self, op: Op) -> bool:
        """Whether an op was built while the function was traced."""
        return self.first <= op.order <= self.last


def open_arguments(
    ops: Iterable[Op], function: str, names: Iterable[str], static: Container[str] = ()
) -> None:
    """Mark ops as the arguments of a function that is about to be traced."""
    for op, name in zip(ops, names, strict=True):
        may_be_static = name in static and not op.axes
        op.memo(_ARGUMENT, partial(Argument, function, name, may_be_static, op.serial))


def close_arguments(ops: Iterable[Op]) -> None:
    """Mark the trace of the function that has these arguments as over."""
    for op in ops:
        argument = argument_of(op)
        if argument is not None:
            argument.last = next_serial()


def argument_of(op: Op) -> Argument | None:
    """Return the argument that an op stands for, if any."""
    return op.memo(_ARGUMENT, lambda: None)


def arguments_of(op: Op) -> list[Argument]:
    """Return the arguments that an op depends on."""
    found = map(argument_of, traversal.postorder([op]))
    return [argument for argument in found if argument is not None]


@upcalls.without_value.provide
def without_value(op: Op, value: str, instead: str) -> str:
    """Return what to say where Python asks for a value that an op does not have yet."""
    problem = f"a tensor op has no {value} before it is computed"
    arguments = arguments_of(op)
    over = [argument.function for argument in arguments if argument.last < math.inf]
    if over:
        return f"{problem}, and it was built in the trace of {over[0]}: let {over[0]} return it"
    if not arguments:
        way = "a function that weft.jit runs returns its value, or make a computation of it"
    elif all(argument.may_be_static for argument in arguments):
        names = tuple(dict.fromkeys(argument.name for argument in arguments))
        call = f"jit({arguments[0].function}, static_argnames={names})"
        way = f"or compile for each value of {', '.join(names)}, by {call}"
    else:
        way = "its value is known where the function has returned it"
    return f"{problem}: {instead}; {way}"


def explain_leak(name: str, graph: Any, op: Op) -> str:
    """Return what is wrong with a graph that depends on an argument of another function."""
    argument = argument_of(op)
    if argument is None:
        return f"{name} uses {op} ({op.file_info}), a placeholder: give it as an argument"
    outside = (each for each in graph.ops if not argument.is_inside(each))
    users = (each for each in outside if any(map(argument.is_inside, each.args)))
    user = next(users, None)
    where = "" if user is None else f"\n  used by {type(user).__name__}, {user.file_info}"
    return (
        f"{name} uses a value that was built in the trace of {argument.function} from its argument "
        f"{argument.name} ({op.file_info}): let {argument.function} return it, or give it as an "
        f"argument{where}"
    )
