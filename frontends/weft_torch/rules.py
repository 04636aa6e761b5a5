"""The table of rules: for each ATen op a function that builds weft's ops.

A rule names the arguments that it wants as the schema of the ATen op names them, in lower case,
except that `x` stands for ``self`` or ``input`` and `y` for ``other``; `node`, if it is the first
parameter, is the `Node` that is lowered. Arguments that a caller left out have the schema's
defaults, and what the schema of an overload lacks has the rule's. What a rule returns is cast to
the dtype that torch says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

import weft
from weft_torch.errors import UnsupportedOp
from weft_torch.tensors import dtype_name

Tensor = Any
"""An op of weft, or a number where ATen takes both."""

RENAMED = {"self": "x", "input": "x", "other": "y"}


def _renamed(name: str) -> str:
    return RENAMED.get(name, name.lower())


class Around(Protocol):
    """The lowering of the graph that a node is in."""

    def lengths_of(self, sizes: Iterable[Any]) -> tuple[Any, ...]:
        """Return a shape of ints or lengths."""

    def next_key(self) -> Any:
        """Return a key for random numbers, or None for a stream of weft."""


class Rule(NamedTuple):
    """What lowers an op.

    Attributes
    ----------
    function
        Returns the results.
    names
        The names of the arguments that it takes.
    takes_node
        Whether it takes the node before these.
    family
        The module of its rule.
    """

    function: Callable[..., Any]
    names: tuple[str, ...]
    takes_node: bool
    family: str


RULES: dict[str, Rule] = {}
"""By the name of an ATen op, with an overload or for all that have no rule of their own."""


def lowers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the rule of ATen ops, whose names may be several in one string."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = tuple(inspect.signature(function).parameters)
        takes_node = parameters[:1] == ("node",)
        family = function.__module__.rpartition(".")[2]
        rule = Rule(function, parameters[takes_node:], takes_node, family)
        RULES.update(dict.fromkeys(" ".join(names).split(), rule))
        return function

    return register


def name_of(target: Any) -> str:
    """Return the name of an op with its overload, without the namespace ``aten``."""
    return str(target).removeprefix("aten.")


def rule_of(target: Any) -> Rule | None:
    """Return the rule of an op, or None."""
    name = name_of(target)
    base = name.rpartition(".")[0] or name
    return RULES.get(name) or RULES.get(base)


@cache
def _schema(target: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(
        (_renamed(each.name), each.default_value if each.has_default_value() else None)
        for each in target._schema.arguments
    )


def bound(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of an ATen op by the names that rules have for them."""
    schema = _schema(target)
    found = dict(schema)
    found |= {name: value for (name, _), value in zip(schema, args, strict=False)}
    return found | {_renamed(name): value for name, value in kwargs.items()}


class Node:
    """An ATen op that is lowered: what a rule may ask about it.

    Attributes
    ----------
    name
        The name of the op, without overload.
    fx
        The node of torch's graph.
    val
        The fake tensors that are its results.
    arguments
        All arguments by name, those that are tensors as ops of weft.
    """

    def __init__(self, lowering: Around, fx: torch.fx.Node, arguments: dict[str, Any]) -> None:
        self.lowering, self.fx, self.arguments = lowering, fx, arguments
        self.val: Any = fx.meta.get("val")
        self.full_name = name_of(fx.target)
        self.name = self.full_name.partition(".")[0]

    def _result(self, number: int | None) -> Any:
        if number is None:
            return self.val[0] if isinstance(self.val, tuple | list) else self.val
        return self.val[number]

    def shape(self, number: int | None = None) -> tuple[Any, ...]:
        """Return the shape of a result, of the first by default."""
        return self.lowering.lengths_of(self._result(number).shape)

    def dtype(self, number: int | None = None) -> str:
        """Return the name of the dtype of a result, of the first by default."""
        return dtype_name(self._result(number).dtype)

    def operands(self, count: int) -> list[Any]:
        """Return the first arguments."""
        return list(self.arguments.values())[:count]

    def common_dtype(self, count: int = 2) -> str:
        """Return the dtype that torch promotes the first arguments to."""
        fakes = [
            each.meta["val"] if isinstance(each, torch.fx.Node) else each
            for each in [*self.fx.args, *self.fx.kwargs.values()][:count]
        ]
        samples = [_sample(fake) for fake in fakes]
        found = samples[0]
        for sample in samples[1:]:
            kind = torch.result_type(found, sample)
            is_scalar = not any(isinstance(v, torch.Tensor) and v.ndim for v in (found, sample))
            found = torch.empty(() if is_scalar else (1,), dtype=kind, device="meta")
        return dtype_name(found.dtype)

    def uses(self, *numbers: int) -> bool:
        """Return whether the graph uses one of some results."""
        return any(user.args[1] in numbers and bool(user.users) for user in self.fx.users)

    def zeros(self, *numbers: int) -> list[Any]:
        """Return zeros in place of results that nobody uses."""
        return [weft.zeros(self.shape(number), self.dtype(number)) for number in numbers]

    def key(self) -> Any:
        """Return a key for random numbers that no other op of the graph draws from."""
        return self.lowering.next_key()

    def refuse(self, what: str) -> UnsupportedOp:
        """Return the error for arguments that no rule covers."""
        return UnsupportedOp(what, [self.full_name])


def _sample(fake: Any) -> Any:
    if isinstance(fake, torch.Tensor):
        return torch.empty((1,) if fake.ndim else (), dtype=fake.dtype, device="meta")
    if isinstance(fake, torch.SymInt):
        return 1
    return 1.0 if isinstance(fake, torch.SymFloat) else fake


def typed(x: Any, dtype: str) -> Any:
    """Return a tensor or number as a tensor of a dtype."""
    if isinstance(x, weft.TensorOp):
        return x if x.dtype.name == dtype else weft.cast(x, dtype)
    return weft.constant(np.asarray(x).astype(dtype))


def is_inexact(dtype: str) -> bool:
    """Return whether a dtype is of floats or complex numbers."""
    return "float" in dtype or "complex" in dtype


def at_axis(rank: int, axis: int, item: Any) -> tuple[Any, ...]:
    """Return an index that is `item` at an axis, and takes the others whole."""
    items: list[Any] = [slice(None)] * rank
    items[axis] = item
    return tuple(items)
