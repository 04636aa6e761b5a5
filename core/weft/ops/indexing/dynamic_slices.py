"""Dynamic slices: slices of static size with start indices computed at a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType
from weft.ir.lengths import Length, Size
from weft.ir.op import Op, explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import TakeOp, without_names
from weft.ops.indexing.slicing import with_lengths
from weft.ops.pointwise.comparison import greater_equal, less, logical_and, maximum, minimum, where
from weft.ops.pointwise.elementwise import add, cast, subtract
from weft.ops.shape.movement import BroadcastOp, IotaOp, cast_axes, zeros_like
from weft.support.backports import override

__all__ = [
    "DynamicBlockOp",
    "DynamicSliceOp",
    "DynamicUpdateSliceOp",
    "dynamic_slice",
    "dynamic_update_slice",
]


class DynamicBlockOp(CompositeOp):
    """The base of ops on a block of the first operand.

    The last operands are the start indices, an integer for each axis. They are clamped so that the
    block lies inside.
    """

    def lengths(self) -> tuple[Any, ...]:
        """Return the lengths of the block."""
        raise NotImplementedError

    def starts(self) -> tuple[TensorOp, ...]:
        """Return the operands that are start indices."""
        return self.args[-self.args[0].rank :] if self.args[0].rank else ()

    def infer(self) -> tuple[Axes, DType]:
        """Check the lengths of the block and its start indices."""
        x, lengths = self.args[0], self.lengths()
        if len(lengths) != x.rank or any(map(_exceeds, lengths, x.axes.lengths)):
            raise AxesError(f"a block of lengths {lengths} does not lie inside {x.axes}")
        for start in self.starts():
            if start.axes or not dtypes.is_integer(start.dtype):
                raise DTypeError(
                    f"start indices must be integer scalars, not {start.dtype} {start.axes}"
                )
        return x.axes, x.dtype

    def block(self, *starts: Any) -> tuple[slice, ...]:
        """Return the slices of the block for given start indices."""
        shape, lengths = self.args[0].axes.shape, self.lengths()
        first = [
            min(max(int(start), 0), size - length)
            for start, size, length in zip(starts, shape, lengths, strict=True)
        ]
        return tuple(slice(at, at + length) for at, length in zip(first, lengths, strict=True))

    def partial_axes(self) -> list[tuple[int, int, TensorOp]]:
        """Return position, length and clamped start for each axis that the block does not span."""
        x = self.args[0]
        return [
            (place, length, _clamped(start, size - length))
            for place, (start, size, length) in enumerate(
                zip(self.starts(), x.axes.shape, self.lengths(), strict=True)
            )
            if length != size
        ]


class DynamicSliceOp(DynamicBlockOp):
    """A block of the first operand.

    Attributes
    ----------
    sizes
        The length of the block along each axis.
    """

    sizes: tuple[Size, ...]

    @override
    def lengths(self) -> tuple[Any, ...]:
        return self.sizes

    @override
    def infer(self) -> tuple[Axes, DType]:
        axes, dtype = super().infer()
        if len(self.args) != 1 + len(axes):
            raise AxesError(f"{len(self.args) - 1} starts for the {len(axes)} axes {axes}")
        return with_lengths(axes, self.sizes), dtype

    @override
    def reference(self, x: Array, *starts: Any) -> Any:
        return x[self.block(*starts)]

    @override
    def decompose(self, x: TensorOp, *starts: TensorOp) -> TensorOp:
        x = without_names(x)
        for place, length, start in self.partial_axes():
            x = TakeOp(x, add(_count(length), start), position=place)
        return cast_axes(x, self.axes)

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp, *starts: TensorOp) -> Any:
        return DynamicUpdateSliceOp(zeros_like(x), delta, *starts), *(None for _ in starts)


class DynamicUpdateSliceOp(DynamicBlockOp):
    """The first operand with a block of it replaced by the second."""

    @override
    def lengths(self) -> tuple[Any, ...]:
        lengths: tuple[Any, ...] = self.args[1].axes.lengths
        return lengths

    def infer(self) -> tuple[Axes, DType]:
        """Check that the second operand is a block of the first."""
        axes, dtype = super().infer()
        update = self.args[1]
        if len(self.args) != 2 + len(axes):
            raise AxesError(f"{len(self.args) - 2} starts for the {len(axes)} axes {axes}")
        if update.axes.names != axes.names or update.dtype != dtype:
            raise AxesError(f"a block of {dtype} {axes} cannot be {update.dtype} {update.axes}")
        return axes, dtype

    def may_overwrite(self, index: int) -> bool:
        """Allow the first operand: the block can be written into it."""
        return index == 0

    @override
    def reference(self, x: Array, update: Array, *starts: Any) -> Any:
        result = np.array(x)
        result[self.block(*starts)] = update
        return result

    def decompose(self, x: TensorOp, update: TensorOp, *starts: TensorOp) -> TensorOp:
        """Gather the second operand over the first, and select it inside the block."""
        inside: TensorOp | None = None
        update = without_names(update)
        for place, length, start in self.partial_axes():
            if not length:
                return x
            index = subtract(_count(x.axes.shape[place]), start)
            update = TakeOp(update, minimum(maximum(index, 0), length - 1), position=place)
            here = logical_and(greater_equal(index, 0), less(index, length))
            here = BroadcastOp(here, target_axes=make_axes(x.axes.shape), dims=(place,))
            inside = here if inside is None else logical_and(inside, here)
        update = cast_axes(update, x.axes)
        return update if inside is None else where(cast_axes(inside, x.axes), update, x)

    def generate_adjoints(
        self, delta: TensorOp, x: TensorOp, update: TensorOp, *starts: TensorOp
    ) -> Any:
        """Return the adjoint with zeros in the block, and the block of the adjoint."""
        outside = DynamicUpdateSliceOp(delta, zeros_like(update), *starts)
        inside = DynamicSliceOp(delta, *starts, sizes=self.lengths())
        return outside, inside, *(None for _ in starts)


def _exceeds(length: int | Length, size: int | Length) -> bool:
    """Whether a block is longer than its axis; False while a length is unknown."""
    if isinstance(length, Length) or isinstance(size, Length):
        return False
    return not 0 <= length <= size


def _count(length: int) -> TensorOp:
    return IotaOp(target_axes=make_axes((length,)), target_dtype=dtypes.int64, position=0)


def _clamped(start: TensorOp, room: int) -> TensorOp:
    if start.dtype == dtypes.uint64:
        start = minimum(start, room)
    return minimum(maximum(cast(start, dtypes.int64), 0), room)


def _starts(
    function: str, x: TensorOp, starts: TensorLike | Sequence[TensorLike]
) -> list[TensorOp]:
    """Return the start indices as an op for each axis of x."""
    found: Any = None
    if isinstance(starts, Op):
        vector = as_op(starts)
        length = vector.axes[0].length if vector.rank == 1 else None
        if length == x.rank:
            found = [vector[place] for place in range(x.rank)]
    elif isinstance(starts, Sequence | np.ndarray) and len(starts) == x.rank:
        found = starts
    if found is None:
        problem = f"starts must be one integer, or scalar op, for each axis of {x.axes}"
        raise ArgumentError(explain(function, problem, (x,)))
    return [
        as_op(start)
        if isinstance(start, Op)
        else constant(checked_integer(function, "a start", start), dtype=dtypes.int64)
        for start in found
    ]


def dynamic_slice(
    x: TensorLike, starts: TensorLike | Sequence[TensorLike], sizes: Sequence[Any]
) -> TensorOp:
    """Return a block of x of static size, with start indices computed at a call.

    Parameters
    ----------
    x
        The operand.
    starts
        An integer or a scalar op for each axis, or a vector of them. They are clamped so that the
        block lies inside, as in XLA: a negative one counts as 0, and no call fails.
    sizes
        A length for each axis, or None for the whole axis.

    Returns
    -------
    TensorOp
        The block.

    Raises
    ------
    ArgumentError
        If starts or sizes are not one for each axis, or numbers that are no integers.
    AxesError
        If a size exceeds its axis.
    DTypeError
        If a start is an op of another dtype than an integer one.

    Examples
    --------
    >>> x = np.array([10, 20, 30, 40])
    >>> weft.jit(lambda x, i: weft.dynamic_slice(x, [i], [2]))(x, 1)
    array([20, 30])
    """
    x = as_op(x)
    found = _starts("dynamic_slice", x, starts)
    if not isinstance(sizes, Sequence) or len(sizes) != x.rank:
        problem = f"sizes must be one length, or None, for each axis of {x.axes}, not {sizes!r}"
        raise ArgumentError(explain("dynamic_slice", problem, (x,)))
    lengths = make_axes(
        axis.length if size is None else size for size, axis in zip(sizes, x.axes, strict=True)
    ).lengths
    return DynamicSliceOp(x, *found, sizes=lengths)


def dynamic_update_slice(
    x: TensorLike, update: TensorLike, starts: TensorLike | Sequence[TensorLike]
) -> TensorOp:
    """Return x with a block replaced, with start indices computed at a call.

    Parameters
    ----------
    x
        The operand.
    update
        The block, cast to the dtype of x.
    starts
        An integer or a scalar op for each axis, or a vector of them. They are clamped so that the
        block lies inside, as in XLA: a negative one counts as 0, and no call fails.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    ArgumentError
        If starts are not one for each axis, or numbers that are no integers.
    AxesError
        If the block has other axes, or is longer than x along one.
    DTypeError
        If a start is an op of another dtype than an integer one.

    Examples
    --------
    >>> x = np.array([10, 20, 30, 40])
    >>> weft.jit(lambda x, i: weft.dynamic_update_slice(x, [7, 8], [i]))(x, 1)
    array([10,  7,  8, 40])
    """
    x, update = as_op(x), as_op(update)
    return DynamicUpdateSliceOp(
        x, cast(update, x.dtype), *_starts("dynamic_update_slice", x, starts)
    )
