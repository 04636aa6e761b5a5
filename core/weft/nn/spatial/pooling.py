"""Max, average and p-norm pooling.

Images have the axes (N, C, one to three spatial axes); named axes may be in any order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from weft import ops
from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import Length
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.spatial.geometry import Numbers, Padding, Pairs, PerAxis, Sliding, Use
from weft.nn.spatial.resampling import blended
from weft.nn.spatial.windows import folded_into, swapped, windows_over
from weft.ops.arguments import checked_number
from weft.ops.pointwise.elementwise import align
from weft.ops.products.roles import IMAGES, ImageRoles, by_roles
from weft.ops.reductions import reduction
from weft.support.backports import override

__all__ = [
    "AvgPoolOp",
    "LpPoolOp",
    "MaxPoolIndexOp",
    "MaxPoolInputOp",
    "MaxPoolOp",
    "PoolingOp",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "adaptive_max_pool_with_indices",
    "avg_pool",
    "global_avg_pool",
    "global_max_pool",
    "lp_pool",
    "max_pool",
    "max_pool_with_indices",
]


class PoolingOp(CompositeOp):
    """The base of pooling ops, which reduce each window to a number.

    Attributes
    ----------
    kernel, stride, dilation
        For each spatial axis the number of elements of a window, the step between windows, and the
        step between elements of a window.
    padding
        For each spatial axis the padding before and after the image; a negative number leaves out
        elements of the image.
    """

    kernel: Numbers
    stride: Numbers
    padding: Pairs
    dilation: Numbers

    @property
    def flops(self) -> int:
        """One for each element of each window."""
        return int(self.axes.size) * math.prod(self.kernel)

    @property
    def sliding(self) -> Sliding:
        """The windows of the op."""
        return Sliding(self.kernel, self.stride, self.padding, self.dilation)

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the windows, each of which must contain an element of the image."""
        (x,) = self.args
        if x.axes.is_named or x.rank != 2 + len(self.kernel):
            raise AxesError(f"windows of {self.kernel} do not slide over the axes {x.axes}")
        lengths = x.axes.lengths[2:]
        self._check_padding(lengths)
        return make_axes((*x.axes.lengths[:2], *self.sliding.counts(lengths))), self.result_dtype(x)

    def _check_padding(self, lengths: Sequence[int | Length]) -> None:
        parts = zip(lengths, self.padding, self.sliding.extents, self.dilation, strict=True)
        for n, pair, extent, gap in parts:
            left = n + sum(min(each, 0) for each in pair)
            is_short = isinstance(left, int) and left < gap
            if max(pair) >= extent or (max(pair) > 0 and is_short):
                raise AxesError(
                    f"with padding {self.padding}, a window of kernel {self.kernel} and dilation "
                    f"{self.dilation} may contain no element of {tuple(lengths)}: use less padding"
                )

    def result_dtype(self, x: TensorOp) -> DType:
        """Return the dtype of the result."""
        return x.dtype

    def windows(self, x: TensorOp, fill: complex = 0) -> TensorOp:
        """Return the windows, with their elements along the first axes: reductions are faster."""
        count = len(self.kernel)
        windows = windows_over(x, self.sliding, fill)
        return ops.transpose(windows, (*range(self.rank, self.rank + count), *range(self.rank)))

    def folded(self, windows: TensorOp, x: TensorOp) -> TensorOp:
        """Return the sums of the window elements at each element of the operand."""
        count = len(self.kernel)
        turned = ops.transpose(windows, (*range(count, windows.rank), *range(count)))
        return folded_into(x.axes, turned, self.sliding)

    @property
    def inner(self) -> Numbers:
        """The positions of the window elements among the axes of `windows`."""
        return tuple(range(len(self.kernel)))

    def spread(self, value: TensorOp, windows: TensorOp) -> TensorOp:
        """Return a value for each window, broadcast over its elements."""
        dims = tuple(range(len(self.kernel), windows.rank))
        return ops.BroadcastOp(value, target_axes=windows.axes, dims=dims)


