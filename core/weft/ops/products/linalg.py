"""Matrix products, contractions over shared axes, diagonals and cross products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import BATCH, Axes, AxisKey, AxisKeys, broadcast_axes
from weft.ir.dtypes import Array, DType, DTypeLike, accumulator_dtype
from weft.ir.lengths import Length, product
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp, operators
from weft.ops.arguments import checked_integer
from weft.ops.indexing.slicing import SliceOp, slice_along_axis
from weft.ops.pointwise.elementwise import cast, common_dtype
from weft.ops.products.roles import MatrixRoles, RoleSignature, by_roles, is_named, role_names
from weft.ops.reductions.reduced_axes import OutAxes
from weft.ops.reductions.reduction import SumOp
from weft.ops.shape.joining import stack
from weft.ops.shape.movement import TransposeOp, broadcast, cast_axes, transpose
from weft.support.backports import override

__all__ = [
    "ContractionOp",
    "DotOp",
    "MatmulOp",
    "cross",
    "diagonal",
    "dot",
    "matmul",
    "matrix_transpose",
    "trace",
]

IndexingMap = tuple[int, ...]


class ContractionOp(TensorOp):
    """The base of sums of products whose kernel may compute more from each element of the result.

    `kernels.md` in the documentation says what such a kernel contains.
    """

    def operand_map(self, index: int, places: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the indexing map of an operand in the kernel, given that of the result.

        None stands for an axis that is whole at every point.
        """
        raise NotImplementedError


