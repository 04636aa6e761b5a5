"""Sliding windows as a view, and its adjoint, fold."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxesLike, Axis, AxisKeys, make_axes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import Length, floor_divide, product
from weft.ir.op import explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.spatial.geometry import SPATIAL, Padding, Pairs, PerAxis, Sliding, Span, Use
from weft.ops.indexing.gathering import take
from weft.ops.indexing.slicing import SliceOp, slice_along_axis, tensor_slice, update_slice
from weft.ops.pointwise.elementwise import add, cast
from weft.ops.shape.joining import pad
from weft.ops.shape.movement import broadcast, cast_axes, transpose
from weft.support.backports import override

__all__ = [
    "FoldOp",
    "WindowsOp",
    "fold",
    "sliding_windows",
    "unfold",
]


class WindowsOp(CompositeOp):
    """The sliding windows along each axis, as an overlapping view.

    Attributes
    ----------
    spans
        For each axis the number of windows, the stride, the number of elements of a window, and the
        dilation. Each axis becomes two: the windows, then the elements of a window. The span
        ``(n, 1, 1, 1)`` is an axis of n elements without sliding.
    """

    spans: tuple[Span, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Return two axes for each axis; the last window must end inside."""
        (x,) = self.args
        _check_spans(self.spans, x.axes)
        return window_axes(self.spans), x.dtype

    def view(self, operand: TensorDescription) -> TensorDescription:
        """Return the layout, in which overlapping windows share memory."""
        return operand.windows(self.spans)

    @override
    def reference(self, x: Array) -> Any:
        for place, span in enumerate(self.spans):
            x = np.take(x, _indices(span), axis=2 * place)
        return x

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        for place, span in enumerate(self.spans):
            at = 2 * place
            if is_whole(span, x.axes[at].length):
                x = cast_axes(x, (*x.axes[:at], span[0], span[2], *x.axes[at + 1 :]))
            else:
                x = take(x, constant(_indices(span), dtype=dtypes.int64), at)
        return x

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Fold the adjoint: sum over the windows that contain an element."""
        return (FoldOp(delta, spans=self.spans, target_axes=x.axes),)


class FoldOp(CompositeOp):
    """The sum of overlapping windows, the adjoint of `WindowsOp`.

    Elements in no window are 0. 16-bit floats are summed in float32.

    Attributes
    ----------
    spans
        The windows, as in `WindowsOp`.
    target_axes
        The axes of the result.
    """

    spans: tuple[Span, ...]
    target_axes: Axes

    def infer(self) -> tuple[Axes, DType]:
        """Check that the operand has the axes of windows over the result."""
        (x,) = self.args
        _check_spans(self.spans, self.target_axes)
        if x.axes != window_axes(self.spans):
            raise AxesError(f"{x.axes} are not the axes of windows over {self.target_axes}")
        if dtypes.is_bool(x.dtype):
            raise DTypeError("a sum needs numbers, not bool: cast them")
        return self.target_axes, x.dtype

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (WindowsOp(delta, spans=self.spans),)

    def parts(self) -> Iterator[tuple[Any, Any]]:
        """Yield slices of the result, with the indices of the windows to add there.

        Along each axis there is a part for each tap of the window, or for each window if there are
        fewer of them.
        """
        choices = []
        for count, step, length, gap in self.spans:
            several: list[tuple[Any, ...]]
            if length <= count:
                several = [(_spaced(i * gap, count, step), slice(None), i) for i in range(length)]
            else:
                several = [(_spaced(i * step, length, gap), i, slice(None)) for i in range(count)]
            choices.append(several)
        for chosen in itertools.product(*choices):
            yield tuple(where for where, *_ in chosen), tuple(i for _, *at in chosen for i in at)

    @override
    def reference(self, x: Array) -> Any:
        result = np.zeros(self.axes.shape, accumulator_dtype(self.dtype))
        for where, part in self.parts():
            result[where] += x[part]
        return result.astype(self.dtype)

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        result = cast(x, accumulator_dtype(x.dtype))
        for place, (span, axis) in enumerate(zip(self.spans, self.target_axes, strict=True)):
            result = _folded_along(result, place, span, axis.length)
        return cast(result, self.dtype)


def _check_spans(spans: Sequence[Span], axes: Axes) -> None:
    if axes.is_named or len(spans) != len(axes):
        raise AxesError(
            f"{len(spans)} spans for the axes {axes}: needs positional axes, and a span for each"
        )
    for (count, step, length, gap), axis in zip(spans, axes, strict=True):
        if min(step, length, gap) < 1 or (isinstance(count, int) and count < 0):
            raise AxesError(
                f"{(count, step, length, gap)} is not a span: its numbers must be positive"
            )
        reach = (count - 1) * step + (length - 1) * gap + 1
        if (
            count
            and isinstance(reach, int)
            and isinstance(axis.length, int)
            and reach > axis.length
        ):
            raise AxesError(
                f"{count} windows of {length} elements extend over {reach} elements, more than the "
                f"length {axis.length} of the axis"
            )


def window_axes(spans: Iterable[Span]) -> Axes:
    """Return the axes of windows: for each span the windows, then the elements of a window."""
    return make_axes([length for count, _, size, _ in spans for length in (count, size)])


def is_whole(span: Span, size: int | Length) -> bool:
    """Whether the windows contain each element of an axis of that size once, in order."""
    count, step, length, gap = span
    each = length == 1 and count == size and (step == 1 or count == 1)
    return each or (count == 1 and length == size and gap == 1)


def _indices(span: Span) -> Any:
    count, step, length, gap = span
    return np.arange(count)[:, None] * step + np.arange(length) * gap


def _spaced(start: int, length: int, step: int) -> slice:
    return slice(start, start + (length - 1) * step + 1 if length else start, step)


def _folded_along(x: TensorOp, place: int, span: Span, size: int) -> TensorOp:
    """Return the fold of one axis: of windows at a position, and their elements at the next."""
    count, step, length, gap = span
    head, tail = x.axes[:place], x.axes[place + 2 :]
    target = make_axes((*head, size, *tail))
    if is_whole(span, size):
        return cast_axes(x, target)
    before = (slice(None),) * place
    if count > 1 and gap == 1 and step >= length:
        run = cast_axes(_lengthened(x, place + 1, step), (*head, count * step, *tail))
        return tensor_slice(_lengthened(run, place, size), (*before, slice(size)))
    if length <= count:
        parts = [(_spaced(i * gap, count, step), place + 1, i) for i in range(length)]
    else:
        parts = [(_spaced(i * step, length, gap), place, i) for i in range(count)]
    total: TensorOp = broadcast(constant(0, dtype=x.dtype), target)
    for number, (where, axis, index) in enumerate(parts):
        at = (*before, where)
        part = slice_along_axis(x, axis, index)
        total = update_slice(total, at, add(tensor_slice(total, at), part) if number else part)
    return total


def _lengthened(x: TensorOp, place: int, length: int) -> TensorOp:
    """Return the tensor padded with zeros to at least a length."""
    missing = max(length - x.axes[place].length, 0)
    return pad(x, [(0, missing if i == place else 0) for i in range(x.rank)])


def windows_at(x: TensorOp, spans: dict[int, Span]) -> TensorOp:
    """Return the windows along some axes, with their elements along new last axes."""
    every = [spans.get(place, (n, 1, 1, 1)) for place, n in enumerate(x.axes.lengths)]
    lengths: list[Any] = []
    places = []
    for place, (count, _, size, _) in enumerate(every):
        places.append(len(lengths))
        lengths += (count, size) if place in spans else (count,)
    if not all(map(is_whole, every, x.axes.lengths)):
        x = WindowsOp(cast_axes(x, x.axes.lengths), spans=tuple(every))
    order = (*places, *(places[place] + 1 for place in spans))
    return transpose(cast_axes(x, lengths), order)


def windows_over(x: TensorOp, sliding: Sliding, fill: ArrayLike = 0) -> TensorOp:
    """Return the windows of the padded tensor, with their elements along the last axes."""
    head = x.rank - len(sliding.kernel)
    spans = sliding.spans(x.axes.lengths[head:])
    around = moved_ends(x, sliding.padding, fill)
    return windows_at(around, dict(enumerate(spans, head)))


def moved_ends(x: TensorOp, pairs: Pairs, fill: ArrayLike = 0) -> TensorOp:
    """Return the tensor with its last axes padded, and cut where a number is negative."""
    every = [(0, 0)] * (x.rank - len(pairs)) + list(pairs)
    around = pad(x, [(max(before, 0), max(after, 0)) for before, after in every], fill)
    if min(map(min, every)) >= 0:
        return around
    lengths = zip(x.axes.lengths, every, strict=True)
    return SliceOp(around, bounds=tuple((max(-a, 0), a + n + b, 1) for n, (a, b) in lengths))


def folded_into(axes: Axes, windows: TensorOp, sliding: Sliding) -> TensorOp:
    """Return the fold of windows in the order of `windows_over`, without the padding."""
    count = len(sliding.kernel)
    head = len(axes) - count
    lengths = axes.lengths[head:]
    every = (*((n, 1, 1, 1) for n in axes.lengths[:head]), *sliding.spans(lengths))
    around = make_axes((*axes.lengths[:head], *sliding.padded(lengths)))
    pairs = (place for i in range(head, len(axes)) for place in (i, i + count))
    total = transpose(windows, (*range(head), *pairs))
    if all(map(is_whole, every, around.lengths)):
        total = cast_axes(total, around)
    else:
        total = FoldOp(cast_axes(total, window_axes(every)), spans=every, target_axes=around)
    return moved_ends(total, tuple((-before, -after) for before, after in sliding.padding))


def swapped(x: TensorOp, count: int) -> TensorOp:
    """Return a tensor with its last `count` axes swapped with the `count` axes before them."""
    head = x.rank - 2 * count
    return transpose(x, (*range(head), *range(head + count, x.rank), *range(head, head + count)))


def sliding_windows(
    x: TensorLike,
    lengths: AxesLike,
    axes: AxisKeys | None = None,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
) -> TensorOp:
    """Return the sliding windows along axes as a view, with their elements along new last axes.

    Parameters
    ----------
    x
        A tensor of any rank.
    lengths
        The number of elements of a window along each of the `axes`: an integer, or a tuple. The new
        axes of a named tensor need names, as in ``make_axis(3, "K")``.
    axes
        The axes along which windows slide, by position or name; by default the last ones.
    stride
        The step between windows: an integer for all, or a list with one for each.
    dilation
        The step between elements of a window, likewise.

    Returns
    -------
    TensorOp
        The axes of x, with the number of windows as the length of those along which they slide, and
        the axes of a window's elements.

    Raises
    ------
    AxesError
        If no window fits, there is no such axis, or names are missing.
    ArgumentError
        If an option has another form.

    Examples
    --------
    >>> x = np.array([1, 2, 3, 4, 5])
    >>> weft.jit(lambda x: weft.sliding_windows(x, 3))(x)
    array([[1, 2, 3],
           [2, 3, 4],
           [3, 4, 5]])
    >>> weft.jit(lambda x: weft.sliding_windows(x, 2, stride=2))(x)
    array([[1, 2],
           [3, 4]])
    """
    x, sizes = as_op(x), make_axes(lengths)
    use = Use("sliding_windows", (x,))
    if axes is None and len(sizes) > x.rank:
        raise use.refusal(f"{len(sizes)} lengths for the axes {x.axes}", AxesError)
    last = range(x.rank - len(sizes), x.rank)
    places = last if axes is None else explained(use.function, (x,), x.axes.positions, axes)
    if len(places) != len(sizes):
        raise use.refusal(f"{len(sizes)} lengths for {len(places)} axes", AxesError)
    if sizes and x.axes.is_named != sizes.is_named:
        problem = f"the elements of windows over {x.axes} cannot have the axes {sizes}"
        raise use.refusal(f"{problem}: name all or none, as in make_axis(3, 'K')", AxesError)
    along = [x.axes.lengths[place] for place in places]
    kernel = use.numbers("lengths", sizes.lengths, len(sizes))
    sliding = use.sliding(along, kernel, stride, 0, dilation)
    spans = dict(zip(places, use.fitting(sliding, along).spans(along), strict=True))
    kept = (
        Axis(spans[place][0], axis.name) if place in spans else axis
        for place, axis in enumerate(x.axes)
    )
    return cast_axes(windows_at(x, spans), Axes((*kept, *sizes)))


def unfold(
    x: TensorLike, kernel: PerAxis, stride: PerAxis = 1, padding: Padding = 0, dilation: PerAxis = 1
) -> TensorOp:
    """Return the windows of images as columns, over all channels (im2col).

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window, likewise.

    Returns
    -------
    TensorOp
        (N, C * elements of a window, number of windows), in the dtype of x. Rows are ordered by
        channel, then by element of the window; both these and the windows are in row-major order.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, or no window fits.
    ArgumentError
        If an option has another form.

    Examples
    --------
    >>> x = np.arange(9).reshape(1, 1, 3, 3)
    >>> weft.jit(lambda x: weft.unfold(x, 2))(x)
    array([[[0, 1, 3, 4],
            [1, 2, 4, 5],
            [3, 4, 6, 7],
            [4, 5, 7, 8]]])
    """
    x = as_op(x)
    use = Use("unfold", (x,))
    lengths = use.spatial_lengths()
    sliding = use.fitting(use.sliding(lengths, kernel, stride, padding, dilation), lengths)
    rows = product((x.axes[1].length, *sliding.kernel))
    columns = product(sliding.counts(lengths))
    windows = swapped(windows_over(x, sliding), len(lengths))
    return cast_axes(windows, (x.axes[0], rows, columns))


def fold(
    x: TensorLike,
    lengths: PerAxis,
    kernel: PerAxis,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
) -> TensorOp:
    """Return images as the sum of columns of `unfold` (col2im).

    It is the adjoint of `unfold`, not its inverse: elements in several windows are summed, elements
    in no window are 0, and those on the padding are dropped.

    Parameters
    ----------
    x
        Columns (N, C * elements of a window, number of windows), in the order of `unfold`.
    lengths
        The spatial lengths of the images: a list of one to three, or an integer for one.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window, likewise.

    Returns
    -------
    TensorOp
        (N, C, lengths), in the dtype of x; bool gives int32, and 16-bit floats are summed in
        float32.

    Raises
    ------
    AxesError
        If the numbers of rows and columns do not fit the windows, or none fits.
    ArgumentError
        If an option has another form.

    Examples
    --------
    >>> columns = np.array([[[1, 2, 3], [10, 20, 30]]])
    >>> weft.jit(lambda x: weft.fold(x, 4, 2))(columns)
    array([[[ 1, 12, 23, 30]]])
    """
    x = as_op(x)
    x = cast(x, dtypes.int32) if dtypes.is_bool(x.dtype) else x
    use = Use("fold", (x,))
    if x.rank != 3 or x.axes.is_named:
        problem = f"takes three positional axes, as unfold returns them, not {x.axes}"
        raise use.refusal(problem, AxesError)
    count = len(lengths) if isinstance(lengths, list | tuple) else 1
    sizes = use.numbers("lengths", lengths, count, 0)
    if count not in SPATIAL:
        raise use.refusal(f"lengths must be a list of one to three lengths, not {lengths!r}")
    sliding = use.fitting(use.sliding(sizes, kernel, stride, padding, dilation), sizes)
    batch, rows, columns = x.axes.lengths
    counts, elements = sliding.counts(sizes), prod(sliding.kernel)
    if columns != prod(counts) or (isinstance(rows, int) and rows % elements):
        raise use.refusal(
            f"{prod(counts)} windows of {elements} elements need as many columns, and a multiple "
            f"of {elements} rows, not {columns} and {rows}",
            AxesError,
        )
    channels = floor_divide(rows, elements)
    windows = cast_axes(x, (batch, channels, *sliding.kernel, *counts))
    return folded_into(make_axes((batch, channels, *sizes)), swapped(windows, count), sliding)