class MaxPoolOp(PoolingOp):
    """The maximum of each window, NaN if it has NaN; the gradient is split evenly among ties."""

    def reference(self, x: Array) -> Any:
        """Compute the maximum over the taps of the window."""
        result = np.full(self.axes.shape, dtypes.least(self.dtype), self.dtype)
        for at, elements, _ in self.sliding.taps(x.shape[2:]):
            result[at] = np.maximum(result[at], x[elements])
        return result

    @override
    def decompose(self, x: TensorOp) -> TensorOp:
        return ops.MaxOp(self.windows(x, dtypes.least(x.dtype)), positions=self.inner)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Split the adjoint of each window evenly among its maxima."""
        return (MaxPoolInputOp(delta, x, self, **self.sliding._asdict()),)


class MaxPoolInputOp(PoolingOp):
    """The adjoint of `MaxPoolOp`: the adjoint of each window split evenly among its maxima.

    Its operands are the adjoint of the maxima, the images and the maxima. A window with NaN gives
    NaN to all of its elements.
    """

    @override
    def infer(self) -> tuple[Axes, DType]:
        delta, x, maxima = self.args
        counts = self.sliding.counts(x.axes.lengths[2:])
        if not delta.axes == maxima.axes == make_axes((*x.axes.lengths[:2], *counts)):
            problem = f"{delta.axes} and {maxima.axes} are not the axes of windows"
            raise AxesError(f"{problem} over {x.axes}")
        return x.axes, x.dtype

    def reference(self, delta: Array, x: Array, maxima: Array) -> Any:
        """Count the maxima of each window, then distribute the adjoint among them."""
        taps = list(self.sliding.taps(x.shape[2:]))
        wide = accumulator_dtype(self.dtype)
        count, result = np.zeros(maxima.shape, wide), np.zeros(x.shape, wide)
        for at, elements, _ in taps:
            count[at] += x[elements] == maxima[at]
        share = delta / count
        for at, elements, _ in taps:
            result[elements] += (x[elements] == maxima[at]) * share[at]
        return result.astype(self.dtype)

    def decompose(self, delta: TensorOp, x: TensorOp, maxima: TensorOp) -> TensorOp:
        """Distribute the adjoint among the maxima, and fold the windows."""
        chosen = self._chosen(x, maxima)
        share = ops.divide(ops.cast(delta, chosen.dtype), ops.SumOp(chosen, positions=self.inner))
        return ops.cast(self.folded(chosen * self.spread(share, chosen), x), self.dtype)

    def _chosen(self, x: TensorOp, maxima: TensorOp) -> TensorOp:
        """Return the windows as 1 for maxima and 0 for other elements, countable in their dtype."""
        windows = self.windows(x, math.nan)
        is_top = ops.equal(windows, self.spread(maxima, windows))
        return ops.cast(is_top, accumulator_dtype(x.dtype))

    def generate_adjoints(
        self, delta: TensorOp, adjoint: TensorOp, x: TensorOp, maxima: TensorOp
    ) -> tuple[TensorOp, None, None]:
        """Return the mean of the adjoint over the maxima of each window."""
        chosen = self._chosen(x, maxima)
        parts = chosen * self.windows(ops.cast(delta, chosen.dtype))
        total = ops.SumOp(parts, positions=self.inner)
        mean = ops.divide(total, ops.SumOp(chosen, positions=self.inner))
        return ops.cast(mean, self.dtype), None, None


class MaxPoolIndexOp(PoolingOp):
    """The flat index, in the spatial axes, of the first maximum of each window, as int64."""

    @override
    def result_dtype(self, x: TensorOp) -> DType:
        return dtypes.int64

    def reference(self, x: Array) -> Any:
        """Compute the argmax over the taps of the window; NaN counts as the maximum."""
        best = np.zeros(self.axes.shape, x.dtype)
        result = np.full(self.axes.shape, -1, self.dtype)
        number = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
        for at, elements, _ in self.sliding.taps(x.shape[2:]):
            value = x[elements]
            is_larger = (value > best[at]) | ((value != value) & (best[at] == best[at]))
            is_taken = (result[at] < 0) | is_larger
            best[at] = np.where(is_taken, value, best[at])
            result[at] = np.where(is_taken, number[elements], result[at])
        return result

    def decompose(self, x: TensorOp) -> TensorOp:
        """Compute the argmax within each window, and add the start of the window."""
        inside = self._place_in_window(x)
        found: TensorOp = constant(0, dtype=dtypes.int64)
        unit = 1
        sizes = zip(x.axes.shape[2:], *self.sliding, strict=True)
        for place, (n, size, step, (before, _), gap) in reversed(list(enumerate(sizes, 2))):
            window = ops.IotaOp(target_axes=self.axes, target_dtype=dtypes.int64, position=place)
            element = window * step + (ops.mod(inside, size) * gap - before)
            found = found + element * unit
            inside = ops.floordivide(inside, size)
            unit *= n
        return found

    def _place_in_window(self, x: TensorOp) -> TensorOp:
        windows = self.windows(x, dtypes.least(x.dtype))
        if any(map(any, self.padding)):
            # The padding value may equal the maximum, so padding is masked out.
            top = self.spread(ops.MaxOp(windows, positions=self.inner), windows)
            is_top = ops.logical_or(ops.equal(windows, top), ops.not_equal(windows, windows))
            count = len(self.kernel)
            inner = ops.broadcast(constant(True), make_axes(x.axes.lengths[2:]))
            is_inner = swapped(windows_over(inner, self.sliding, False), count)
            dims = (*self.inner, *range(count + 2, windows.rank))
            is_inner = ops.BroadcastOp(is_inner, target_axes=windows.axes, dims=dims)
            windows = ops.cast(ops.logical_and(is_top, is_inner), dtypes.int32)
        flat = ops.cast_axes(windows, (math.prod(self.kernel), *self.axes.lengths))
        return ops.ArgmaxOp(flat, positions=(0,))

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[None]:
        return (None,)


class AvgPoolOp(PoolingOp):
    """The mean of each window; 16-bit floats are summed in float32.

    Attributes
    ----------
    counted
        For each spatial axis the part of the padding that counts as zeros in the mean.
    """

    counted: Pairs

    def result_dtype(self, x: TensorOp) -> DType:
        """Return the dtype, which must be a float."""
        if not dtypes.is_inexact(x.dtype):
            raise DTypeError(f"a mean needs floats, not {x.dtype}")
        return super().result_dtype(x)

    def reference(self, x: Array) -> Any:
        """Sum over the taps of the window, and divide by the counts."""
        total = np.zeros(self.axes.shape, accumulator_dtype(self.dtype))
        for windows, elements, _ in self.sliding.taps(x.shape[2:]):
            total[windows] += x[elements]
        return (total / self.numbers(total.dtype)).astype(self.dtype)

    def numbers(self, dtype: DType) -> Any:
        """Return the number of counted elements of each window, as an array."""
        counting, lengths = self._counted(self.args[0].axes.shape[2:])
        result = np.zeros(self.axes.shape[2:], dtype)
        for windows, _, _ in counting.taps(lengths):
            result[windows] += 1
        return result

    def decompose(self, x: TensorOp) -> TensorOp:
        """Divide the window sums by the numbers of counted elements."""
        wide = accumulator_dtype(x.dtype)
        total = ops.SumOp(self.windows(ops.cast(x, wide)), positions=self.inner)
        return ops.cast(ops.divide(total, self._numbers(x, wide)), self.dtype)

    def _counted(self, lengths: Sequence[int | Length]) -> tuple[Sliding, tuple[Any, ...]]:
        """Return the windows over image and counted padding, and the lengths of these."""
        whole = self.sliding._replace(padding=self.counted).padded(lengths)
        rest = zip(self.padding, self.counted, strict=True)
        padding = tuple((a - c, b - d) for (a, b), (c, d) in rest)
        return self.sliding._replace(padding=padding), whole

    def _numbers(self, x: TensorOp, dtype: DType) -> TensorOp:
        """Return the number of counted elements of each window, a product over the spatial axes."""
        if self.padding == self.counted:
            return constant(math.prod(self.kernel), dtype=dtype)
        counting, lengths = self._counted(x.axes.lengths[2:])
        numbers: TensorOp = constant(1, dtype=dtype)
        for place, n in enumerate(lengths):
            ones = ops.broadcast(constant(1, dtype=dtype), make_axes((n,)))
            line = ops.SumOp(windows_over(ones, counting.along(place)), positions=(1,))
            behind = len(lengths) - 1 - place
            numbers = ops.multiply(numbers, ops.cast_axes(line, (line.axes[0], *(1,) * behind)))
        return ops.broadcast(numbers, self.axes)


class LpPoolOp(PoolingOp):
    """The p-norm of each window, without overflow; its gradient at a norm of 0 is 0.

    16-bit floats are computed in float32.

    Attributes
    ----------
    p
        The order of the norm, at least 1.
    """

    p: float

    def reference(self, x: Array) -> Any:
        """Sum the powers of elements divided by the largest of the window."""
        size = np.abs(np.asarray(x, accumulator_dtype(self.dtype)))
        top, total = np.zeros((2, *self.axes.shape), size.dtype)
        for at, elements, _ in self.sliding.taps(x.shape[2:]):
            top[at] = np.maximum(top[at], size[elements])
        unit = np.where((top > 0) & (top < np.inf), top, 1)
        for at, elements, _ in self.sliding.taps(x.shape[2:]):
            total[at] += (size[elements] / unit[at]) ** self.p
        return (unit * total ** (1 / self.p)).astype(self.dtype)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Sum the powers of elements divided by the largest of the window."""
        windows = ops.absolute(self.windows(ops.cast(x, accumulator_dtype(x.dtype))))
        if self.p == 1:
            return ops.cast(ops.SumOp(windows, positions=self.inner), self.dtype)
        top = ops.MaxOp(windows, positions=self.inner)
        unit = ops.where(ops.logical_and(ops.greater(top, 0), ops.less(top, math.inf)), top, 1)
        ratios = ops.power(windows / self.spread(unit, windows), self.p)
        total = ops.power(ops.SumOp(ratios, positions=self.inner), 1 / self.p)
        return ops.cast(unit * total, self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by (abs x / norm) ** (p - 1), with the sign of x."""
        wide = accumulator_dtype(x.dtype)
        # The norm itself may exceed the range of 16 bits.
        norms = self if x.dtype == wide else type(self)(ops.cast(x, wide), **self.attributes())
        windows = self.windows(ops.cast(x, wide))
        norm = ops.where(ops.equal(norms, 0), 1, norms)
        ratios = ops.absolute(windows) / self.spread(norm, windows)
        slopes = ops.power(ratios, self.p - 1) * ops.sign(windows)
        shares = slopes * self.spread(ops.cast(delta, wide), windows)
        return (ops.cast(self.folded(shares, x), x.dtype),)


def _windows(
    use: Use,
    kernel: PerAxis,
    stride: PerAxis | None,
    padding: Padding,
    dilation: PerAxis,
    ceil_mode: bool,
) -> tuple[Sliding, Pairs]:
    """Return the windows of a pooling, and the user's padding."""
    lengths = use.spatial_lengths()
    if use.operands[0].dtype.kind == "c":
        raise use.refusal("pooling takes real numbers, not complex ones", DTypeError)
    steps = kernel if stride is None else stride
    asked = use.sliding(lengths, kernel, steps, padding, dilation)
    if not ceil_mode:
        return use.fitting(asked, lengths), asked.padding
    if not all(isinstance(n, int) for n in lengths):
        raise use.refusal(f"ceil_mode needs known lengths, not {lengths}", AxesError)
    pairs = tuple(map(_reaching_over, lengths, asked.extents, asked.stride, asked.padding))
    return use.fitting(asked._replace(padding=pairs), lengths), asked.padding


def _reaching_over(n: int, extent: int, step: int, pair: tuple[int, int]) -> tuple[int, int]:
    """Return the padding extended for a last window that starts before the end padding."""
    before, after = pair
    size = before + n + after
    count = -(-(size - extent) // step) + 1
    if (count - 1) * step >= before + n:
        count -= 1
    return before, after + max((count - 1) * step + extent - size, 0)


def max_pool(
    x: TensorLike,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return the maximum of each window over images, or NaN if a window has one.

    The gradient is split evenly among ties, as for `max`.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise; by default the kernel, so that windows touch.
    padding
        How many elements that are never chosen come around the image: a number for all sides; a
        list with, for each spatial axis, a number or a pair (before, after); ``"valid"`` for none;
        ``"same"`` for ``ceil(length / stride)`` windows, where an odd element comes after the
        image; ``"same_lower"`` likewise with the odd element before it. Each window must contain an
        element of the image.
    dilation
        The step between elements of a window, likewise.
    ceil_mode
        Whether a window that starts in the image, or in the padding before it, may reach past the
        end: the number of windows is rounded up instead of down.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, windows along each spatial axis), in the dtype of x. There are ``(length + padding -
        extent) // stride + 1`` windows along an axis, with the padding of both sides and the extent
        of a window, ``dilation * (kernel - 1) + 1``.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, no window fits, or a window may contain nothing but
        padding; or if a length is unknown that `ceil_mode` or ``"same"`` needs.
    ArgumentError
        If an option has another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[1.0, 5.0, 2.0, 4.0, 3.0]]])
    >>> weft.jit(lambda x: weft.max_pool(x, 2))(x)
    array([[[5., 4.]]])
    >>> weft.jit(lambda x: weft.max_pool(x, 2, ceil_mode=True))(x)
    array([[[5., 4., 3.]]])
    >>> weft.jit(lambda x: weft.max_pool(x, 3, stride=1, padding=1))(x)
    array([[[5., 5., 5., 4., 4.]]])
    """

    def apply(x: Any) -> TensorOp:
        x = as_op(x)
        sliding, _ = _windows(Use("max_pool", (x,)), kernel, stride, padding, dilation, ceil_mode)
        return MaxPoolOp(x, **sliding._asdict())

    return by_roles("max_pool", IMAGES, (x,), axes, apply)


def max_pool_with_indices(
    x: TensorLike,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    **axes: Unpack[ImageRoles],
) -> tuple[TensorOp, TensorOp]:
    """Return the maximum of each window as `max_pool`, and its index for `max_unpool`.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise; by default the kernel, so that windows touch.
    padding
        How many elements that are never chosen come around the image: a number for all sides; a
        list with, for each spatial axis, a number or a pair (before, after); ``"valid"`` for none;
        ``"same"`` for ``ceil(length / stride)`` windows, where an odd element comes after the
        image; ``"same_lower"`` likewise with the odd element before it. Each window must contain an
        element of the image.
    dilation
        The step between elements of a window, likewise.
    ceil_mode
        Whether a window that starts in the image, or in the padding before it, may reach past the
        end: the number of windows is rounded up instead of down.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    tuple[TensorOp, TensorOp]
        The maxima, (N, C, windows along each spatial axis), and the index of the first maximum, or
        of the first NaN, of each: int64, flattened in row-major order over the spatial axes of x.
        There are ``(length + padding - extent) // stride + 1`` windows along an axis, with the
        padding of both sides and the extent of a window, ``dilation * (kernel - 1) + 1``.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, no window fits, or a window may contain nothing but
        padding; or if a length is unknown that `ceil_mode` or ``"same"`` needs.
    ArgumentError
        If an option has another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[1.0, 5.0, 2.0, 4.0]]])
    >>> weft.jit(lambda x: weft.max_pool_with_indices(x, 2))(x)
    (array([[[5., 4.]]]), array([[[1, 3]]]))
    """

    def apply(x: Any) -> tuple[TensorOp, TensorOp]:
        x = as_op(x)
        use = Use("max_pool_with_indices", (x,))
        sliding, _ = _windows(use, kernel, stride, padding, dilation, ceil_mode)
        fields = sliding._asdict()
        return MaxPoolOp(x, **fields), MaxPoolIndexOp(x, **fields)

    return by_roles("max_pool_with_indices", IMAGES, (x,), axes, apply)


def avg_pool(
    x: TensorLike,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return the mean of each window over images.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes; integers give float32.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise; by default the kernel, so that windows touch.
    padding
        How many elements come around the image: a number for all sides; a list with, for each
        spatial axis, a number or a pair (before, after); ``"valid"`` for none; ``"same"`` for
        ``ceil(length / stride)`` windows, where an odd element comes after the image;
        ``"same_lower"`` likewise with the odd element before it. Each window must contain an
        element of the image.
    dilation
        The step between elements of a window, likewise.
    ceil_mode
        Whether a window that starts in the image, or in the padding before it, may reach past the
        end: the number of windows is rounded up instead of down.
    count_include_pad
        Whether padding counts as zeros; otherwise the mean is over elements of the image only. What
        is past the padding in `ceil_mode` never counts.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, windows along each spatial axis). There are ``(length + padding - extent) // stride +
        1`` windows along an axis, with the padding of both sides and the extent of a window,
        ``dilation * (kernel - 1) + 1``.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, no window fits, or a window may contain nothing but
        padding; or if a length is unknown that `ceil_mode` or ``"same"`` needs.
    ArgumentError
        If an option has another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[1.0, 3.0, 5.0, 7.0]]])
    >>> weft.jit(lambda x: weft.avg_pool(x, 2))(x)
    array([[[2., 6.]]])
    >>> weft.jit(lambda x: weft.avg_pool(x, 2, padding=1))(x)
    array([[[0.5, 4. , 3.5]]])
    >>> weft.jit(lambda x: weft.avg_pool(x, 2, padding=1, count_include_pad=False))(x)
    array([[[1., 4., 7.]]])
    """

    def apply(x: Any) -> TensorOp:
        (x,) = align(ops.FloatOp, x)
        use = Use("avg_pool", (x,))
        sliding, asked = _windows(use, kernel, stride, padding, dilation, ceil_mode)
        counted = asked if count_include_pad else ((0, 0),) * len(asked)
        return AvgPoolOp(x, **sliding._asdict(), counted=counted)

    return by_roles("avg_pool", IMAGES, (x,), axes, apply)


