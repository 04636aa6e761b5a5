"""Convolutions and transposed convolutions in one to three dimensions, with their adjoints.

As everywhere in networks, a convolution is a cross-correlation: filters are not turned around.
Images have the axes N, C, then spatial ones; filters O, C / groups, then spatial ones.

It is linear in the images and in the filters, so three ops are closed under differentiation: from
images and filters to outputs; from outputs and filters to images, the transposed convolution; and
from images and outputs to filters. The adjoints of each are the two others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.lengths import floor_divide, product
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops.elementwise import cast, common_dtype
from weft.ops.linalg import MatmulOp, matrix_transpose
from weft.ops.movement import BroadcastOp, cast_axes, transpose
from weft.ops.roles import FilterRoles, Layout, by_roles
from weft.ops.spatial import SPATIAL, Numbers, Pairs, Sliding, Use, is_count
from weft.ops.windows import folded_into, swapped, windows_over

__all__ = [
    "BilinearConvolutionOp",
    "ConvolutionFilterOp",
    "ConvolutionInputOp",
    "ConvolutionOp",
    "conv",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose",
]

Lengths = tuple[Any, ...]


class BilinearConvolutionOp(CompositeOp):
    """The base of the three ops on images, filters and outputs of a convolution.

    Attributes
    ----------
    stride, dilation
        For each spatial axis the step between windows, and that between the elements of one.
    padding
        For each spatial axis the number of zeros before and after the images.
    groups
        The number of equal parts of the channels; each has filters of its own.
    """

    stride: Numbers
    padding: Pairs
    dilation: Numbers
    groups: int

    def sliding(self, kernel: Any) -> Sliding:
        """Return the windows that filters of these spatial lengths look through."""
        return Sliding(tuple(kernel), self.stride, self.padding, self.dilation)

    def geometry(self) -> dict[str, Any]:
        """Return the attributes that all three ops of a convolution share."""
        return {name: getattr(self, name) for name in BilinearConvolutionOp.fields}

    def operand_lengths(self) -> tuple[Lengths, Lengths]:
        """Return the lengths of both operands, once dtypes and numbers of axes are right."""
        first, second = self.args
        if first.dtype != second.dtype or dtypes.is_bool(first.dtype):
            problem = f"not {first.dtype} and {second.dtype}"
            raise DTypeError(f"a convolution needs numbers of one dtype, {problem}")
        rank = len(self.stride) + 2
        if any(x.axes.is_named or x.rank != rank for x in self.args):
            raise AxesError(
                f"with strides {self.stride} it takes {rank} positional axes each, not "
                f"{first.axes} and {second.axes}"
            )
        return first.axes.lengths, second.axes.lengths

    def check(self, images: Lengths, filters: Lengths, outputs: Lengths) -> None:
        """Refuse lengths that do not fit together."""
        if filters[0] != outputs[1]:
            raise AxesError(f"{filters[0]} filters do not fit outputs of {outputs[1]} channels")
        if images[1] != filters[1] * self.groups or filters[0] % self.groups:
            raise AxesError(
                f"{filters[0]} filters of {filters[1]} channels in {self.groups} groups do not fit "
                f"images of {images[1]} channels"
            )
        wanted = (images[0], filters[0], *self.sliding(filters[2:]).counts(images[2:]))
        if outputs != wanted:
            raise AxesError(f"the outputs have the lengths {wanted}, not {outputs}")

    def grouped_filters(self, w: TensorOp, batch: Any) -> TensorOp:
        """Return for each image and group a matrix: filters, elements of a window."""
        count, channels, *kernel = w.axes.lengths
        size = product((channels, *kernel))
        matrices = cast_axes(w, (self.groups, floor_divide(count, self.groups), size))
        target = make_axes((batch, *matrices.axes.lengths))
        return BroadcastOp(matrices, target_axes=target, dims=(1, 2, 3))


class ConvolutionOp(BilinearConvolutionOp):
    """The convolution of images with filters."""

    def infer(self) -> tuple[Axes, DType]:
        """Count the windows."""
        images, filters = self.operand_lengths()
        counts = self.sliding(filters[2:]).counts(images[2:])
        outputs = (images[0], filters[0], *counts)
        self.check(images, filters, outputs)
        return make_axes(outputs), self.args[0].dtype

    def reference(self, x: Any, w: Any) -> Any:
        """Add up the products with the elements of a filter, one after the other."""
        x, w = _split(x, 1, self), _split(w, 0, self)
        outputs, counts = self.axes.shape[:2], self.axes.shape[2:]
        result = _split(np.zeros((*outputs, *counts), x.dtype), 1, self)
        for windows, elements, place in self.sliding(w.shape[3:]).taps(x.shape[3:]):
            part = np.einsum("ngc...,goc->ngo...", x[elements], w[place])
            result[windows] += part
        return result.reshape(self.axes.shape).astype(self.dtype)

    def decompose(self, x: TensorOp, w: TensorOp) -> TensorOp:
        """Multiply the filters of each group with the windows as columns."""
        batch = x.axes.lengths[0]
        windows = swapped(windows_over(x, self.sliding(w.axes.lengths[2:])), len(self.stride))
        filters = self.grouped_filters(w, batch)
        size, columns = filters.axes.lengths[-1], product(self.axes.lengths[2:])
        matrices = cast_axes(windows, (batch, self.groups, size, columns))
        return cast_axes(MatmulOp(filters, matrices), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, w: TensorOp) -> Any:
        """Convolve the adjoint transposed with the filters, and the images with the adjoint."""
        geometry = self.geometry()
        return (
            ConvolutionInputOp(delta, w, lengths=x.axes.lengths[2:], **geometry),
            ConvolutionFilterOp(x, delta, kernel=w.axes.lengths[2:], **geometry),
        )


class ConvolutionInputOp(BilinearConvolutionOp):
    """The transposed convolution of outputs with filters: each is laid out and they add up.

    Attributes
    ----------
    lengths
        The spatial lengths of the result, which the outputs alone do not tell.
    """

    lengths: tuple[Any, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Take the declared lengths."""
        outputs, filters = self.operand_lengths()
        images = (outputs[0], filters[1] * self.groups, *self.lengths)
        self.check(images, filters, outputs)
        return make_axes(images), self.args[0].dtype

    def reference(self, delta: Any, w: Any) -> Any:
        """Add up what the elements of a filter lay out, one after the other."""
        delta, w = _split(delta, 1, self), _split(w, 0, self)
        result = _split(np.zeros(self.axes.shape, w.dtype), 1, self)
        for windows, elements, place in self.sliding(w.shape[3:]).taps(self.axes.shape[2:]):
            part = np.einsum("ngo...,goc->ngc...", delta[windows], w[place])
            result[elements] += part
        return result.reshape(self.axes.shape).astype(self.dtype)

    def decompose(self, delta: TensorOp, w: TensorOp) -> TensorOp:
        """Multiply the transposed filters of each group with the outputs, and fold the columns."""
        batch, _, *counts = delta.axes.lengths
        kernel = w.axes.lengths[2:]
        filters = matrix_transpose(self.grouped_filters(w, batch))
        matrices = cast_axes(delta, (batch, self.groups, filters.axes.lengths[-1], product(counts)))
        columns = MatmulOp(filters, matrices)
        windows = cast_axes(columns, (batch, self.axes.lengths[1], *kernel, *counts))
        return folded_into(self.axes, swapped(windows, len(counts)), self.sliding(kernel))

    def generate_adjoints(self, delta: TensorOp, outputs: TensorOp, w: TensorOp) -> Any:
        """Convolve the adjoint with the filters, and with the outputs."""
        geometry = self.geometry()
        return (
            ConvolutionOp(delta, w, **geometry),
            ConvolutionFilterOp(delta, outputs, kernel=w.axes.lengths[2:], **geometry),
        )


