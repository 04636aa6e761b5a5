"""Lowering rules of primitives to functions of the array API standard, 2023.12.

A rule takes the op, the array library and the operands' arrays, and returns a new array. What the
standard lacks or leaves open (reading bits as another dtype, complex numbers from parts, linear
systems, effects) is done by the op's reference on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.errors import DTypeError
from weft.ir import dtypes, results
from weft.ir.op import Op
from weft.ir.rules import RuleTable
from weft.ops.control import effects
from weft.ops.indexing import gathering, slicing
from weft.ops.pointwise import bits, comparison, complex_parts, elementwise, math, rounding
from weft.ops.products import decompositions, linalg
from weft.ops.reductions import reduction, sorting
from weft.ops.shape import joining, movement
from weft.ranks import collectives

Array = Any
Rule = Callable[..., Array]

rules = RuleTable("array")


class ArrayLibrary:
    """A namespace of the array API standard, and one of its devices.

    Attributes
    ----------
    xp
        The namespace.
    device
        The `device` argument of its functions; None for the default.
    """

    def __init__(self, xp: Any, device: Any = None) -> None:
        self.xp = xp
        self.device = device

    def has(self, dtype: str) -> bool:
        """Whether the library has a dtype of that name."""
        return hasattr(self.xp, dtype)

    def dtype(self, dtype: dtypes.DType) -> Any:
        """Return the library's dtype of the same name; raises DTypeError if it has none."""
        if not self.has(dtype.name):
            raise DTypeError(f"{self.xp.__name__} has no dtype {dtype}")
        return getattr(self.xp, dtype.name)

    def from_host(self, array: np.ndarray[Any, Any]) -> Array:
        """Copy a NumPy array to the device."""
        copied = np.array(array, order="C")
        return self.xp.asarray(copied, dtype=self.dtype(array.dtype), device=self.device)

    def to_host(self, array: Array) -> np.ndarray[Any, Any]:
        """Return an array as a NumPy array."""
        try:
            return np.asarray(array)
        except (TypeError, RuntimeError):
            return np.from_dlpack(self.xp.asarray(array, device="cpu"))


FUNCTIONS: dict[type[Any], str] = {
    elementwise.AbsoluteOp: "abs",
    math.SqrtOp: "sqrt",
    math.ExpOp: "exp",
    math.LogOp: "log",
    math.SinOp: "sin",
    math.CosOp: "cos",
    math.TanhOp: "tanh",
    math.AtanOp: "atan",
    rounding.FloorOp: "floor",
    complex_parts.RealOp: "real",
    complex_parts.ImagOp: "imag",
    elementwise.AddOp: "add",
    elementwise.SubtractOp: "subtract",
    elementwise.MultiplyOp: "multiply",
    elementwise.DivideOp: "divide",
    comparison.EqualOp: "equal",
    comparison.WhereOp: "where",
    bits.BitwiseAndOp: "bitwise_and",
    bits.BitwiseOrOp: "bitwise_or",
    bits.BitwiseXorOp: "bitwise_xor",
    linalg.MatmulOp: "matmul",
}
"""The primitives that are a single function of the standard."""

ORDERED: dict[type[Any], str] = {comparison.MaximumOp: "maximum", comparison.LessOp: "less"}
"""The elementwise primitives that the standard defines for numbers but not for bool."""

BLOCK = 128
"""The elements that are summed at once, since a library may sum sequentially."""

WIDER = {"float32": "float64", "complex64": "complex128"}
"""The dtypes in which products are accumulated, where the library has them."""


@rules.on_type(*FUNCTIONS)
def function_rule(op: Op, library: ArrayLibrary, *args: Array) -> Array:
    """Call the function."""
    return getattr(library.xp, FUNCTIONS[type(op)])(*args)


def _numbers(library: ArrayLibrary, dtype: dtypes.DType, x: Array) -> Array:
    return library.xp.astype(x, library.xp.uint8) if dtypes.is_bool(dtype) else x


@rules.on_type(*ORDERED)
def ordered_rule(op: elementwise.ElementwiseOp, library: ArrayLibrary, x: Array, y: Array) -> Array:
    """Call the function, with bools as 0 and 1."""
    dtype = op.args[0].dtype
    function = getattr(library.xp, ORDERED[type(op)])
    result = function(_numbers(library, dtype, x), _numbers(library, dtype, y))
    return library.xp.astype(result, library.dtype(op.dtype))


