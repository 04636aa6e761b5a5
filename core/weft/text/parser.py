"""Parses the printed form of a graph.

It is parsed with `ast` and never executed.
"""

from __future__ import annotations

import ast
import base64
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft import plugins
from weft.errors import ArgumentError, ParseError, WeftError
from weft.ir import dtypes, lengths, scope, storage
from weft.ir.axes import Axes, Axis, FlattenedAxis, ShardAxis
from weft.ir.graph import Graph
from weft.ir.op import Op, op_classes
from weft.ir.tensor import TensorOp
from weft.kernels import Group, Instruction, Kernel, Operand, place
from weft.kernels.kernel import stage_of
from weft.ops.products.linalg import MatmulOp
from weft.support.spelling import closest
from weft.text.op_checks import require_sound
from weft.text.printer import SEVERAL

_COMMENT = re.compile(r"\s*#\s+(.*):(\d+)\s*$")
_LINE_END = re.compile(r"\r\n|\r|\n")
_TOO_DEEP = "it is nested too deeply"


def parse(text: str, states: dict[str, Any] | None = None) -> Graph:
    """Return the graph that a text describes, as a graph is printed.

    Parameters
    ----------
    text
        The text.
    states
        The stored tensors for names in the text, a dict; others are made anew.

    Returns
    -------
    Graph
        The graph.

    Raises
    ------
    ParseError
        With line and column, for anything malformed, unknown, or printed without its values.
    ArgumentError
        For what is not text, or states that are not a dict.

    Examples
    --------
    >>> double = weft.parse('''
    ... graph('double')
    ... v0: float64(2) = Parameter('x')
    ... v1: float64(2) = AddOp(v0, v0)
    ... result(v1)
    ... ''')
    >>> weft.make_transformer().computation(double)([1.0, 2.0])
    (array([2., 4.]),)
    """
    return Parsing(states).parse(text)


class Parsing:
    """Parses texts that share states, the names of unknown lengths, and a table of constants.

    With a table, a text may hold no packed values, whose size it does not show.

    Attributes
    ----------
    states
        The stored tensors by name; `parse` adds those that a text declares.
    symbols
        The unknown lengths by name.
    """

    def __init__(
        self, states: Mapping[str, Any] | None = None, constants: Mapping[str, Any] | None = None
    ) -> None:
        if states is not None and not isinstance(states, Mapping):
            problem = f"states= takes a dictionary of names and states, not {states!r:.80}"
            raise ArgumentError(problem)
        self.states: dict[str, Any] = dict(states or {})
        self.symbols: dict[str, Any] = {}
        self.constants = constants

    def parse(self, text: str) -> Graph:
        """Return the graph that a text describes; see `parse`."""
        return _parsed(text, self)


def _parsed(text: str, parsing: Parsing) -> Graph:
    if not isinstance(text, str):
        raise ArgumentError(f"parse takes the text of a graph, not {text!r:.80}")
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", 0) or 0, getattr(error, "offset", 0) or 0
        raise ParseError(f"line {line}, column {column}: {error}") from None
    except (RecursionError, MemoryError):  # each version of Python has its own words for it
        raise ParseError(f"line 0, column 0: {_TOO_DEEP}") from None
    return _Parser(text, parsing).run(module)