def lp_pool(
    x: TensorLike,
    p: float,
    kernel: PerAxis,
    stride: PerAxis | None = None,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    **axes: Unpack[ImageRoles],
) -> TensorOp:
    """Return the p-norm of each window over images, ``sum(abs(x) ** p) ** (1 / p)``.

    Powers do not overflow. The gradient at a norm of 0 is 0.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes; integers give float32.
    p
        The order of the norm, a finite number of at least 1.
    kernel
        The length of a window: an integer for all spatial axes, or a list with one for each.
    stride
        The step between windows, likewise; by default the kernel, so that windows touch.
    padding
        How many elements of value 0 come around the image: a number for all sides; a list with, for
        each spatial axis, a number or a pair (before, after); ``"valid"`` for none; ``"same"`` for
        ``ceil(length / stride)`` windows, where an odd element comes after the image;
        ``"same_lower"`` likewise with the odd element before it. Each window must contain an
        element of the image.
    dilation
        The step between elements of a window, likewise.
    ceil_mode
        Whether a window that starts in the image, or in the padding before it, may reach past the
        end: the number of windows is rounded up instead of down.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, windows along each spatial axis). There are ``(length + padding - extent) // stride +
        1`` windows along an axis, with the padding of both sides and the extent of a window,
        ``dilation * (kernel - 1) + 1``.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, no window fits, or a window may contain nothing but
        padding; or if a length is unknown that `ceil_mode` or ``"same"`` needs.
    ArgumentError
        If an option has another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[3.0, 4.0, 0.0, -2.0]]])
    >>> weft.jit(lambda x: weft.lp_pool(x, 2, 2))(x)
    array([[[5., 2.]]])
    """

    def apply(x: Any) -> TensorOp:
        (x,) = align(ops.FloatOp, x)
        use = Use("lp_pool", (x,))
        sliding, _ = _windows(use, kernel, stride, padding, dilation, ceil_mode)
        return LpPoolOp(x, **sliding._asdict(), p=checked_number("lp_pool", "p", p, 1))

    return by_roles("lp_pool", IMAGES, (x,), axes, apply)


