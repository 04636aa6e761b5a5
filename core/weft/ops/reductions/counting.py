"""Counting: unique values, nonzero positions and histograms, up to a declared size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, broadcast_axes, make_axes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.indexing.gathering import ScatterOp, TakeAlongAxisOp, TakeOp, with_length
from weft.ops.indexing.slicing import SliceOp
from weft.ops.pointwise.comparison import (
    equal,
    less,
    less_equal,
    where,
)
from weft.ops.pointwise.elementwise import FloatOp, add, align, cast
from weft.ops.reductions.cumulative import CumsumOp
from weft.ops.reductions.reduction import SumOp, truth
from weft.ops.reductions.sorting import (
    ArgsortOp,
    SearchSortedOp,
    SortOp,
    flat,
    same,
    searchsorted,
)
from weft.ops.shape.joining import concat, pad, stack
from weft.ops.shape.movement import IotaOp, broadcast, cast_axes, transpose, zeros_like

__all__ = [
    "bincount",
    "histogram",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "unique",
]


class Occurrences(NamedTuple):
    """The positions where a mask is true, up to a declared number.

    Attributes
    ----------
    running
        The running count of true elements.
    places
        The first positions where it is true, followed by the length of the mask.
    number
        The number of true elements.
    """

    running: TensorOp
    places: TensorOp
    number: TensorOp


def _occurrences(function: str, mask: TensorOp, size: int) -> Occurrences:
    """Return the positions where a flat mask is true."""
    wanted = make_axes((checked_integer(function, "size", size, 0),))
    counts = cast(mask, dtypes.int64)
    running = CumsumOp(counts, position=0, reverse=False, exclusive=False)
    places = SearchSortedOp(running, add(_index(wanted), 1), side="left")
    return Occurrences(running, places, SumOp(counts, positions=(0,)))


def _taken_or(x: TensorOp, places: TensorOp, fill_value: ArrayLike) -> TensorOp:
    """Return the elements of a vector at positions; its length gives the fill value."""
    return TakeOp(pad(x, [(0, 1)], fill_value), places, position=0)


class Unique(NamedTuple):
    """The distinct elements of a tensor, with inverse indices, counts, and their number."""

    values: TensorOp
    inverse: TensorOp
    counts: TensorOp
    number: TensorOp


def unique(
    x: TensorLike, size: int, fill_value: ArrayLike = 0, axis: AxisKey | None = None
) -> Unique:
    """Return the distinct elements in ascending order, their indices, counts, and their number.

    If there are more than `size` distinct elements, the smallest are kept; `inverse` and `number`
    refer to all. All NaNs count as one value, the largest. The gradient of a value goes to its
    first occurrence. Slices along an axis are compared element by element, the first ones first.

    Parameters
    ----------
    x
        The operand.
    size
        The number of values to return.
    fill_value
        What the values are padded with.
    axis
        An axis, to return the distinct slices along it: a position, an axis or its name. The other
        axes must have known lengths.

    Returns
    -------
    Unique
        A named tuple of four tensors: `values`, of length `size`, or like x with this length along
        the axis; `inverse`, with the axes of x, or the axis only, the index of each element or
        slice among the values; `counts`, the occurrences of each value, 0 for padding; and
        `number`, a scalar. All but the values are int64.

    Raises
    ------
    AxesError
        If x has no such axis, or another one has no known length.
    ArgumentError
        If `size` is not an integer, or is negative.
    DTypeError
        If the operand is complex.

    Examples
    --------
    >>> found = weft.jit(lambda x: weft.unique(x, size=4))(np.array([3, 1, 3, 2]))
    >>> found.values, found.counts, found.number
    (array([1, 2, 3, 0]), array([1, 1, 2, 0]), array(3))
    >>> found.inverse
    array([2, 0, 2, 1])
    >>> found = weft.jit(lambda x: weft.unique(x, 2, axis=0))(np.array([[3, 1], [2, 5], [3, 1]]))
    >>> found.values
    array([[2, 5],
           [3, 1]])
    """
    x = as_op(x)
    if axis is None:
        elements, position, axes = flat(x), 0, x.axes
        keys = elements
    else:
        position = explained("unique", (x,), x.axes.position, axis)
        elements, axes = cast_axes(x, make_axes(x.axes.lengths)), x.axes[position : position + 1]
        keys = _keys_of_slices(elements, position)
    order = ArgsortOp(keys, position=0, descending=False)
    is_new = _is_new(SortOp(keys, position=0, descending=False))
    running, firsts, number = _occurrences("unique", is_new, size)
    widths = [(int(each == position), 0) for each in range(elements.rank)]
    places = _taken_or(order + 1, firsts, 0)
    values: TensorOp = TakeOp(pad(elements, widths, fill_value), places, position=position)
    if axis is not None:
        values = cast_axes(values, with_length(x.axes, position, firsts.axes[0].length))
    ends = SearchSortedOp(running, add(_index(firsts.axes), 1), side="right")
    # The argsort of a permutation is its inverse.
    back = ArgsortOp(order, position=0, descending=False)
    inverse = cast_axes(TakeOp(running, back, position=0) - 1, axes)
    return Unique(values, inverse, ends - firsts, number)


def _keys_of_slices(x: TensorOp, position: int) -> TensorOp:
    """Return an integer for each slice along an axis, in the order of the slices.

    Neighboring columns become one, of the ranks of pairs, until there is a single one.
    """
    others = x.axes[:position] + x.axes[position + 1 :]
    if not others.is_static:
        problem = f"needs known lengths of all axes but that of the slices: {x.axes}"
        raise AxesError(explain("unique", problem, (x,)))
    rest = [place for place in range(x.rank) if place != position]
    columns = cast_axes(
        transpose(x, (position, *rest)), make_axes((x.axes[position].length, others.size))
    )
    if not others.size:
        return zeros_like(_index(columns.axes[:1]))
    ranks, number = _column_ranks(columns)
    while (width := ranks.axes.lengths[1]) > 1:
        paired = slice(0, width - width % 2)
        keys = ranks[:, paired][:, ::2] * number[paired][1::2] + ranks[:, paired][:, 1::2]
        found, count = _column_ranks(keys)
        if width % 2:
            found, count = concat([found, ranks[:, -1:]], 1), concat([count, number[-1:]], 0)
        ranks, number = found, count
    return ranks[:, 0]


def _column_ranks(columns: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return how many distinct elements of its column are less than each, and how many it has."""
    order = ArgsortOp(columns, position=0, descending=False)
    is_new = _is_new(SortOp(columns, position=0, descending=False))
    counts = cast(is_new, dtypes.int64)
    running = CumsumOp(counts, position=0, reverse=False, exclusive=False)
    back = ArgsortOp(order, position=0, descending=False)
    return TakeAlongAxisOp(running, back, position=0) - 1, SumOp(counts, positions=(0,))


