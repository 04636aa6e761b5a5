"""The toy backend: NumPy runs a program op by op, in the memory that the plan laid out.

The page "Write a backend" of weft's documentation goes through this file from top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft import (
    DeviceBufferStorage,
    DeviceTensor,
    Op,
    Target,
    TensorDescription,
    Transformer,
    nn,
    ops,
    ranks,
)
from weft.ir.rules import RuleTable
from weft.ops.indexing.slicing import python_slices
from weft.plan.plan import INPUT, RESULT, Step
from weft.runtime.device import host_view
from weft.runtime.program import Program

Array = np.ndarray[Any, Any]
Rule = Callable[..., Any]


class ToyBuffer(DeviceBufferStorage):
    """A stretch of the host's memory."""

    memory: Array

    def allocate(self) -> None:
        """Make the memory, filled with zeros."""
        self.memory = np.zeros(self.bytes, np.uint8)

    def make_tensor(self, description: TensorDescription) -> DeviceTensor:
        """Return a tensor on this buffer."""
        return ToyTensor(self, description)


class ToyTensor(DeviceTensor):
    """Some elements of a buffer, which `array` shows once the buffer has memory."""

    storage: ToyBuffer
    array: Array

    def attach(self) -> None:
        """Find the elements in the buffer, which has memory now."""
        self.array = host_view(self.description, self.storage.memory)

    def get(self, out: Any = None) -> Any:
        """Copy the elements into `out`, or into a new array, and return it."""
        self.storage.require_allocated()
        if out is None:
            return self.array.copy()
        out[...] = self.array
        return out

    def __getitem__(self, key: Any) -> Array:
        return np.array(self.get()[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.storage.require_allocated()
        self.array[key] = value


def plain(function: Callable[..., Any]) -> Rule:
    """Return the rule for an op that a function of the operands computes."""
    return lambda op, *args: function(*args)


def argsort(op: Any, x: Array) -> Array:
    """Sort places along an axis; equal elements keep their order both ways."""
    if not op.descending:
        return np.argsort(x, op.position, kind="stable")
    backwards = np.argsort(np.flip(x, op.position), op.position, kind="stable")
    return np.flip(x.shape[op.position] - 1 - backwards, op.position)


def complex_of(op: Op, x: Array, y: Array) -> Array:
    """Set both parts; a sum would turn an infinite imaginary part into NaN."""
    result = np.empty(op.axes.shape, op.dtype)
    result.real, result.imag = x, y
    return result


def iota(op: Any) -> Array:
    """Count along one axis; the others repeat that."""
    shape = [1] * op.rank
    shape[op.position] = -1
    return np.arange(op.axes.shape[op.position]).reshape(shape)


def on_host(op: Op, *args: Array) -> Any:
    """Let the op compute itself, as a backend without linear algebra may, and as collectives do."""
    return op.reference(*args)


def power(op: Op, x: Array, y: Array) -> Any:
    """Raise to the power; NumPy refuses integers to a negative one, which round to 0."""
    if op.dtype.kind in "iu":
        x = np.where((y < 0) & (np.abs(x) != 1), 0, x)
        y = np.where(y < 0, 2 - y % 2, y)  # all that matters then is whether it is even
    return np.power(x, y)


def reduction(function: Callable[..., Any]) -> Rule:
    """Return the rule for a sum or a product.

    NumPy reduces columns one element after the other, and would round as often: so it does that in
    long doubles.
    """

    def rule(op: Any, x: Array) -> Any:
        is_exact = op.dtype.kind not in "fc"
        dtype = op.dtype if is_exact else np.result_type(op.dtype, np.longdouble)
        return function(x, op.positions, dtype)

    return rule


def update_slice(op: Any, x: Array, value: Array) -> Array:
    """Put a slice into a copy of the whole."""
    result = x.copy()
    result[python_slices(op.bounds)] = value
    return result


def view(op: Op, *args: Array) -> None:
    """Never run: the plan describes the result as a view of an operand."""


def effect(op: Any, *args: Array) -> None:
    """Show the operands to the op, which does something on the host."""
    op.perform(*args)


PRIMITIVES: dict[type[Op], Rule] = {
    ops.AbsoluteOp: plain(np.absolute),
    ops.AddOp: plain(np.add),
    ops.ArgmaxOp: lambda op, x: np.argmax(x, *op.positions),
    ops.ArgsortOp: argsort,
    ops.AtanOp: plain(np.arctan),
    ops.BitcastOp: view,
    ops.BitwiseAndOp: plain(np.bitwise_and),
    ops.BitwiseOrOp: plain(np.bitwise_or),
    ops.BitwiseXorOp: plain(np.bitwise_xor),
    ops.BroadcastOp: view,
    ops.CastOp: lambda op, x: x.astype(op.dtype),
    ops.CholeskyOp: on_host,
    ranks.CommunicationOp: on_host,
    ops.ComplexOp: complex_of,
    ops.ConcatOp: lambda op, *xs: np.concatenate(xs, op.position),
    ops.ContiguousOp: plain(np.copy),
    ops.CosOp: plain(np.cos),
    ops.DeterminantOp: on_host,
    ops.DivideOp: plain(np.divide),
    ops.EffectOp: effect,
    ops.EqualOp: plain(np.equal),
    ops.ExpOp: plain(np.exp),
    ops.FloorDivideOp: plain(np.floor_divide),
    ops.FloorOp: plain(np.floor),
    ops.IdentityOp: view,
    ops.ImagOp: plain(np.imag),
    ops.IotaOp: iota,
    ops.LessOp: plain(np.less),
    ops.LogOp: plain(np.log),
    ops.MatmulOp: plain(np.matmul),
    ops.MaxOp: lambda op, x: np.max(x, op.positions),
    ops.MaximumOp: plain(np.maximum),
    ops.ModOp: plain(np.remainder),
    ops.MultiplyOp: plain(np.multiply),
    ops.PowerOp: power,
    ops.ProdOp: reduction(np.prod),
    ops.RealOp: plain(np.real),
    ops.ReshapeOp: lambda op, x: x.reshape(op.axes.shape),
    ops.ShiftLeftOp: plain(np.left_shift),
    ops.ShiftRightOp: plain(np.right_shift),
    ops.SinOp: plain(np.sin),
    ops.SliceOp: view,
    ops.SolveOp: on_host,
    ops.SqrtOp: plain(np.sqrt),
    ops.SubtractOp: plain(np.subtract),
    ops.SumOp: reduction(np.sum),
    ops.TakeOp: lambda op, x, indices: np.take(x, op.places(indices), op.position),
    ops.TanhOp: plain(np.tanh),
    ops.TransposeOp: view,
    ops.UpdateSliceOp: update_slice,
    ops.WhereOp: plain(np.where),
}
"""How each op is computed that is not made of others."""

COMPOSITES: dict[type[Op], Rule] = {
    ops.NegativeOp: plain(np.negative),
    nn.ReluOp: lambda op, x: np.maximum(x, 0),
    ops.SquareOp: plain(np.square),
}
"""Ops made of others that this backend computes whole."""

rules = RuleTable("toy")
for kind, rule in (PRIMITIVES | COMPOSITES).items():
    rules.add(kind, rule)


def has_rule(op: Op) -> bool:
    """Whether the backend, or a plugin for it, knows how to compute an op."""
    return rules.find(type(op)) is not None


def runner(program: Program, steps: Sequence[Step]) -> Callable[..., None]:
    """Return a function that runs steps, given arrays for the inputs and then for the results."""
    work: list[tuple[Step, Any]] = [(step, rules.find(type(step.op))) for step in steps]
    names = [(INPUT, number) for number in range(len(program.graph.inputs))]
    names += [(RESULT, number) for number in range(len(program.graph.outputs))]

    def run(*arrays: Array) -> None:
        callers = dict(zip(names, arrays, strict=True))

        def find(op: Op, place: TensorDescription) -> Any:
            tensor: Any = program.tensors.get(op)
            if tensor is not None:
                return tensor.array
            return host_view(place, callers[place.base.kind, place.base.owner])

        with np.errstate(all="ignore"):
            for step, rule in work:
                value = rule(step.op, *map(find, step.op.args, step.args))
                if value is not None:
                    find(step.op, step.out)[...] = value

    return run


class ToyTransformer(Transformer):
    """The toy backend."""

    transformer_name = "toy"

    @property
    def target(self) -> Target:
        """Every op that has a rule, in what weft takes for granted and in complex numbers."""
        return Target(
            name="toy",
            supports=has_rule,
            dtypes=Target.dtypes | {"complex64", "complex128"},
            fast_math=self.fast_math,
        )

    def device_buffer_storage(self, nbytes: int, name: str) -> ToyBuffer:
        """Return a new buffer, which has no memory yet."""
        return ToyBuffer(self, nbytes, name)

    def transform_ordered_ops(
        self, program: Program, ordered_ops: Sequence[Step], name: str
    ) -> Callable[..., None]:
        """Return a function that runs the steps, and list them as the source."""
        program.source = "\n".join(
            f"{step.op} <- {', '.join(map(str, step.op.args))}  # {step.op.file_info}"
            for step in ordered_ops
        )
        return runner(program, ordered_ops)