class ConvolutionFilterOp(BilinearConvolutionOp):
    """The filters that images and outputs meet in: for each element, the sum of their products.

    Attributes
    ----------
    kernel
        The spatial lengths of the result.
    """

    kernel: Numbers

    def infer(self) -> tuple[Axes, DType]:
        """Take the declared lengths."""
        images, outputs = self.operand_lengths()
        filters = (outputs[1], floor_divide(images[1], self.groups), *self.kernel)
        self.check(images, filters, outputs)
        return make_axes(filters), self.args[0].dtype

    def reference(self, x: Any, delta: Any) -> Any:
        """Sum up the products for one element of a filter after the other."""
        x, delta = _split(x, 1, self), _split(delta, 1, self)
        result = _split(np.zeros(self.axes.shape, x.dtype), 0, self)
        for windows, elements, place in self.sliding(self.kernel).taps(x.shape[3:]):
            part, share = x[elements], delta[windows]
            count = math.prod(share.shape[3:])
            flat = (a.reshape(*a.shape[:3], count) for a in (share, part))
            result[place] = np.einsum("ngop,ngcp->goc", *flat)
        return result.reshape(self.axes.shape).astype(self.dtype)

    def decompose(self, x: TensorOp, delta: TensorOp) -> TensorOp:
        """Multiply, for each group, the outputs with the windows over all images at once."""
        _, count, *outputs = delta.axes.lengths
        spatial = len(outputs)
        columns = product((x.axes.lengths[0], *outputs))
        windows = swapped(windows_over(x, self.sliding(self.kernel)), spatial)
        size = product(self.axes.lengths[1:])
        channels_first = (1, *range(2, 2 + spatial), 0, *range(2 + spatial, 2 + 2 * spatial))
        matrices = cast_axes(transpose(windows, channels_first), (self.groups, size, columns))
        rows = transpose(delta, (1, 0, *range(2, 2 + spatial)))
        rows = cast_axes(rows, (self.groups, floor_divide(count, self.groups), columns))
        return cast_axes(MatmulOp(rows, matrix_transpose(matrices)), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, outputs: TensorOp) -> Any:
        """Convolve the outputs transposed with the adjoint, and the images with the adjoint."""
        geometry = self.geometry()
        return (
            ConvolutionInputOp(outputs, delta, lengths=x.axes.lengths[2:], **geometry),
            ConvolutionOp(x, delta, **geometry),
        )