class MatmulOp(ContractionOp):
    """The batched matrix product: of the last two axes, over equal leading axes.

    The result has the first operand's axes, with the last replaced by the second's last. 16-bit
    floats are accumulated in float32; integers wrap around.
    """

    def infer(self) -> tuple[Axes, DType]:
        """Check ranks, leading axes and the contracted length."""
        x, y = self.args
        if x.rank != y.rank or x.rank < 2:
            raise AxesError(
                f"a matrix product takes equal ranks of 2 or more, not {x.axes}, {y.axes}"
            )
        if x.axes[:-2].lengths != y.axes[:-2].lengths:
            raise AxesError(f"leading axes of {x.axes} and {y.axes} differ")
        if x.axes[-1].length != y.axes[-2].length:
            raise AxesError(
                f"cannot contract length {x.axes[-1].length} of {x.axes} with "
                f"{y.axes[-2].length} of {y.axes}"
            )
        if x.dtype != y.dtype or dtypes.is_bool(x.dtype):
            raise DTypeError(f"a product needs numbers of one dtype, not {x.dtype} and {y.dtype}")
        return Axes((*x.axes[:-1], y.axes[-1])), x.dtype

    @override
    def reference(self, x: Array, y: Array) -> Any:
        wide = accumulator_dtype(self.dtype)
        return np.matmul(np.asarray(x, wide), np.asarray(y, wide)).astype(self.dtype)

    @property
    def flops(self) -> int:
        """Two for each product."""
        return 2 * int(self.axes.size) * int(self.args[0].axes.shape[-1])

    def operand_map(self, index: int, places: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the places of the rows of the first operand, or of the columns of the second."""
        *outer, rows, columns = places
        return (*outer, rows, None) if index == 0 else (*outer, None, columns)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> Any:
        """Return delta yᵀ and xᵀ delta."""
        swap = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        turned_y = TransposeOp(y, permutation=swap)
        turned_x = TransposeOp(x, permutation=swap)
        return MatmulOp(delta, turned_y), MatmulOp(turned_x, delta)


class DotOp(CompositeOp):
    """A tensor contraction: the sum of products over contracted axes, batched over others.

    The result has the batch axes, the free axes of the first operand, then those of the second.

    Attributes
    ----------
    contracted, batched
        Positions of the axes in the first and in the second operand, in corresponding order.
    """

    contracted: tuple[IndexingMap, IndexingMap]
    batched: tuple[IndexingMap, IndexingMap]

    def infer(self) -> tuple[Axes, DType]:
        """Check that paired axes agree in length."""
        x, y = self.args
        for mine, theirs in (*zip(*self.contracted, strict=True), *zip(*self.batched, strict=True)):
            if x.axes[mine].length != y.axes[theirs].length:
                raise AxesError(
                    f"axis {x.axes[mine]!r} of {x.axes} and axis {y.axes[theirs]!r} of {y.axes} "
                    "differ in length"
                )
        if x.dtype != y.dtype or dtypes.is_bool(x.dtype):
            raise DTypeError(f"a product needs numbers of one dtype, not {x.dtype} and {y.dtype}")
        free_x, free_y = self.free()
        batch = (x.axes[place] for place in self.batched[0])
        rest = (*(x.axes[place] for place in free_x), *(y.axes[place] for place in free_y))
        return Axes((*batch, *rest)), x.dtype

    def free(self) -> tuple[IndexingMap, IndexingMap]:
        """Return the positions of the free axes of each operand."""
        x, y = self.args
        return (
            tuple(i for i in range(x.rank) if i not in self.contracted[0] + self.batched[0]),
            tuple(i for i in range(y.rank) if i not in self.contracted[1] + self.batched[1]),
        )

    @override
    def reference(self, x: Array, y: Array) -> Any:
        letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        left = list(letters[: np.ndim(x)])
        right = list(letters[np.ndim(x) : np.ndim(x) + np.ndim(y)])
        for mine, theirs in (*zip(*self.contracted, strict=True), *zip(*self.batched, strict=True)):
            right[theirs] = left[mine]
        free_x, free_y = self.free()
        out = [left[i] for i in (*self.batched[0], *free_x)] + [right[i] for i in free_y]
        equation = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
        wide = accumulator_dtype(self.dtype)
        total = np.einsum(equation, np.asarray(x, wide), np.asarray(y, wide))
        return total.astype(self.dtype)

    def decompose(self, x: TensorOp, y: TensorOp) -> TensorOp:
        """Transpose and reshape both operands to batched matrices, and multiply these."""
        free_x, free_y = self.free()
        (contracted_x, contracted_y), (batched_x, batched_y) = self.contracted, self.batched
        left = _matrix(x, batched_x, free_x, contracted_x)
        right = _matrix(y, batched_y, contracted_y, free_y)
        return cast_axes(MatmulOp(left, right), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, y: TensorOp) -> Any:
        """Contract the adjoint with the other operand."""
        free_x, free_y = self.free()
        head = len(self.batched[0])
        batch = tuple(range(head))
        rows = tuple(range(head, head + len(free_x)))
        columns = tuple(range(head + len(free_x), self.rank))
        dx = DotOp(delta, y, contracted=(columns, free_y), batched=(batch, self.batched[1]))
        dy = DotOp(x, delta, contracted=(free_x, rows), batched=(self.batched[0], batch))
        # Contracted axes have the order of the other operand. With this order of operands the usual
        # layouts (rows, contracted) and (contracted, columns) need no transpose.
        paired_x = _sorted_pairs(self.contracted[1], self.contracted[0])
        paired_y = _sorted_pairs(self.contracted[0], self.contracted[1])
        return (
            _in_place(dx, (*self.batched[0], *free_x, *paired_x), x.axes),
            _in_place(dy, (*self.batched[1], *paired_y, *free_y), y.axes),
        )


def _matrix(x: TensorOp, batched: IndexingMap, rows: IndexingMap, columns: IndexingMap) -> TensorOp:
    turned = transpose(x, (*batched, *rows, *columns))
    sizes = (product(x.axes[i].length for i in places) for places in (rows, columns))
    return cast_axes(turned, (*(x.axes[i].length for i in batched), *sizes))


def _sorted_pairs(keys: IndexingMap, values: IndexingMap) -> IndexingMap:
    return tuple(value for _, value in sorted(zip(keys, values, strict=True)))


def _in_place(x: TensorOp, places: IndexingMap, axes: Axes) -> TensorOp:
    """Return the tensor with axis i moved to ``places[i]``, and the given axes."""
    order = tuple(places.index(place) for place in range(len(places)))
    return cast_axes(transpose(x, order), axes)


def as_factors(kind: str, *operands: Any) -> tuple[TensorOp, ...]:
    """Return the operands of a product in one numeric dtype; bool counts as int32."""
    dtype = explained(kind, operands, common_dtype, operands)
    if dtypes.is_bool(dtype):
        dtype = dtypes.int32
    return tuple(_factor(x, dtype) for x in operands)


def _factor(x: TensorLike, dtype: DType) -> TensorOp:
    if isinstance(x, bool | int | float | complex) and not isinstance(x, np.generic):
        return constant(x, dtype=dtype)
    return cast(as_op(x), dtype)


def dot(
    x: TensorLike,
    y: TensorLike,
    reduction_axes: AxisKeys | None = None,
    out_axes: OutAxes | None = None,
) -> TensorOp:
    """Return the contraction over shared axes of named tensors, or NumPy's dot of positional ones.

    A scalar multiplies. 16-bit floats are accumulated in float32.

    Parameters
    ----------
    x, y
        The operands. Of positional axes, the last one of x is contracted with the last but one of
        y, or its only one.
    reduction_axes
        The axes to contract, by name; by default all that both operands share, except the batch
        axis ``N``. Other shared axes are batch axes.
    out_axes
        The axes of the result in their order; by default the batch axes, then the remaining ones of
        x and of y.

    Returns
    -------
    TensorOp
        The contraction, in the promoted dtype of the operands. Bool gives int32.

    Raises
    ------
    AxesError
        If the axes do not fit, or only one operand has named axes.
    ArgumentError
        If axes are given for positional operands.

    Examples
    --------
    >>> weft.jit(weft.dot)(np.array([[1, 2], [3, 4]]), np.array([1, 10]))
    array([21, 43])
    >>> N, C, K = (weft.make_axis(length, name) for length, name in ((8, "N"), (3, "C"), (5, "K")))
    >>> weft.dot(weft.placeholder((N, C)), weft.placeholder((C, K))).axes
    Axes(N=8, K=5)
    """
    x, y = as_factors("dot", x, y)
    if not x.axes or not y.axes:
        return operators["multiply"](x, y)
    if x.axes.is_named != y.axes.is_named:
        raise AxesError(
            explain("dot", f"cannot combine named {x.axes} and positional {y.axes}", (x, y))
        )
    if not x.axes.is_named:
        if reduction_axes is not None or out_axes is not None:
            raise ArgumentError(explain("dot", "reduction_axes and out_axes need names", (x, y)))
        contracted = ((x.rank - 1,), (max(y.rank - 2, 0),))
        return DotOp(x, y, contracted=contracted, batched=((), ()))
    shared = [name for name in map(str, x.axes.names) if y.axes.find_by_name(name)]
    summed = _contracted_names(x, y, shared, reduction_axes)
    batch = [name for name in shared if name not in summed]
    result = DotOp(
        x, y,
        contracted=(x.axes.positions(summed), y.axes.positions(summed)),
        batched=(x.axes.positions(batch), y.axes.positions(batch)),
    )  # fmt: skip
    return result if out_axes is None else transpose(result, out_axes)


def _contracted_names(
    x: TensorOp, y: TensorOp, shared: Sequence[str], reduction_axes: AxisKeys | None
) -> Any:
    if reduction_axes is None:
        return [name for name in shared if name != "N"]
    places = explained("dot", (x, y), x.axes.positions, reduction_axes)
    names = [x.axes[place].name for place in places]
    for name in names:
        if name not in shared:
            problem = f"axis {name!r} cannot be contracted: the operands share {shared}"
            raise AxesError(explain("dot", problem, (x, y)))
    return names


def require_positional(kind: str, *operands: TensorOp) -> None:
    """Raise AxesError if an operand has named axes."""
    for x in operands:
        if x.axes.is_named:
            problem = f"takes positional axes, not {x.axes}: use dot, or cast_axes to lengths"
            raise AxesError(explain(kind, problem, operands))


def require_matrices(kind: str, x: TensorOp) -> None:
    """Raise AxesError if there are fewer than two axes, or named ones."""
    require_positional(kind, x)
    if x.rank < 2:
        problem = f"takes matrices in the last two axes, not {x.axes}"
        raise AxesError(explain(kind, problem, (x,)))


_PRODUCT = RoleSignature(
    "batch... rows? contracted",
    "batch... contracted columns?",
    results=["batch... rows? columns?"],
)


def matmul(x: TensorLike, y: TensorLike, **axes: Unpack[MatrixRoles]) -> TensorOp:
    """Return the matrix product, by NumPy's rules for positional tensors.

    Integers wrap around, 16-bit floats are accumulated in float32, and an empty contraction gives
    zeros.

    Parameters
    ----------
    x, y
        The operands. A vector is a row on the left and a column on the right; leading axes
        broadcast. Axes with the same name are one axis.
    axes
        For named tensors: `contracted`, the axis that is summed over, by default the only one that
        both share besides the batch axis ``N``, or the last axis of x if y is a positional matrix;
        and `columns`, the axes of y that take its place, by default all that x lacks, or the name
        of the last axis of a positional matrix, by default ``columns``.

    Returns
    -------
    TensorOp
        The product, in the promoted dtype of the operands; bool gives int32. Of named tensors it
        has the order of x, with the other axes of y in place of the contracted one.

    Raises
    ------
    AxesError
        If lengths do not fit, an operand is a scalar, or it is not clear which axis is summed over;
        `dot` sums over all shared axes.

    Examples
    --------
    >>> x, y = np.array([[1, 2], [3, 4]]), np.array([[0, 1], [1, 0]])
    >>> weft.jit(weft.matmul)(x, y)
    array([[2, 1],
           [4, 3]])
    >>> weft.jit(weft.matmul)(x, np.array([1, 10]))
    array([21, 43])
    """
    if is_named(x) or is_named(y):
        x, y = as_op(x), as_op(y)
        axes = _product_roles(x, y, axes)
    return by_roles("matmul", _PRODUCT, (x, y), axes, _matmul)


def _product_roles(x: TensorOp, y: TensorOp, given: MatrixRoles) -> Any:
    """Return the roles of the axes of named operands, for `by_roles`."""
    mine = x.axes.names
    theirs = y.axes.names if y.axes.is_named else ()
    shared = [name for name in mine if name in theirs]
    summed: Sequence[Any]
    if "contracted" in given:
        summed = role_names("matmul", "contracted", given["contracted"], (x, y))
    elif theirs:
        summed = [name for name in shared if name != BATCH]
    else:
        summed = mine[-1:]
    if not theirs and y.rank != 2:
        problem = f"a positional matrix has two axes, not {y.axes}"
        raise AxesError(explain("matmul", problem, (x, y)))
    if len(summed) != 1 and "contracted" not in given:
        which = f"share {', '.join(map(str, summed))}" if summed else "share no axis besides N"
        problem = f"the operands {which}: give the axis to sum over as contracted="
        raise AxesError(explain("matmul", problem, (x, y)))
    roles = {
        "batch": [name for name in shared if name not in summed],
        "rows": [name for name in mine if name not in (*shared, *summed)],
        "columns": [name for name in theirs if name not in (*shared, *summed)],
    }
    found = {role: names for role, names in roles.items() if names}
    return {**found, **given, "contracted": summed}


def _matmul(x: TensorLike, y: TensorLike) -> TensorOp:
    x, y = as_factors("matmul", x, y)
    if not x.axes or not y.axes:
        problem = "a matrix product takes no scalars: dot, or *, multiplies by a scalar"
        raise AxesError(explain("matmul", problem, (x, y)))
    left = cast_axes(x, (1, *x.axes.lengths)) if x.rank == 1 else x
    right = cast_axes(y, (*y.axes.lengths, 1)) if y.rank == 1 else y
    head = explained("matmul", (x, y), broadcast_axes, left.axes[:-2], right.axes[:-2])
    if right.rank == 2 and left.rank > 2:
        # A single product with many rows is faster than many products, also in the gradient.
        left = cast_axes(left, (product(left.axes[:-1].lengths), left.axes[-1].length))
        result: TensorOp = MatmulOp(left, right)
    else:
        result = MatmulOp(
            broadcast(left, Axes((*head, *left.axes[-2:]))),
            broadcast(right, Axes((*head, *right.axes[-2:]))),
        )
    rows = () if x.rank == 1 else (x.axes[-2],)
    columns = () if y.rank == 1 else (y.axes[-1],)
    return cast_axes(result, Axes((*head, *rows, *columns)))


def matrix_transpose(x: TensorLike) -> TensorOp:
    """Return a view of the tensor with its last two axes swapped; also `x.mT`.

    Examples
    --------
    >>> weft.jit(weft.matrix_transpose)(np.array([[1, 2, 3], [4, 5, 6]]))
    array([[1, 4],
           [2, 5],
           [3, 6]])
    """
    x = as_op(x)
    if x.rank < 2:
        raise AxesError(explain("matrix_transpose", f"takes two axes or more, not {x.axes}", (x,)))
    return transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def diagonal(x: TensorLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> TensorOp:
    """Return the diagonals of matrices.

    It is a view if the matrices are contiguous.

    Parameters
    ----------
    x
        The operand, without named axes. Matrices of unknown lengths must be square.
    offset
        Which diagonal: 0 is the main one, positive ones are above, negative ones below; one outside
        the matrix is empty.
    axis1, axis2
        The positions of rows and columns, by default the last two.

    Returns
    -------
    TensorOp
        A tensor with the diagonals along a new last axis, in place of rows and columns.

    Raises
    ------
    AxesError
        If the operand has fewer than two axes, or named ones.
    ArgumentError
        If the offset is not an integer.

    Examples
    --------
    >>> x = np.array([[1, 2, 3], [4, 5, 6]])
    >>> weft.jit(weft.diagonal)(x)
    array([1, 5])
    >>> weft.jit(lambda x: weft.diagonal(x, offset=1))(x)
    array([2, 6])
    """
    x, places = as_op(x), checked_integer("diagonal", "offset", offset)
    require_matrices("diagonal", x)
    matrix = explained("diagonal", (x,), x.axes.positions, (axis1, axis2))
    x = transpose(x, (*(place for place in range(x.rank) if place not in matrix), *matrix))
    rows, columns = x.axes[-2:].lengths
    count = _diagonal_length(x, rows, columns, places)
    start = places if places >= 0 else -places * columns
    flat = cast_axes(x, (*x.axes[:-2], rows * columns))
    whole = tuple((0, length, 1) for length in x.axes[:-2].lengths)
    return SliceOp(flat, bounds=(*whole, (start if count else 0, count, columns + 1)))


def _diagonal_length(x: TensorOp, rows: Any, columns: Any, offset: int) -> Any:
    if rows == columns and isinstance(rows, Length):
        return rows - abs(offset)
    if isinstance(rows, Length) or isinstance(columns, Length):
        problem = (
            f"the diagonals of {rows} by {columns} matrices have unknown length: make them square"
        )
        raise AxesError(explain("diagonal", problem, (x,)))
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def trace(x: TensorLike, offset: int = 0, *, dtype: DTypeLike | None = None) -> TensorOp:
    """Return the sums of the diagonals of matrices.

    Parameters
    ----------
    x
        The operand, with matrices in the last two axes, which have no names.
    offset
        Which diagonal: 0 is the main one, positive ones are above, negative ones below.
    dtype
        The dtype that the elements are cast to before.

    Returns
    -------
    TensorOp
        A tensor of the other axes. Integers keep their dtype, bool gives int32.

    Raises
    ------
    AxesError
        If the operand has fewer than two axes, or named ones.
    ArgumentError
        If the offset is not an integer.

    Examples
    --------
    >>> weft.jit(weft.trace)(np.array([[1, 2], [3, 4]]))
    array(5)
    """
    x = as_op(x) if dtype is None else cast(x, dtype)
    require_matrices("trace", x)
    return SumOp(diagonal(x, offset), positions=(x.rank - 2,))


def cross(x: TensorLike, y: TensorLike, axis: AxisKey = -1) -> TensorOp:
    """Return the cross product of vectors of length 3.

    Parameters
    ----------
    x, y
        The operands, whose other axes broadcast against each other.
    axis
        The axis of the vectors: a position in each operand and in the result, or a name in both; by
        default the last.

    Returns
    -------
    TensorOp
        The products, in the promoted dtype of the operands.

    Raises
    ------
    AxesError
        If there is no such axis, its length is not 3, or the others do not broadcast.

    Examples
    --------
    >>> weft.jit(weft.cross)(np.array([1, 0, 0]), np.array([0, 1, 0]))
    array([0, 0, 1])
    """
    x, y = as_factors("cross", x, y)
    if x.axes.is_named:
        axis = str(x.axes[explained("cross", (x, y), x.axes.position, axis)].name)
    x, y = _triples(x, axis), _triples(y, axis)
    axes = explained("cross", (x, y), broadcast_axes, x.axes, y.axes)
    place = axes.position(axis) if axes.is_named else len(axes) - 1
    a, b = (
        [slice_along_axis(broadcast(each, axes), place, index) for index in range(3)]
        for each in (x, y)
    )
    # Negative indices wrap around, so that i - 2 and i - 1 are the two cyclically after i.
    parts = [a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)]
    result = stack(parts, axes[place], place)
    if axes.is_named:
        return result
    order = list(range(place))
    order.insert(axes.position(axis), place)
    return transpose(result, order)


def _triples(x: TensorOp, axis: AxisKey) -> TensorOp:
    place = explained("cross", (x,), x.axes.position, axis)
    if x.axes[place].length != 3:
        problem = f"takes vectors of length 3 along axis {axis!r}, not {x.axes}"
        raise AxesError(explain("cross", problem, (x,)))
    return x if x.axes.is_named else axis_last(x, place)


def axis_last(x: TensorOp, place: int) -> TensorOp:
    """Return the tensor with one axis moved to the end."""
    return transpose(x, (*(i for i in range(x.rank) if i != place), place))


operators["matmul"] = matmul
operators["matrix_transpose"] = matrix_transpose