class _Parser:
    def __init__(self, text: str, parsing: Parsing) -> None:
        self.lines = _LINE_END.split(text)
        self.parsing = parsing
        self.states = parsing.states
        self.symbols = parsing.symbols
        self.values: dict[str, Any] = {}
        self.parts: dict[str, Any] = {
            "inputs": [], "outputs": [], "updates": [], "effects": [], "after": {}, "name": "graph"
        }  # fmt: skip

    def run(self, module: ast.Module) -> Graph:
        statements: dict[str, Callable[..., None]] = {
            "graph": self._graph, "bound": self._bound, "state": self._state,
            "effect": self._effect, "result": self._result, "update": self._update,
            "after": self._after,
        }  # fmt: skip
        for node in module.body:
            try:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    self._define(node, self._op)
                elif isinstance(node, ast.With):
                    self._block(node)
                elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                    call = node.value
                    name = call.func.id if isinstance(call.func, ast.Name) else "?"
                    if name not in statements:
                        raise ParseError(f"unknown statement {name!r}")
                    statements[name](*(self.value(arg) for arg in call.args))
                else:
                    raise ParseError("expected 'name: type = Op(...)' or a statement")
            except ParseError as error:
                raise self._at(node, error) from None
            except (WeftError, *_MALFORMED) as error:
                raise self._at(node, error) from error
        graph = Graph(**self.parts)
        try:
            graph.verify()
        except WeftError as error:
            raise self._at(module.body[-1], error) from None
        return graph

    def _at(self, node: ast.AST, error: Exception) -> ParseError:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0) + 1
        is_deep = isinstance(error, RecursionError)
        problem = _TOO_DEEP if is_deep else getattr(error, "problem", error)
        return ParseError(f"line {line}, column {column}: {problem}")

    def _graph(self, name: str) -> None:
        _require(str, name)
        self.parts["name"] = name

    def _bound(self, name: str, maximum: int) -> None:
        _require(str, name)
        bounded = lengths.symbol(name, maximum)
        known = self.symbols.setdefault(name, bounded).as_symbol().maximum
        if known != maximum:
            problem = f"the length {name} has another maximum, or none, above"
            raise ParseError(f"{problem}: write bound({name!r}, {maximum}) once, before its use")

    def _state(self, name: str, kind: str, declared: Any) -> None:
        axes, dtype = declared
        _require(str, name)
        if kind not in (storage.PLACEHOLDER, storage.VARIABLE, storage.PERSISTENT):
            raise ParseError(f"unknown kind of state {kind!r}")
        if name not in self.states:
            self.states[name] = storage.AssignableTensorOp(
                kind=kind, target_axes=axes, target_dtype=dtype, value=None, name=name
            )

    def _effect(self, op: Op) -> None:
        _require(Op, op)
        self.parts["effects"].append(op)

    def _result(self, *ops: Op) -> None:
        _require(TensorOp, *ops)
        self.parts["outputs"].extend(ops)

    def _update(self, name: str, value: Op) -> None:
        _require(TensorOp, value)
        self.parts["updates"].append((self._stored(name), value))

    def _after(self, op: Op, *firsts: Op) -> None:
        _require(Op, op, *firsts)
        self.parts["after"][op] = firsts

    def _stored(self, name: str) -> Any:
        if name not in self.states:
            raise ParseError(f"unknown state {name!r}: declare it with state(...)")
        return self.states[name]

    def _define(self, node: ast.AnnAssign, make: Callable[..., Any]) -> None:
        assert isinstance(node.target, ast.Name)
        name, call = node.target.id, node.value
        if name in self.values:
            raise ParseError(f"{name} is defined twice")
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ParseError(f"{name} must be made by an op, as in 'v1: float32() = AddOp(v0, v0)'")
        axes, dtype = self._type(node.annotation)
        rest = self.lines[(node.end_lineno or 1) - 1].encode()[node.end_col_offset :]
        found = _COMMENT.match(rest.decode())
        location = (found[1], int(found[2])) if found else ("<graph text>", node.lineno)
        with scope.located(location):
            op = make(call.func.id, call, axes, dtype)
        if (op.axes, op.dtype) != (axes, dtype):
            raise ParseError(f"{name} yields {op.dtype} {op.axes}, not {dtype} {axes}")
        self.values[name] = op

    def _type(self, node: ast.expr) -> tuple[Axes, Any]:
        if isinstance(node, ast.Name) and node.id == SEVERAL:
            return Axes(), None
        axes, dtype = self.value(node)
        return axes, dtype

    def _block(self, node: ast.With) -> None:
        """Read the block of a kernel, or that of a graph that others call."""
        call = node.items[0].context_expr
        is_called = isinstance(call, ast.Call) and getattr(call.func, "id", "") == "called"
        if not is_called or not isinstance(call, ast.Call):
            self._kernel(node)
            return
        (name,) = (self.value(arg) for arg in call.args)
        _require(str, name)
        inside = _Parser("", self.parsing)
        inside.lines = self.lines
        inside.values = {k: v for k, v in self.values.items() if isinstance(v, Graph)}
        self.values[name] = inside.run(ast.Module(node.body, []))

    def _kernel(self, node: ast.With) -> None:
        """Read the block of a kernel; its values are known inside only."""
        name, domain, reduced = self._kernel_head(node)
        outside, self.values = self.values, {}
        operands: dict[Op, Operand] = {}
        group = Group(domain)

        def make(kind: str, call: ast.Call, axes: Axes, dtype: Any) -> Op:
            if kind == "Operand":
                return self._operand(call, axes, dtype, operands)
            op: Op = self._op(kind, call, axes, dtype)
            known = {each: operand.places for each, operand in operands.items()} | group.places
            whole = tuple(range(len(domain)))
            places = whole if isinstance(op, MatmulOp) else place(op, known, domain)
            if places is None:
                raise ParseError(f"{kind} does not fit into the domain {domain}")
            group.places[op] = places
            return op

        stored: list[Op] = []
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                self._define(each, make)
            elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
                stored.extend(self.value(arg) for arg in each.value.args)
        self.values = outside
        self.values[name] = _assembled(domain, reduced, operands, group, stored)

    def _kernel_head(self, node: ast.With) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        call = node.items[0].context_expr
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise ParseError("expected 'with kernel(name, domain, reduced):'")
        name, domain, reduced = (self.value(arg) for arg in call.args)
        _require(str, name)
        _require(tuple, domain, reduced)
        return name, domain, reduced

    def _operand(self, call: ast.Call, axes: Axes, dtype: Any, operands: dict[Op, Operand]) -> Op:
        values = [self.value(arg) for arg in call.args]
        if not axes and values:
            op: Op = storage.constant(_unpacked(values[0], axes, dtype), axes, dtype)
            operands[op] = Operand(axes, dtype, (), op.const)
            return op
        source = storage.AssignableTensorOp(
            kind=storage.PLACEHOLDER, target_axes=axes, target_dtype=dtype, value=None
        )
        op = storage.ParameterOp(source=source, target_axes=axes)
        operands[op] = Operand(axes, dtype, tuple(values))
        return op

    def _op(self, kind: str, call: ast.Call, axes: Axes, dtype: Any) -> Any:
        args = [self.value(arg) for arg in call.args]
        if kind == "Parameter":
            _require(str, *args)
            source = self.states.get(args[0]) or storage.AssignableTensorOp(
                kind="placeholder", target_axes=axes, target_dtype=dtype, value=None, name=args[0]
            )
            parameter = storage.ParameterOp(source=source, target_axes=axes)
            self.parts["inputs"].append(parameter)
            return parameter
        if kind == "Read":
            return storage.ReadOp(state=self._stored(args[0]), target_axes=axes)
        if kind == "Constant":
            if args[0] is Ellipsis:
                raise ParseError("the constant was printed without its values: use text(full=True)")
            array = _unpacked(args[0], axes, dtype)
            return storage.constant(array, axes, dtype)
        if kind not in op_classes:
            plugins.load_ops()
        if kind not in op_classes:
            close = closest(kind, op_classes)
            meant = f": did you mean {close!r}?" if close else ": install the plugin that has it"
            raise ParseError(f"unknown op {kind!r}{meant}")
        fields = {str(word.arg): self.value(word.value) for word in call.keywords}
        op = op_classes[kind](*args, **fields)
        require_sound(op)
        return op

    def _constant(self, name: str) -> Any:
        known = self.parsing.constants or {}
        _require(str, name)
        if name not in known:
            raise ParseError(f"unknown constant {name!r}: the table has no such one")
        return known[name]

    def value(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Tuple):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.List):
            return [self.value(part) for part in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self.value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            return _ARITHMETIC[type(node.op)](self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._call(node.func.id, node)
        raise ParseError(f"cannot read {ast.unparse(node)!r}")

    def _name(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        if name in ("nan", "inf"):
            return float(name)
        if re.fullmatch(r"v\d+", name):
            raise ParseError(f"{name} is used before it is defined")
        return self.symbols.setdefault(name, None) or self._new_symbol(name)

    def _new_symbol(self, name: str) -> Any:
        self.symbols[name] = lengths.symbol(name)
        return self.symbols[name]

    def _call(self, kind: str, node: ast.Call) -> Any:
        args = [self.value(arg) for arg in node.args]
        words = [(word.arg, self.value(word.value)) for word in node.keywords]
        if kind == "stored":
            return self._constant(*args)
        if kind == "packed":
            if self.parsing.constants is not None:
                raise ParseError("values are in the table of constants here, and not packed")
            return base64.b64decode(args[0])
        if kind == "dtype":
            return dtypes.as_dtype(args[0])
        if kind == "complex":
            return complex(*args)
        if kind == "Axis":
            return Axis(*args)
        if kind == "Shard":
            return ShardAxis(*args)
        axes = Axes(
            [arg if isinstance(arg, Axis) else Axis(arg) for arg in args]
            + [Axis(length, name) for name, length in words]
        )
        if kind == "Flattened":
            return FlattenedAxis(axes)
        return axes if kind == "Axes" else (axes, dtypes.as_dtype(kind))


_MALFORMED = (
    TypeError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError, zlib.error
)  # fmt: skip
"""What comes of a text that parses as Python and makes no sense as a graph."""

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y,
}


def _assembled(
    domain: tuple[int, ...],
    reduced: tuple[int, ...],
    operands: dict[Op, Operand],
    group: Group,
    stored: list[Op],
) -> Kernel:
    """Return a kernel of operands and ops that have been read."""
    values: list[Operand | Instruction] = list(operands.values())
    numbers = {op: number for number, op in enumerate((*operands, *group.places))}
    for op, places in group.places.items():
        args = tuple(numbers[arg] for arg in op.args)
        values.append(Instruction(op, args, places, stage_of(op, args, values)))
    body = tuple(value for value in values if isinstance(value, Instruction))
    outputs = tuple(numbers[op] for op in stored)
    return Kernel(domain, reduced, tuple(operands.values()), body, outputs)


def _unpacked(value: Any, axes: Axes, dtype: Any) -> Any:
    if isinstance(value, bytes):
        size = axes.size * dtype.itemsize
        # One byte more than fits, so that a text cannot make this unpack without end.
        content = zlib.decompressobj().decompress(value, size + 1)
        if len(content) != size:
            raise ParseError(f"the packed values are not the {size} bytes of {dtype} {axes}")
        return np.frombuffer(content, dtype).reshape(axes.shape)
    if isinstance(value, np.ndarray) and value.dtype != dtype:
        raise ParseError(f"the stored values are {value.dtype}, not {dtype}")
    return dtypes.host_array(value, dtype)


def _require(kind: type, *values: Any) -> None:
    for value in values:
        if not isinstance(value, kind):
            raise ParseError(f"expected {kind.__name__}, not {value!r}")