@rules.on_type(elementwise.FloorDivideOp, elementwise.ModOp)
def quotient_rule(
    op: elementwise.ElementwiseOp, library: ArrayLibrary, x: Array, y: Array
) -> Array:
    """Call the function; integer division by 0, undefined in the standard, gives 0."""
    xp = library.xp
    divide = xp.floor_divide if isinstance(op, elementwise.FloorDivideOp) else xp.remainder
    if not dtypes.is_integer(op.dtype):
        return divide(x, y)
    is_zero = y == 0
    return xp.where(is_zero, xp.zeros_like(y), divide(x, xp.where(is_zero, xp.ones_like(y), y)))


@rules.on_type(math.PowerOp)
def power_rule(op: math.PowerOp, library: ArrayLibrary, x: Array, y: Array) -> Array:
    """Call the function; negative powers of integers follow the op's definition."""
    xp = library.xp
    if op.dtype.kind != "i":
        return xp.pow(x, y)
    root = xp.where((y < 0) & (xp.abs(x) != 1), xp.zeros_like(x), x)
    return xp.pow(root, xp.where(y < 0, 2 - y % 2, y))


@rules.on_type(bits.ShiftOp)
def shift_rule(op: bits.ShiftOp, library: ArrayLibrary, x: Array, count: Array) -> Array:
    """Call the function for valid counts; others shift all bits out."""
    xp, width = library.xp, op.dtype.itemsize * 8
    inside = (count >= 0) & (count < width)
    count = xp.where(inside, count, xp.full_like(count, width - 1))
    if isinstance(op, bits.ShiftRightOp):
        # The widest shift leaves the sign only; nothing of unsigned integers.
        moved = xp.bitwise_right_shift(x, count)
        return moved if op.dtype.kind == "i" else xp.where(inside, moved, xp.zeros_like(moved))
    moved = xp.bitwise_left_shift(x, count)
    return xp.where(inside, moved, xp.zeros_like(moved))


@rules.on_type(elementwise.CastOp)
def cast_rule(op: elementwise.CastOp, library: ArrayLibrary, x: Array) -> Array:
    """Convert the dtype."""
    return library.xp.astype(x, library.dtype(op.dtype))


@rules.on_type(movement.ReshapeOp)
def reshape_rule(op: movement.ReshapeOp, library: ArrayLibrary, x: Array) -> Array:
    """Reshape."""
    return library.xp.reshape(x, op.axes.shape)


@rules.on_type(movement.TransposeOp)
def transpose_rule(op: movement.TransposeOp, library: ArrayLibrary, x: Array) -> Array:
    """Permute the dimensions."""
    return library.xp.permute_dims(x, op.permutation)


@rules.on_type(movement.BroadcastOp)
def broadcast_rule(op: movement.BroadcastOp, library: ArrayLibrary, x: Array) -> Array:
    """Insert dimensions of length 1, then broadcast."""
    shape = [1] * op.rank
    for place, length in zip(op.dims, x.shape, strict=True):
        shape[place] = length
    return library.xp.broadcast_to(library.xp.reshape(x, tuple(shape)), op.axes.shape)


@rules.on_type(movement.IdentityOp)
def identity_rule(
    op: movement.IdentityOp, library: ArrayLibrary, x: Array, *others: Array
) -> Array:
    """Return the first operand."""
    return x


@rules.on_type(results.ResultOp)
def result_rule(op: results.ResultOp, library: ArrayLibrary, values: Any) -> Array:
    """Select one of several results."""
    return values[op.index]


@rules.on_type(movement.IotaOp)
def iota_rule(op: movement.IotaOp, library: ArrayLibrary) -> Array:
    """Compute the index along the axis."""
    return library.from_host(op.reference())


@rules.on_type(slicing.SliceOp)
def slice_rule(op: slicing.SliceOp, library: ArrayLibrary, x: Array) -> Array:
    """Slice the operand."""
    return x[slicing.python_slices(op.bounds)] if op.rank else x


@rules.on_type(slicing.UpdateSliceOp)
def update_slice_rule(
    op: slicing.UpdateSliceOp, library: ArrayLibrary, x: Array, value: Array
) -> Array:
    """Copy and assign the slice."""
    if not op.rank:
        return value
    result = library.xp.asarray(x, copy=True)
    result[slicing.python_slices(op.bounds)] = value
    return result


@rules.on_type(joining.ConcatOp)
def concat_rule(op: joining.ConcatOp, library: ArrayLibrary, *args: Array) -> Array:
    """Concatenate the operands."""
    return library.xp.concat(args, axis=op.position)