def _is_new(ordered: TensorOp) -> TensorOp:
    """Return which elements of an ordered vector, or of ordered columns, differ from the last."""
    widths = [(1, 0), *[(0, 0)] * (ordered.rank - 1)]
    bounds = tuple((0, axis.length, 1) for axis in ordered.axes)
    before = SliceOp(pad(ordered, widths, 0), bounds=bounds)
    return equal(_index(ordered.axes), 0) | ~same(before, ordered)


class Nonzero(NamedTuple):
    """The indices of the nonzero elements, a row for each axis, and their number."""

    indices: TensorOp
    number: TensorOp


def nonzero(x: TensorLike, size: int, fill_value: int = 0) -> Nonzero:
    """Return the indices of the nonzero elements, in row-major order, and their number; NaN counts.

    Parameters
    ----------
    x
        The operand. All its axes but the first must have known lengths.
    size
        How many indices to return; of more elements the first are kept.
    fill_value
        What unused columns hold.

    Returns
    -------
    Nonzero
        A named tuple of two int64 tensors: `indices` with a row for each axis of x and `size`
        columns, and the scalar `number`.

    Raises
    ------
    AxesError
        If the operand has no axis, or its rows no known length.
    ArgumentError
        If `size` is not an integer, or is negative.

    Examples
    --------
    >>> found = weft.jit(lambda x: weft.nonzero(x, size=3))(np.array([[0, 5], [7, 0]]))
    >>> found.indices, found.number
    (array([[0, 1, 0],
           [1, 0, 0]]), array(2))
    """
    x = as_op(x)
    if not x.axes or not x.axes[1:].is_static:
        problem = f"needs at least one axis, and known lengths of all but the first: {x.axes}"
        raise AxesError(explain("nonzero", problem, (x,)))
    _, rest, number = _occurrences("nonzero", flat(truth(x)), size)
    is_there = less(_index(rest.axes), number)
    rows = []
    for axis in reversed(x.axes[1:]):
        rows.append(rest % axis.length)
        rest = rest // axis.length
    return Nonzero(stack([where(is_there, row, fill_value) for row in (rest, *rows[::-1])]), number)