def global_avg_pool(x: TensorLike, keepdims: bool = True) -> TensorOp:
    """Return the mean over the spatial axes.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with at least one spatial axis; of named axes all but ``N`` and
        ``C`` are spatial. Integers give float32.
    keepdims
        Whether the spatial axes are kept, with length 1.

    Returns
    -------
    TensorOp
        (N, C), or (N, C, 1, ...) with `keepdims`.

    Raises
    ------
    AxesError
        If there is no spatial axis.

    Examples
    --------
    >>> x = np.array([[[1.0, 3.0], [5.0, 5.0]]])
    >>> weft.jit(lambda x: weft.global_avg_pool(x, keepdims=False))(x)
    array([[2., 5.]])
    >>> weft.jit(weft.global_avg_pool)(np.ones((8, 3, 32, 32))).shape
    (8, 3, 1, 1)
    """
    return reduction.mean(x, _spatial("global_avg_pool", x), keepdims=keepdims)


def global_max_pool(x: TensorLike, keepdims: bool = True) -> TensorOp:
    """Return the maximum over the spatial axes; the gradient is split evenly among ties.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with at least one spatial axis; of named axes all but ``N`` and
        ``C`` are spatial.
    keepdims
        Whether the spatial axes are kept, with length 1.

    Returns
    -------
    TensorOp
        (N, C), or (N, C, 1, ...) with `keepdims`, in the dtype of x.

    Raises
    ------
    AxesError
        If there is no spatial axis.

    Examples
    --------
    >>> x = np.array([[[1.0, 3.0], [5.0, 5.0]]])
    >>> weft.jit(lambda x: weft.global_max_pool(x, keepdims=False))(x)
    array([[3., 5.]])
    """
    return reduction.max(x, _spatial("global_max_pool", x), keepdims=keepdims)