@rules.on_type(reduction.SumOp)
def sum_rule(op: reduction.SumOp, library: ArrayLibrary, x: Array) -> Array:
    """Sum in blocks, then the blocks, so that errors grow with the logarithm of the length.

    Sums have the dtype of the result, of 0 and 1 in the place of bools.
    """
    xp, dtype = library.xp, library.dtype(op.dtype)
    x = _numbers(library, op.args[0].dtype, x)
    if not dtypes.is_inexact(op.dtype) or op.args[0].axes.size <= BLOCK:
        return xp.sum(x, axis=op.positions, dtype=dtype)
    kept = [n for n in range(op.args[0].rank) if n not in op.positions]
    x = xp.permute_dims(x, (*kept, *op.positions))
    x = xp.reshape(x, (*op.axes.shape, -1))
    while x.shape[-1] > BLOCK:
        whole = x.shape[-1] // BLOCK * BLOCK
        blocks = xp.reshape(x[..., :whole], (*op.axes.shape, -1, BLOCK))
        totals = [xp.sum(blocks, axis=-1, dtype=dtype)]
        if whole < x.shape[-1]:
            totals.append(xp.sum(x[..., whole:], axis=-1, keepdims=True, dtype=dtype))
        x = xp.concat(totals, axis=-1)
    return xp.sum(x, axis=-1, dtype=dtype)


@rules.on_type(reduction.ProdOp)
def prod_rule(op: reduction.ProdOp, library: ArrayLibrary, x: Array) -> Array:
    """Multiply in a wider dtype where there is one, with bools as 0 and 1."""
    x = _numbers(library, op.args[0].dtype, x)
    dtype = library.dtype(op.dtype)
    wide = WIDER.get(op.dtype.name, "")
    if not library.has(wide):
        return library.xp.prod(x, axis=op.positions, dtype=dtype)
    product = library.xp.prod(x, axis=op.positions, dtype=getattr(library.xp, wide))
    return library.xp.astype(product, dtype)


@rules.on_type(reduction.MaxOp)
def max_rule(op: reduction.MaxOp, library: ArrayLibrary, x: Array) -> Array:
    """Compute the maximum; of bools, whether any is true."""
    if dtypes.is_bool(op.dtype):
        return library.xp.any(x, axis=op.positions)
    return library.xp.max(x, axis=op.positions)


@rules.on_type(reduction.ArgmaxOp)
def argmax_rule(op: reduction.ArgmaxOp, library: ArrayLibrary, x: Array) -> Array:
    """Find the position of the maximum."""
    x = _numbers(library, op.args[0].dtype, x)
    found = library.xp.argmax(x, axis=op.positions[0])
    return library.xp.astype(found, library.dtype(op.dtype))


@rules.on_type(gathering.TakeOp)
def take_rule(op: gathering.TakeOp, library: ArrayLibrary, x: Array, indices: Array) -> Array:
    """Gather, after a check of the indices on the host."""
    places = op.places(library.to_host(indices)) % max(x.shape[op.position], 1)
    flat = library.from_host(places.reshape(-1))
    taken = library.xp.take(x, flat, axis=op.position)
    return library.xp.reshape(taken, op.axes.shape)


@rules.on_type(sorting.ArgsortOp)
def argsort_rule(op: sorting.ArgsortOp, library: ArrayLibrary, x: Array) -> Array:
    """Sort, with bools as 0 and 1.

    In descending order from the end to the beginning: NumPy lacks that argument of the standard.
    """
    xp = library.xp
    x = _numbers(library, op.args[0].dtype, x)
    if op.descending:
        order = xp.argsort(xp.flip(x, axis=op.position), axis=op.position, stable=True)
        found = x.shape[op.position] - 1 - xp.flip(order, axis=op.position)
    else:
        found = xp.argsort(x, axis=op.position, stable=True)
    return xp.astype(found, library.dtype(op.dtype))


@rules.on_type(effects.EffectOp)
def effect_rule(op: effects.EffectOp, library: ArrayLibrary, *args: Array) -> Array:
    """Call the effect with the operands on the host, and return the first one."""
    op.perform(*map(library.to_host, args))
    return args[0]


@rules.on_type(bits.BitcastOp, complex_parts.ComplexOp, collectives.CommunicationOp)
@rules.on_type(decompositions.CholeskyOp, decompositions.SolveOp, decompositions.DeterminantOp)
def reference_rule(op: Op, library: ArrayLibrary, *args: Array) -> Array:
    """Compute an op by its NumPy reference, on the host."""
    result = np.asarray(op.reference(*map(library.to_host, args)), op.dtype)
    return library.from_host(result)
