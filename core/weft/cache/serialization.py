"""Serializes compiled programs for other processes, and restores them.

Ops, states and source lines are referred to by their index in the graph's structure, and resolved
to the user's own when the program is restored for a graph of equal structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.cache.entry import CacheEntry
from weft.cache.structure import (
    Canonicalizer,
    NotCanonical,
    Structure,
    address,
    found_by_name,
    packages_of,
)
from weft.errors import NeedsMemory
from weft.ir import dtypes, scope
from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import Array
from weft.ir.folded_constants import source_of
from weft.ir.graph import Graph
from weft.ir.guards import TracedLength, with_numbers
from weft.ir.op import Op, op_classes
from weft.ir.results import ResultOp, TupleOp
from weft.ir.storage import ParameterOp, owning_constant, placeholder
from weft.ir.traversal import postorder
from weft.kernels import FusedOp, Kernel
from weft.plan.plan import ARENA, CONSTANT, STATE, Buffer
from weft.support import source
from weft.support.locks import cached_property

IN_ARENA = -1


class Serializer:
    """Serializes a program and its code as JSON and arrays.

    `ops` are those of the captured graph in compiled order, `buffers` those of the plan.

    Methods raise NotCanonical for values that have no meaning in another process.
    """

    def __init__(
        self, structure: Structure, ops: Sequence[Op], arena_size: int, buffers: Iterable[Buffer]
    ) -> None:
        self.structure = structure
        self._ops = ops
        self._arena_size = arena_size
        self._numbers = {op: number for number, op in enumerate(structure.all_ops)}
        self._states = {state: number for number, state in enumerate(structure.states)}
        self._origins: dict[float, int] = {}
        for number, op in enumerate(structure.all_ops):
            self._origins.setdefault(op.order, number)
        fixed = [buffer for buffer in buffers if buffer.kind != ARENA]
        self._buffers = {buffer: number for number, buffer in enumerate(fixed)}
        self._tensors: dict[TensorDescription, int] = {}
        self._arrays: dict[int, tuple[int, Any]] = {}

    def entry(self, code: Any) -> CacheEntry:
        """Return the cache entry of the program, with the backend's part."""
        constants = {buffer.owner for buffer in self._buffers if buffer.kind == CONSTANT}
        if not self.structure.unread <= constants:
            raise NotCanonical("a constant whose values were not to count has been replaced")
        document = {
            "code": code,
            "order": [self._numbers[op] for op in self._ops],
            "arena": self._arena_size,
            "buffers": [[b.kind, b.nbytes, self._owner(b)] for b in self._buffers],
            "tensors": [self._place(tensor) for tensor in self._tensors],
        }
        return CacheEntry(document, [array for _, array in self._arrays.values()])

    def _owner(self, buffer: Buffer) -> Any:
        if buffer.kind == STATE:
            return self._states[buffer.owner]
        if buffer.kind != CONSTANT:
            return buffer.owner
        number = self._numbers.get(buffer.owner)
        return self._constant(buffer.owner) if number is None else number

    def _constant(self, constant: Op) -> Any:
        """Return the array of a constant that a pass created; for a large one, the ops behind it.

        Operands without a producer are constants of the user's, by number, or arrays.
        """
        if source_of(constant) is None:
            return {"array": self.array(constant.const)}
        steps: dict[Op, int] = {}
        serialized: list[Any] = []
        for op in postorder([constant], _folded_args):
            source = source_of(op)
            if source is None and not op.is_constant:
                source = op
            if source is not None:
                operands = [self._operand(arg, steps) for arg in source.args]
                steps[op] = len(serialized)
                serialized.append([self._op(source), operands])
        return {"folded": serialized}

    def _operand(self, arg: Op, steps: Mapping[Op, int]) -> Any:
        if arg in steps:
            return {"step": steps[arg]}
        number = self._numbers.get(arg)
        return {"array": self.array(arg.const)} if number is None else {"op": number}

    def _place(self, tensor: TensorDescription) -> Any:
        base = IN_ARENA if tensor.base.kind == ARENA else self._buffers[tensor.base]
        return [base, tensor.shape, tensor.dtype.name, tensor.strides, tensor.offset]

    def tensor(self, tensor: TensorDescription) -> int:
        """Return the number of a layout."""
        return self._tensors.setdefault(tensor, len(self._tensors))

    def origin(self, order: float) -> int:
        """Return the number of the user's op with a position in program order; -1 for none."""
        return self._origins.get(order, -1)

    def array(self, array: Array) -> int:
        """Return the number of an array in the cache entry."""
        return self._arrays.setdefault(id(array), (len(self._arrays), array))[0]

    def value(self, value: Any) -> Any:
        """Serialize a value.

        Values are numbers, text, dtypes, arrays; tuples, lists, dicts and slices of values;
        functions and classes by name, `partial` objects of these, kernels, ops and their methods.
        """
        if value is None or type(value) in (bool, int, str, TracedLength):
            return value
        pack = _PACK.get(type(value))
        if pack is not None:
            return pack(self, value)
        if isinstance(value, np.dtype):
            return {"dtype": value.name}
        if isinstance(value, np.generic):
            return {"scalar": self.array(np.array(value))}
        if isinstance(value, Op):
            return self._op(value)
        if callable(value):
            return self.function(value)
        raise NotCanonical(f"{value!r} of type {type(value).__name__}")

    def values(self, values: Iterable[Any]) -> list[Any]:
        """Serialize several values."""
        return [self.value(value) for value in values]

    def function(self, value: Any) -> Any:
        """Return the name of a function, or of a method with its object."""
        owner = getattr(value, "__self__", None)
        if isinstance(owner, Op | np.ufunc | Kernel):
            return {"attribute": [self.value(owner), value.__name__]}
        return {"name": address(value)}

    def _op(self, op: Op) -> Any:
        """Return the number of an op of the user's, or the text of one that a pass created."""
        number = self.origin(op.order)
        if number >= 0 and _is_alike(op, self.structure.all_ops[number]):
            return {"op": number}
        return {"made": [_text_of(op), number]}

    def kernel(self, kernel: Kernel) -> Any:
        """Return the text of an op that runs a kernel."""
        operands = [_parameter(each.shape, each.dtype) for each in kernel.operands]
        with scope.located(kernel.locations[0]):
            fused = FusedOp(*operands, kernel=kernel)
        return {"attribute": [{"made": [_text_of(fused), -1]}, "kernel"]}