def _split(x: Any, place: int, op: BilinearConvolutionOp) -> Any:
    """Return an array, in the dtype to add up in, with an axis split in groups and the rest."""
    wide = np.asarray(x, accumulator_dtype(op.dtype))
    length = x.shape[place] // op.groups
    return wide.reshape(*x.shape[:place], op.groups, length, *x.shape[place + 1 :])


_FORWARD = Layout(
    "batch? channels spatial*",
    "filters channels spatial*",
    "filters",
    results=["batch? filters spatial*"],
    same={"filters": "channels"},
)
_BACKWARD = Layout(
    "batch? channels spatial*",
    "channels filters spatial*",
    "filters",
    results=["batch? filters spatial*"],
    same={"filters": "channels"},
)


def conv(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: Any = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with filters, in one to three dimensions.

    Images `x` have the axes (N, C, spatial ones), filters `w` (O, C / groups, as many spatial ones)
    and the result (N, O, numbers of windows); dtypes are promoted, bool counts as int32. It is a
    cross-correlation: filters are not turned around. Named axes may lie in any order: those called
    N, C, D, H, W and K are taken, or those given as `batch`, `channels`, `spatial` and `filters`,
    and the result lies as `x` does, with the filters' axis in place of the channels. Along D, H and
    W filters have axes of the same names, or T, R and S.

    `stride` (the step between windows) and `dilation` (that between elements of one) are integers,
    or lists with one for each spatial axis. `padding` is the number of zeros around the images: a
    count, or a list with a count or a pair (before, after) for each spatial axis; or ``valid`` for
    none; or ``same`` for so much that there are as many windows as elements, divided by the stride
    and rounded up: an odd one lies after the images, for ``same_lower`` before them. With `groups`,
    the channels and the filters are split in so many equal parts that do not meet; as many groups
    as channels make it depthwise. `bias` has one number for each filter.
    """
    apply = _Convolution("conv", SPATIAL, stride, padding, dilation, groups)
    return by_roles("conv", _FORWARD, (x, w, bias), axes, apply)


def conv1d(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: Any = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with one spatial axis, (N, C, W); see `conv`."""
    apply = _Convolution("conv1d", (1,), stride, padding, dilation, groups)
    return by_roles("conv1d", _FORWARD, (x, w, bias), axes, apply)


def conv2d(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: Any = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with two spatial axes, (N, C, H, W); see `conv`."""
    apply = _Convolution("conv2d", (2,), stride, padding, dilation, groups)
    return by_roles("conv2d", _FORWARD, (x, w, bias), axes, apply)


def conv3d(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: Any = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with three spatial axes, (N, C, D, H, W); see `conv`."""
    apply = _Convolution("conv3d", (3,), stride, padding, dilation, groups)
    return by_roles("conv3d", _FORWARD, (x, w, bias), axes, apply)


def conv_transpose(
    x: Any,
    w: Any,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    bias: Any = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the transposed convolution: each element of x lays a filter out, and they add up.

    It is the adjoint of `conv` in the images. `x` has the axes (N, C, spatial ones), `w` (C,
    O / groups, as many spatial ones) and the result (N, O, spatial ones) of lengths ``(n - 1) *
    stride + dilation * (kernel - 1) + 1``, less the `padding`, a count or a list as for `conv`, and
    plus `output_padding`, an integer below the stride or a list, after the images. Named axes are
    taken as by `conv`.
    """

    def apply(x: Any, w: Any, bias: Any) -> TensorOp:
        x, w = _numbers(x, w)
        use = Use("conv_transpose", (x, w))
        counts = use.spatial_lengths()
        _check_filters(use, groups)
        if isinstance(padding, str):
            raise use.refusal(
                f"padding must be counts, not {padding!r}: lengths decide what is same"
            )
        sliding = use.sliding(counts, list(w.axes.lengths[2:]), stride, padding, dilation)
        extra = use.numbers("output_padding", output_padding, len(counts), 0)
        if any(more >= step for more, step in zip(extra, sliding.stride, strict=True)):
            raise use.refusal(
                f"output_padding {extra} must be less than the stride {sliding.stride}"
            )
        # What is not cut off at the end need not be added there.
        pairs = zip(sliding.padding, extra, strict=True)
        ends = [(before, after - more) for (before, after), more in pairs]
        cut = sliding._replace(padding=tuple((before, max(after, 0)) for before, after in ends))
        lengths = [
            n + max(-after, 0) for n, (_, after) in zip(cut.lengths(counts), ends, strict=True)
        ]
        if any(isinstance(n, int) and n < 1 for n in lengths):
            problem = f"padding {sliding.padding} leaves nothing of the lengths {tuple(lengths)}"
            raise use.refusal(problem, AxesError)
        result = ConvolutionInputOp(
            x, w, lengths=tuple(lengths), stride=cut.stride, padding=cut.padding,
            dilation=cut.dilation, groups=int(groups),
        )  # fmt: skip
        return _with_bias(use, result, bias)

    return by_roles("conv_transpose", _BACKWARD, (x, w, bias), axes, apply)


@dataclass(frozen=True)
class _Convolution:
    """A convolution of positional operands, to be called with images, filters and bias."""

    function: str
    ranks: tuple[int, ...]
    stride: Any
    padding: Any
    dilation: Any
    groups: Any

    def __call__(self, x: Any, w: Any, bias: Any) -> TensorOp:
        """Build the op."""
        x, w = _numbers(x, w)
        use = Use(self.function, (x, w))
        lengths = use.spatial_lengths(self.ranks)
        _check_filters(use, self.groups)
        kernel = list(w.axes.lengths[2:])
        slides = use.sliding(lengths, kernel, self.stride, self.padding, self.dilation)
        sliding = use.fitting(slides, lengths)
        result = ConvolutionOp(
            x, w, stride=sliding.stride, padding=sliding.padding, dilation=sliding.dilation,
            groups=int(self.groups),
        )  # fmt: skip
        return _with_bias(use, result, bias)


def _numbers(x: Any, w: Any) -> tuple[TensorOp, TensorOp]:
    dtype = common_dtype((x, w))
    number = dtypes.int32 if dtypes.is_bool(dtype) else dtype
    return cast(as_op(x), number), cast(as_op(w), number)


def _check_filters(use: Use, groups: Any) -> None:
    x, w = use.operands
    if w.rank != x.rank:
        problem = f"filters need {x.rank} axes, as the images have, not {w.axes}"
        raise use.refusal(problem, AxesError)
    if not is_count(groups, 1):
        raise use.refusal(f"groups must be an integer >= 1, not {groups!r}")


def _with_bias(use: Use, result: TensorOp, bias: Any) -> TensorOp:
    if bias is None:
        return result
    bias = as_op(bias)
    if bias.axes != result.axes[1:2]:
        problem = f"bias must have one number for each of {result.axes[1]} filters, not {bias.axes}"
        raise use.refusal(problem, AxesError)
    return result + cast_axes(bias, (bias.axes[0], *(1 for _ in result.axes[2:])))
