"""FX graphs of ATen ops as weft's ops."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any, NamedTuple

import torch
from torch._higher_order_ops.effects import with_effects
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import map_arg

import weft
from weft.errors import GraphError, WeftError
from weft.ir.scope import located
from weft_torch import lowering as _rules  # noqa: F401 - fills the table
from weft_torch.errors import UnsupportedOp
from weft_torch.lowering.checks import CHECKS
from weft_torch.rules import Node, bound, name_of, rule_of, typed
from weft_torch.tensors import DTYPES, as_array, dtype_name, require_host

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_LINE = re.compile(r'File "(.+)", line (\d+)')


def line_of(fx: torch.fx.Node) -> tuple[str, int] | None:
    """Return the line of the model that a node comes from, if torch recorded it."""
    lines = _LINE.findall(fx.stack_trace or "")
    return (lines[-1][0], int(lines[-1][1])) if lines else None


def described(refused: Mapping[torch.fx.Node, str]) -> str:
    """Return a line for each op among nodes: its name, where the model calls it, and a reason."""
    lines: dict[str, str] = {}
    for fx, reason in refused.items():
        line = line_of(fx)
        where = f", {line[0]}:{line[1]}" if line else ""
        lines.setdefault(name_of(fx.target), f"{where}{': ' * bool(reason)}{reason}")
    return "\n".join(f"  {name}{rest}" for name, rest in lines.items())


def require_all(refused: Mapping[torch.fx.Node, str], advice: str = "") -> None:
    """Raise UnsupportedOp if a lowering refused nodes."""
    if refused:
        problem = f"weft cannot compile ops of this graph:\n{described(refused)}{advice}"
        raise UnsupportedOp(problem, dict.fromkeys(name_of(fx.target) for fx in refused))


class Passed(NamedTuple):
    """An input that is not computed with: the token that keeps effects in order.

    Attributes
    ----------
    number
        The number of the input.
    """

    number: int


def memory_order(fake: torch.Tensor) -> list[int]:
    """Return the axes of a tensor from the outermost in memory, if that is not row-major order.

    Nothing is returned for a tensor with gaps or repeated elements, nor for one of open lengths.
    """
    if fake.is_contiguous() or any(isinstance(n, torch.SymInt) for n in fake.stride()):
        return []
    order = sorted(range(fake.ndim), key=lambda axis: -fake.stride(axis))
    return order if fake.permute(order).is_contiguous() else []


def inverse(order: Sequence[int]) -> list[int]:
    """Return the order of axes that undoes another."""
    return [order.index(axis) for axis in range(len(order))]


class Lowering:
    """One lowering of a graph.

    With `for_torch` torch calls what is made: a key of random numbers is an argument, and arguments
    are as they are in memory. Otherwise it is a computation of its own.

    Attributes
    ----------
    parameters
        The placeholders of the graph's tensors, in order; the last is the key of random numbers, if
        any are drawn.
    results
        The flat results: ops, lengths, numbers or None.
    refused
        The nodes that cannot be lowered, with the reason if it is another one than that there is no
        rule. Placeholders stand for their results.
    places
        For each of these the number of the input that it is.
    names
        The names that torch has for these.
    orders
        The axes of these from the outermost in memory, as in `memory_order`: a placeholder has its
        axes in this order, and is transposed in the graph.
    inputs
        What these are in the graph.
    key
        The placeholder of the key, or None.
    """

    def __init__(
        self, module: torch.fx.GraphModule, lengths: Mapping[Any, Any], for_torch: bool = True
    ) -> None:
        self.module = module
        self.lengths = lengths
        self.for_torch = for_torch
        self.parameters: list[Any] = []
        self.places: list[int] = []
        self.names: list[str] = []
        self.orders: list[list[int]] = []
        self.inputs: list[Any] = []
        self.results: list[Any] = []
        self.refused: dict[torch.fx.Node, str] = {}
        self.key: Any = None
        self._drawn = 0
        self._numbers = count()
        self._values: dict[torch.fx.Node, Any] = {}

    def run(self) -> Lowering:
        """Lower all nodes."""
        for fx in self.module.graph.nodes:
            with _located(fx):
                self._values[fx] = self._lowered(fx)
        if self.key is not None:
            self.parameters.append(self.key)
        return self

    def _lowered(self, fx: torch.fx.Node) -> Any:
        if fx.op != "call_function":
            return getattr(self, fx.op)(fx)
        try:
            return self.call_function(fx)
        except WeftError as error:
            self.refused[fx] = str(error).partition("\n")[0]
            return self._stand_in(fx.meta.get("val"))

    def _stand_in(self, val: Any) -> Any:
        if isinstance(val, tuple | list):
            return [self._stand_in(each) for each in val]
        if not isinstance(val, torch.Tensor) or val.dtype not in DTYPES:
            return None
        return weft.placeholder(self.lengths_of(val.shape), DTYPES[val.dtype])

    def length(self, n: Any) -> Any:
        """Return an int or a length of weft for what may be a symbolic int of torch."""
        if not isinstance(n, torch.SymInt):
            return n
        return as_length(n.node.expr, self.lengths)

    def lengths_of(self, sizes: Iterable[Any]) -> tuple[Any, ...]:
        """Return a shape of ints or lengths."""
        return tuple(self.length(n) for n in sizes)

    def next_key(self) -> Any:
        """Return a key of its own for each op that draws; None if ops draw from weft's streams."""
        if not self.for_torch:
            return None
        if self.key is None:
            self.key = weft.placeholder((2,), "uint32", name="key")
        self._drawn += 1
        return weft.random.fold_in(self.key, self._drawn)

    def placeholder(self, fx: torch.fx.Node) -> Any:
        """Return a placeholder for an input, or the length that it is."""
        val, number = fx.meta.get("val"), next(self._numbers)
        if not isinstance(val, torch.Tensor):
            return self.length(val)
        if any(user.target is with_effects and user.args[0] is fx for user in fx.users):
            return Passed(number)
        require_host(val, f"The input {fx.name}")
        order = memory_order(val) if self.for_torch else []
        shape = val.permute(order).shape if order else val.shape
        made = weft.placeholder(self.lengths_of(shape), dtype_name(val.dtype), name=fx.name)
        self.parameters.append(made)
        self.places.append(number)
        self.names.append(fx.name)
        self.orders.append(order)
        self.inputs.append(weft.transpose(made, inverse(order)) if order else made)
        return self.inputs[-1]

    def get_attr(self, fx: torch.fx.Node) -> Any:
        """Return a tensor that the graph holds as a constant."""
        found = operator.attrgetter(str(fx.target))(self.module)
        if not isinstance(found, torch.Tensor):
            return found
        with unset_fake_temporarily():
            return weft.constant(as_array(found))

    def output(self, fx: torch.fx.Node) -> None:
        """Take the results."""
        returned = fx.args[0]
        results: Any = returned if isinstance(returned, tuple | list) else (returned,)
        self.results = list(map_arg(tuple(results), self._values.__getitem__))

    def call_function(self, fx: torch.fx.Node) -> Any:
        """Return what the rule of an op gives, as torch says that it is."""
        val = fx.meta.get("val")
        if isinstance(val, torch.SymInt | int) and not isinstance(val, bool):
            return self.length(val)
        args = map_arg(fx.args, self._values.__getitem__)
        if fx.target is operator.getitem:
            return args[0][args[1]]
        if fx.target is with_effects and name_of(args[1]).partition(".")[0] in CHECKS.split():
            return [args[0], None]
        rule = rule_of(fx.target)
        if rule is None:
            raise UnsupportedOp("")
        kwargs = map_arg(fx.kwargs, self._values.__getitem__)
        arguments = {
            name: self._plain(value) for name, value in bound(fx.target, args, kwargs).items()
        }
        node = Node(self, fx, arguments)
        wanted = {name: arguments[name] for name in rule.names if name in arguments}
        made = rule.function(*[node] * rule.takes_node, **wanted)
        return self._as_torch_says(fx, made, val)

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._plain(each) for each in value]
        return self.length(value)

    def _as_torch_says(self, fx: torch.fx.Node, made: Any, val: Any) -> Any:
        if isinstance(val, torch.Tensor):
            made = typed(made, dtype_name(val.dtype))
            if made.axes.lengths != self.lengths_of(val.shape):
                shapes = f"{made.axes.lengths} and not {tuple(val.shape)}"
                raise GraphError(f"the rule of {fx.target} gives the shape {shapes}")
            return made
        if isinstance(val, tuple | list):
            return [
                None if each is None or one is None else self._as_torch_says(fx, each, one)
                for each, one in zip(made, val, strict=True)
            ]
        return made