def _spatial(function: str, x: TensorLike) -> tuple[int, ...]:
    op = as_op(x)
    if not op.axes.is_named:
        places = tuple(range(2, op.rank))
    else:
        named = enumerate(op.axes)
        places = tuple(i for i, axis in named if not (axis.is_batch or axis.is_channel))
    if not places:
        problem = f"{op.axes} has no spatial axes: they follow batch and channel, or are named"
        raise Use(function, (op,)).refusal(f"{problem} otherwise than N and C", AxesError)
    return places


def adaptive_avg_pool(x: TensorLike, lengths: PerAxis, **axes: Unpack[ImageRoles]) -> TensorOp:
    """Return means over windows that give the spatial axes these lengths.

    Window i of m over n elements is from ``floor(i * n / m)`` up to, but not including, ``ceil((i +
    1) * n / m)``.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes, of known lengths; integers give
        float32.
    lengths
        The lengths of the result: an integer for all spatial axes, or a list with one for each.
        They may be larger than those of x.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, lengths).

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, or their lengths are unknown or 0.
    ArgumentError
        If `lengths` have another form, or a role does not exist.

    Examples
    --------
    >>> x = np.array([[[1.0, 2.0, 3.0, 4.0, 5.0]]])
    >>> weft.jit(lambda x: weft.adaptive_avg_pool(x, 2))(x)
    array([[[2., 4.]]])
    """
    return by_roles("adaptive_avg_pool", IMAGES, (x,), axes, lambda x: _adapted_means(x, lengths))