class Deserializer:
    """Deserializes what `Serializer` wrote, for a graph of the same structure.

    `modules` are those of the compiling code, from which functions may be named.

    Raises KeyError, ValueError, TypeError, IndexError or AttributeError for malformed content.

    Attributes
    ----------
    code
        The backend's part of the document.
    order
        The ops of the graph in compiled order.
    arena_size, buffers
        The memory of the program; offsets in the arena count from the start of its only buffer.
    numbers
        The numbers that text refers to by their index, where they follow from unknown lengths.
    """

    def __init__(
        self,
        structure: Structure,
        entry: CacheEntry,
        modules: Iterable[str] = (),
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.numbers = numbers
        self.structure = structure
        self._packages = packages_of((*_NAMED, *modules))
        self.arrays: list[Any] = entry.arrays
        document = entry.document
        self.code = document["code"]
        self.order = [structure.ops[number] for number in document["order"]]
        self.arena_size = int(document["arena"])
        arena = Buffer(ARENA, self.arena_size, 0)
        fixed = [self._buffer(*each) for each in document["buffers"]]
        # Tensors without elements are in an arena of no bytes.
        is_used = any(base == IN_ARENA for base, *_ in document["tensors"])
        self.buffers = [arena, *fixed] if self.arena_size or is_used else fixed
        self._tensors = [self._tensor([*fixed, arena], *each) for each in document["tensors"]]

    def _buffer(self, kind: str, nbytes: int, owner: Any) -> Buffer:
        if kind == STATE:
            owner = self.structure.states[owner]
        elif kind == CONSTANT:
            is_op = isinstance(owner, int)
            owner = self.structure.all_ops[owner] if is_op else owning_constant(self.value(owner))
        return Buffer(kind, nbytes, 0, owner)

    def _tensor(
        self, buffers: list[Buffer], base: int, shape: Any, dtype: str, strides: Any, offset: int
    ) -> TensorDescription:
        known = dtypes.as_dtype(dtype)
        return TensorDescription(tuple(shape), known, tuple(strides), offset, buffers[base])

    @cached_property
    def table(self) -> TensorDescription:
        """The layout of the numbers, which are a constant of the program."""
        numbers = np.array(self.numbers or (), np.int64)
        buffer = Buffer(CONSTANT, numbers.nbytes, 0, owning_constant(numbers))
        self.buffers.append(buffer)
        return contiguous(numbers.shape, numbers.dtype, buffer)

    def tensor(self, number: int) -> TensorDescription:
        """Return a layout."""
        return self._tensors[number]

    def location(self, origin: int) -> source.Location | None:
        """Return the user's line behind an origin."""
        return self.structure.all_ops[origin].location if origin >= 0 else None

    def value(self, serialized: Any) -> Any:
        """Return a value."""
        if not isinstance(serialized, dict):
            return serialized
        ((kind, content),) = serialized.items()
        return _UNPACK[kind](self, content)

    def values(self, serialized: Iterable[Any]) -> list[Any]:
        """Return several values."""
        return [self.value(each) for each in serialized]

    def name(self, words: Any) -> Any:
        """Return a function or class by module and name, if its package may be named."""
        return found_by_name(words, self._packages)

    def folded_constant(self, steps: Any) -> Any:
        """Return the array of a constant, computed by the last of some ops."""
        results: list[Any] = []
        for serialized, operands in steps:
            op = self.value(serialized)
            values = [self._operand(each, results) for each in operands]
            with NeedsMemory(op.explain("its value is constant")), np.errstate(all="ignore"):
                results.append(np.asarray(op.reference(*values), op.dtype))
        return results[-1]

    def _operand(self, serialized: Any, results: Sequence[Any]) -> Any:
        ((kind, content),) = serialized.items()
        if kind == "step":
            return results[content]
        value = self.value(serialized)
        return value.const if kind == "op" else value

    def made_op(self, text: str, origin: int) -> Op:
        """Return an op that a pass created, in the place of the user's op behind it."""
        from weft.text.parser import parse  # few programs need it

        op: Op = parse(with_numbers(text, self.numbers or ())).outputs[0]
        if isinstance(op, ResultOp):
            op = op.args[0]
        if origin >= 0:
            op.stand_for(self.structure.all_ops[origin])
        return op


_NAMED = ("builtins", "math", "operator", "numpy", "ml_dtypes", "weft")
"""The packages that functions may be from, beside those that compiled the program."""


def _folded_args(op: Op) -> tuple[Any, ...]:
    source = source_of(op)
    return op.args if source is None else source.args


def _is_alike(op: Op, other: Op) -> bool:
    """Whether two ops are equal except for the producers of their operands."""

    def described(op: Op) -> Any:
        describe = Canonicalizer()
        types = [(arg.axes, arg.dtype) for arg in (*op.args, op)]
        return [type(op), describe(types), *map(describe, op.attributes().values())]

    return type(op) is type(other) and described(op) == described(other)


def _parameter(axes: Any, dtype: Any) -> ParameterOp:
    with scope.saved_user_deps():
        source_ = placeholder(axes, dtype)
    return ParameterOp(source=source_, target_axes=source_.axes)


def _text_of(op: Op) -> str:
    """Return the text of a graph of one op and its parameters."""
    if op_classes.get(type(op).__name__) is not type(op):
        raise NotCanonical(f"a second class of the name {type(op).__name__}")
    operands = tuple(_parameter(arg.axes, arg.dtype) for arg in op.args)
    alone: Any = op.with_args(operands)
    with scope.located(op.location):
        result = ResultOp(alone, index=0) if isinstance(op, TupleOp) else alone
    return Graph(inputs=operands, outputs=[result]).text(full=True)


def _serialize_partial(serializer: Serializer, value: partial[Any]) -> Any:
    words = [[name, serializer.value(each)] for name, each in value.keywords.items()]
    return {"partial": [serializer.value(value.func), serializer.values(value.args), words]}


def _deserialize_partial(deserializer: Deserializer, content: Any) -> partial[Any]:
    function, args, words = content
    options = {name: deserializer.value(each) for name, each in words}
    return partial(deserializer.value(function), *deserializer.values(args), **options)


def _serialize_dict(serializer: Serializer, value: dict[Any, Any]) -> Any:
    return {"dict": [serializer.values(pair) for pair in value.items()]}


_PACK: dict[type, Callable[[Serializer, Any], Any]] = {
    float: lambda _, value: {"float": value.hex()},
    complex: lambda _, value: {"complex": [value.real.hex(), value.imag.hex()]},
    tuple: lambda serializer, value: {"tuple": serializer.values(value)},
    list: lambda serializer, value: {"list": serializer.values(value)},
    dict: _serialize_dict,
    slice: lambda serializer, value: {
        "slice": serializer.values((value.start, value.stop, value.step))
    },
    type(...): lambda *_: {"ellipsis": 3},
    np.ndarray: lambda serializer, value: {"array": serializer.array(value)},
    partial: _serialize_partial,
    Kernel: Serializer.kernel,
}

_UNPACK: dict[str, Callable[[Deserializer, Any], Any]] = {
    "float": lambda _, content: float.fromhex(content),
    "complex": lambda _, content: complex(*map(float.fromhex, content)),
    "tuple": lambda deserializer, content: tuple(deserializer.values(content)),
    "list": lambda deserializer, content: deserializer.values(content),
    "dict": lambda deserializer, content: dict(map(deserializer.values, content)),
    "slice": lambda deserializer, content: slice(*deserializer.values(content)),
    "ellipsis": lambda *_: ...,
    "array": lambda deserializer, content: deserializer.arrays[content],
    "folded": Deserializer.folded_constant,
    "scalar": lambda deserializer, content: deserializer.arrays[content][()],
    "dtype": lambda _, content: dtypes.as_dtype(content),
    "name": Deserializer.name,
    "attribute": lambda deserializer, content: getattr(deserializer.value(content[0]), content[1]),
    "op": lambda deserializer, content: deserializer.structure.all_ops[content],
    "made": lambda deserializer, content: deserializer.made_op(*content),
    "partial": _deserialize_partial,
}