class MaskedSelect(NamedTuple):
    """The elements selected by a mask, and their number."""

    values: TensorOp
    number: TensorOp


def masked_select(
    x: TensorLike, mask: TensorLike, size: int, fill_value: ArrayLike = 0
) -> MaskedSelect:
    """Return the elements where a mask is true, in row-major order, and their number.

    Parameters
    ----------
    x
        The operand.
    mask
        Which elements to take: those where it is not 0. It is broadcast against x.
    size
        The number of elements to return; of more elements the first are kept.
    fill_value
        What the elements are padded with.

    Returns
    -------
    MaskedSelect
        A named tuple: `values`, a vector of length `size`, and the int64 scalar `number`.

    Raises
    ------
    AxesError
        If operand and mask do not broadcast.
    ArgumentError
        If `size` is not an integer, or is negative.

    Examples
    --------
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> found = weft.jit(lambda x: weft.masked_select(x, x > 1, size=3))(x)
    >>> found.values, found.number
    (array([2., 3., 0.]), array(2))
    """
    x, mask = as_op(x), truth(as_op(mask))
    axes = broadcast_axes(x.axes, mask.axes)
    _, places, number = _occurrences("masked_select", flat(broadcast(mask, axes)), size)
    return MaskedSelect(_taken_or(flat(broadcast(x, axes)), places, fill_value), number)


def masked_scatter(x: TensorLike, mask: TensorLike, source: TensorLike) -> TensorOp:
    """Return x with the elements where a mask is true replaced by those of a source, in order.

    The gradient of a source's element goes to the one that it replaces.

    Parameters
    ----------
    x
        The operand.
    mask
        Which elements to replace: those where it is not 0. It is broadcast to x.
    source
        The elements that replace them, in row-major order, of any shape; cast to the dtype of x.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    AxesError
        If the mask does not broadcast to x.
    IndexOutOfRange
        In a call, if the mask is true for more elements than the source has.

    Examples
    --------
    >>> x, source = np.array([1, 2, 3]), np.array([7, 8, 9])
    >>> weft.jit(lambda x, y: weft.masked_scatter(x, x > 1, y))(x, source)
    array([1, 7, 8])
    """
    x, mask = as_op(x), truth(as_op(mask))
    elements = flat(cast(as_op(source), x.dtype))
    mask = explained("masked_scatter", (x, mask), broadcast, mask, x.axes)
    if elements.axes.size == 0:
        elements = pad(elements, [(0, 1)], 0)
    counts = cast(flat(mask), dtypes.int64)
    number = CumsumOp(counts, position=0, reverse=False, exclusive=False)
    # The number before the first is -1, an index of the last.
    found = TakeOp(elements, number - 1, position=0)
    return where(mask, cast_axes(found, x.axes), x)