def _adapted_means(x: TensorLike, lengths: PerAxis) -> TensorOp:
    (result,) = align(ops.FloatOp, x)
    pairs = _adaptive_lengths(Use("adaptive_avg_pool", (result,)), lengths)
    if not any(n % m for n, m in pairs):
        return avg_pool(result, [n // m for n, m in pairs])
    for place, (n, m) in enumerate(pairs, 2):
        first, end, element = *_adaptive_windows(n, m), np.arange(n)
        is_inside = (first <= element) & (element < end)
        result = blended(result, is_inside / is_inside.sum(axis=1, keepdims=True), place)
    return result


def adaptive_max_pool(x: TensorLike, lengths: PerAxis, **axes: Unpack[ImageRoles]) -> TensorOp:
    """Return maxima over windows that give the spatial axes these lengths.

    The windows are those of `adaptive_avg_pool`. Equal maxima of a window share its gradient.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes, of known lengths.
    lengths
        The lengths of the result: an integer for all spatial axes, or a list with one for each.
        They may be larger than those of x.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    TensorOp
        (N, C, lengths), in the dtype of x.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, or their lengths are unknown or 0.
    ArgumentError
        If `lengths` have another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[1.0, 5.0, 2.0, 4.0, 3.0]]])
    >>> weft.jit(lambda x: weft.adaptive_max_pool(x, 2))(x)
    array([[[5., 4.]]])
    """
    return by_roles("adaptive_max_pool", IMAGES, (x,), axes, lambda x: _adapted_maxima(x, lengths))


def _adapted_maxima(x: TensorLike, lengths: PerAxis) -> TensorOp:
    result = as_op(x)
    pairs = _adaptive_lengths(Use("adaptive_max_pool", (result,)), lengths)
    if not any(n % m for n, m in pairs):
        return max_pool(result, [n // m for n, m in pairs])
    for place, (n, m) in enumerate(pairs, 2):
        first, end = _adaptive_windows(n, m)
        element = first + np.arange(np.max(end - first))
        windows = ops.take(result, constant(np.minimum(element, n - 1)), place)
        is_inside = constant(element < end)
        spread = ops.BroadcastOp(is_inside, target_axes=windows.axes, dims=(place, place + 1))
        least = constant(dtypes.least(result.dtype), dtype=result.dtype)
        result = ops.MaxOp(ops.where(spread, windows, least), positions=(place + 1,))
    return result


def adaptive_max_pool_with_indices(
    x: TensorLike, lengths: PerAxis, **axes: Unpack[ImageRoles]
) -> tuple[TensorOp, TensorOp]:
    """Return the maxima of `adaptive_max_pool`, and their indices for `max_unpool`.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes, of known lengths.
    lengths
        The lengths of the result: an integer for all spatial axes, or a list with one for each.
        They may be larger than those of x.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=`` and ``spatial=``. By default they are ``N``, ``C``, and
        ``D``, ``H``, ``W``.

    Returns
    -------
    tuple[TensorOp, TensorOp]
        The maxima, (N, C, lengths), in the dtype of x, and the index of the first maximum, or of
        the first NaN, of each: int64, flattened in row-major order over the spatial axes of x.

    Raises
    ------
    AxesError
        If x has no one to three spatial axes, or their lengths are unknown or 0.
    ArgumentError
        If `lengths` have another form, or a role does not exist.
    DTypeError
        If x is complex.

    Examples
    --------
    >>> x = np.array([[[1.0, 5.0, 2.0, 4.0, 3.0]]])
    >>> weft.jit(lambda x: weft.adaptive_max_pool_with_indices(x, 2))(x)
    (array([[[5., 4.]]]), array([[[1, 3]]]))
    """
    kind = "adaptive_max_pool_with_indices"

    def apply(x: Any) -> tuple[TensorOp, TensorOp]:
        maxima = _adapted_maxima(x, lengths)
        return maxima, _adapted_indices(as_op(x), _adaptive_lengths(Use(kind, (x,)), lengths))

    return by_roles(kind, IMAGES, (x,), axes, apply)


def _adapted_indices(x: TensorOp, pairs: Sequence[tuple[int, int]]) -> TensorOp:
    """Return the flat index of the first maximum of each window."""
    elements, is_inside = np.zeros((1, 1), int), np.ones((1, 1), bool)
    for n, m in pairs:
        first, end = _adaptive_windows(n, m)
        element = first + np.arange(np.max(end - first))
        windows = len(elements) * m, -1
        elements = elements[:, None, :, None] * n + np.minimum(element, n - 1)[:, None]
        is_inside = is_inside[:, None, :, None] & (element < end)[:, None]
        elements, is_inside = elements.reshape(windows), is_inside.reshape(windows)
    flat = ops.cast_axes(x, (*x.axes[:2], math.prod(n for n, _ in pairs)))
    taken = ops.take(flat, constant(elements), 2)
    least = constant(dtypes.least(x.dtype), dtype=x.dtype)
    candidates = ops.where(ops.broadcast(constant(is_inside), taken.axes), taken, least)
    best = ops.cast_axes(ops.argmax(candidates, 3), (*taken.axes[:3], 1))
    table = ops.broadcast(constant(elements), taken.axes)
    return ops.cast_axes(ops.take_along_axis(table, best, 3), (*x.axes[:2], *(m for _, m in pairs)))


def _adaptive_lengths(use: Use, lengths: PerAxis) -> Sequence[tuple[int, int]]:
    """Return the length of each spatial axis, and its new length."""
    have = use.spatial_lengths()
    want = use.numbers("lengths", lengths, len(have))
    known = [n for n in have if isinstance(n, int) and n]
    if len(known) < len(have):
        raise use.refusal(f"the lengths must be known and not 0, not {have}", AxesError)
    return list(zip(known, want, strict=True))


def _adaptive_windows(n: int, m: int) -> tuple[Any, Any]:
    """Return the first elements of m windows over n elements, and what follows their last."""
    index = np.arange(m)[:, None]
    return index * n // m, -(-(index + 1) * n // m)