def _located(fx: torch.fx.Node) -> AbstractContextManager[Any]:
    """Give ops the line of the model."""
    line = line_of(fx)
    return located(line) if line else nullcontext()


def as_length(expr: Any, lengths: Mapping[Any, Any]) -> Any:
    """Return the length that an expression of SymPy is, of what its symbols stand for."""
    if expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return lengths[expr]
    kind = type(expr).__name__
    parts = [as_length(each, lengths) for each in expr.args]
    if kind in ("Add", "Mul"):
        apply = operator.add if kind == "Add" else operator.mul
        found = parts[0]
        for part in parts[1:]:
            found = apply(found, part)
        return found
    if kind == "Pow" and isinstance(parts[1], int) and parts[1] > 0:
        return weft.ir.lengths.product([parts[0]] * parts[1])
    if kind in ("FloorDiv", "CleanDiv"):
        return parts[0] // parts[1]
    if all(isinstance(part, int) for part in parts):
        return int(expr.func(*parts))
    raise UnsupportedOp(f"weft has no length for {expr}")


def symbols_of(module: torch.fx.GraphModule) -> dict[Any, Any]:
    """Return the symbols that the inputs of a graph bring, as lengths of weft of the same names."""
    found: dict[Any, Any] = {}
    for fx in module.graph.find_nodes(op="placeholder"):
        val = fx.meta.get("val")
        for n in val.shape if isinstance(val, torch.Tensor) else [val]:
            if isinstance(n, torch.SymInt) and not n.node.expr.is_Integer:
                for symbol in sorted(n.node.expr.free_symbols, key=str):
                    found.setdefault(symbol, weft.symbol(str(symbol)))
    return found


def hints_of(module: torch.fx.GraphModule) -> dict[str, int]:
    """Return the lengths that the inputs had that a graph was made with, by their names."""
    hints: dict[str, int] = {}
    for fx in module.graph.find_nodes(op="placeholder"):
        val = fx.meta.get("val")
        for n in val.shape if isinstance(val, torch.Tensor) else [val]:
            if isinstance(n, torch.SymInt) and n.node.expr.is_Symbol:
                hints[str(n.node.expr)] = int(n.node.hint)
    return hints