def bincount(x: TensorLike, length: int, weights: TensorLike | None = None) -> TensorOp:
    """Return the count of each integer from 0 to `length` - 1, or the sum of its weights.

    Parameters
    ----------
    x
        Integers, of any shape. Those outside of the range are ignored.
    length
        How many integers are counted.
    weights
        What each element counts, with the axes of x or a scalar; by default 1.

    Returns
    -------
    TensorOp
        A vector of this length: int64 counts, or sums in the dtype of the weights.

    Raises
    ------
    DTypeError
        If the elements are not integers.
    AxesError
        If the weights have other axes.
    ArgumentError
        If `length` is not an integer, or is negative.

    Examples
    --------
    >>> weft.jit(lambda x: weft.bincount(x, 4))(np.array([0, 1, 1, 3]))
    array([1, 2, 0, 1])
    """
    x = as_op(x)
    number = checked_integer("bincount", "length", length, 0)
    if not dtypes.is_integer(x.dtype):
        raise DTypeError(explain("bincount", f"takes integers, not {x.dtype}", (x,)))
    weights = as_op(np.int64(1) if weights is None else weights)
    if weights.axes and weights.axes != x.axes:
        problem = f"the weights have {weights.axes}, but must have {x.axes}"
        raise AxesError(explain("bincount", problem, (x, weights)))
    # Integers outside the range go to an extra bin, which is cut off.
    bins = cast(flat(x), dtypes.int64)
    is_inside = less_equal(0, bins) & less(bins, number)
    into = broadcast(constant(0, dtype=weights.dtype), make_axes(number + 1))
    put = flat(broadcast(weights, x.axes))
    sums = ScatterOp(into, where(is_inside, bins, number), put, position=0, reduction="add")
    return SliceOp(sums, bounds=((0, number, 1),))


class Histogram(NamedTuple):
    """The number of elements in each bin, and the edges of the bins."""

    counts: TensorOp
    edges: TensorOp


def histogram(
    x: TensorLike, bins: int, range: tuple[float, float], weights: TensorLike | None = None
) -> Histogram:
    """Return the number of elements in each of equal bins of a range, and the edges of the bins.

    A bin includes its lower edge, the last bin its upper edge too. Elements outside the range and
    NaN are ignored.

    Parameters
    ----------
    x
        The elements, of any shape.
    bins
        The number of bins.
    range
        The lower and the upper edge of all bins.
    weights
        What each element counts, with the axes of x or a scalar; by default 1.

    Returns
    -------
    Histogram
        A named tuple of two vectors: `counts` as int64, or in the dtype of the weights, and
        `edges`, one more, in the dtype of x, float32 for integers and 16-bit floats.

    Raises
    ------
    ArgumentError
        If the range is not a pair of numbers, the lower first, or `bins` is not an integer or is
        negative.
    AxesError
        If the weights have other axes.

    Examples
    --------
    >>> x = np.array([0.1, 0.2, 0.7, 1.0])
    >>> found = weft.jit(lambda x: weft.histogram(x, 2, (0, 1)))(x)
    >>> found.counts, found.edges
    (array([2, 2]), array([0. , 0.5, 1. ]))
    """
    (x,) = align(FloatOp, x)
    number = checked_integer("histogram", "bins", bins, 0)
    if not isinstance(range, tuple | list) or len(range) != 2 or not range[0] < range[1]:
        problem = f"the range must be a pair of two numbers, the lower first, not {range!r}"
        raise ArgumentError(explain("histogram", problem, (x,)))
    # Narrow edges would coincide, and the bins between them lose their elements.
    x = cast(x, accumulator_dtype(x.dtype))
    edges = constant(np.linspace(*range, number + 1), dtype=x.dtype)
    bin_of = searchsorted(edges, x, "right") - 1
    is_last = equal(x, float(edges.const[-1]))
    return Histogram(bincount(where(is_last, number - 1, bin_of), number, weights), edges)


def _index(axes: Axes) -> TensorOp:
    return IotaOp(target_axes=axes, target_dtype=dtypes.int64, position=0)
