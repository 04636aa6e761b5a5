"""Convolutions and transposed convolutions in one to three dimensions, with their adjoints.

As usual in neural networks, a convolution is a cross-correlation: filters are not flipped. Images
have the axes (N, C, spatial), filters (O, C / groups, spatial).

A convolution is bilinear, so three ops are closed under differentiation: from images and filters to
outputs (convolution), from outputs and filters to images (transposed convolution), and from images
and outputs to filters (filter gradient). The adjoints of each are the two others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from weft.errors import AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import Length, Size, floor_divide, product
from weft.ir.storage import as_op
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.spatial.geometry import (
    SPATIAL,
    Numbers,
    Padding,
    Pairs,
    PerAxis,
    Sliding,
    Use,
    is_count,
)
from weft.nn.spatial.windows import folded_into, swapped, windows_over
from weft.ops.pointwise.elementwise import cast, common_dtype
from weft.ops.products.linalg import MatmulOp, matrix_transpose
from weft.ops.products.roles import FilterRoles, RoleSignature, by_roles
from weft.ops.shape.movement import BroadcastOp, cast_axes, transpose
from weft.support.backports import override

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
    """The base of the convolution, its transpose and its filter gradient.

    Attributes
    ----------
    stride, dilation
        For each spatial axis the step between windows, and between the elements of a window.
    padding
        For each spatial axis the number of zeros before and after the image; a negative number
        leaves out elements of the image.
    groups
        The number of groups of channels; each has its own filters.
    """

    stride: Numbers
    padding: Pairs
    dilation: Numbers
    groups: int

    def sliding(self, kernel: Any) -> Sliding:
        """Return the windows for filters of these spatial lengths."""
        return Sliding(tuple(kernel), self.stride, self.padding, self.dilation)

    def geometry(self) -> dict[str, Any]:
        """Return the attributes that the three ops share."""
        return {name: getattr(self, name) for name in BilinearConvolutionOp.fields}

    def operand_lengths(self) -> tuple[Lengths, Lengths]:
        """Return the lengths of both operands, after a check of dtypes and ranks."""
        first, second = self.args
        if first.dtype != second.dtype or dtypes.is_bool(first.dtype):
            problem = f"not {first.dtype} and {second.dtype}"
            raise DTypeError(f"a convolution needs operands of one numeric dtype, {problem}")
        rank = len(self.stride) + 2
        if any(x.axes.is_named or x.rank != rank for x in self.args):
            raise AxesError(
                f"with strides {self.stride} it takes {rank} positional axes each, not "
                f"{first.axes} and {second.axes}"
            )
        return first.axes.lengths, second.axes.lengths

    @property
    def products(self) -> tuple[TensorOp, TensorOp]:
        """The outputs and the filters, which determine the number of products."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        """Two for each product; the padding counts as well."""
        outputs, filters = self.products
        return 2 * int(outputs.axes.size) * math.prod(filters.axes.shape[1:])

    def check(self, images: Lengths, filters: Lengths, outputs: Lengths) -> None:
        """Raise AxesError if the lengths do not fit together."""
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

    def grouped_filters(self, w: TensorOp, batch: int | Length) -> TensorOp:
        """Return the filters as matrices (N, groups, filters, window elements)."""
        count, channels, *kernel = w.axes.lengths
        size = product((channels, *kernel))
        matrices = cast_axes(w, (self.groups, floor_divide(count, self.groups), size))
        target = make_axes((batch, *matrices.axes.lengths))
        return BroadcastOp(matrices, target_axes=target, dims=(1, 2, 3))


class ConvolutionOp(BilinearConvolutionOp):
    """The convolution of images with filters."""

    @property
    @override
    def products(self) -> tuple[TensorOp, TensorOp]:
        return self, self.args[1]

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the outputs: images, filters, and windows along each spatial axis."""
        images, filters = self.operand_lengths()
        counts = self.sliding(filters[2:]).counts(images[2:])
        outputs = (images[0], filters[0], *counts)
        self.check(images, filters, outputs)
        return make_axes(outputs), self.args[0].dtype

    def reference(self, x: Array, w: Array) -> Any:
        """Sum the products over the taps of a filter."""
        return convolved(x, w, self.sliding(w.shape[2:]), self.groups, self.axes.shape)

    def decompose(self, x: TensorOp, w: TensorOp) -> TensorOp:
        """Multiply the filters of each group by the windows as columns (im2col)."""
        batch = x.axes.lengths[0]
        windows = swapped(windows_over(x, self.sliding(w.axes.lengths[2:])), len(self.stride))
        filters = self.grouped_filters(w, batch)
        size, columns = filters.axes.lengths[-1], product(self.axes.lengths[2:])
        matrices = cast_axes(windows, (batch, self.groups, size, columns))
        return cast_axes(MatmulOp(filters, matrices), self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, w: TensorOp) -> Any:
        """Return the transposed convolution of the adjoint, and the filter gradient."""
        geometry = self.geometry()
        return (
            ConvolutionInputOp(delta, w, lengths=x.axes.lengths[2:], **geometry),
            ConvolutionFilterOp(x, delta, kernel=w.axes.lengths[2:], **geometry),
        )


class ConvolutionInputOp(BilinearConvolutionOp):
    """The transposed convolution: the adjoint of a convolution in its images.

    Attributes
    ----------
    lengths
        The spatial lengths of the result, which the stride leaves open.
    """

    lengths: tuple[Size, ...]

    @property
    @override
    def products(self) -> tuple[TensorOp, TensorOp]:
        return self.args[0], self.args[1]

    @override
    def infer(self) -> tuple[Axes, DType]:
        outputs, filters = self.operand_lengths()
        images = (outputs[0], filters[1] * self.groups, *self.lengths)
        self.check(images, filters, outputs)
        return make_axes(images), self.args[0].dtype

    def reference(self, delta: Array, w: Array) -> Any:
        """Sum the products over the taps of a filter, scattered to the image."""
        sliding = self.sliding(w.shape[2:])
        return transposed_convolved(delta, w, sliding, self.groups, self.axes.shape)

    def decompose(self, delta: TensorOp, w: TensorOp) -> TensorOp:
        """Multiply the transposed filters by the outputs, and fold the columns (col2im)."""
        batch, _, *counts = delta.axes.lengths
        kernel = w.axes.lengths[2:]
        filters = matrix_transpose(self.grouped_filters(w, batch))
        matrices = cast_axes(delta, (batch, self.groups, filters.axes.lengths[-1], product(counts)))
        columns = MatmulOp(filters, matrices)
        windows = cast_axes(columns, (batch, self.axes.lengths[1], *kernel, *counts))
        return folded_into(self.axes, swapped(windows, len(counts)), self.sliding(kernel))

    def generate_adjoints(self, delta: TensorOp, outputs: TensorOp, w: TensorOp) -> Any:
        """Return the convolution of the adjoint, and the filter gradient."""
        geometry = self.geometry()
        return (
            ConvolutionOp(delta, w, **geometry),
            ConvolutionFilterOp(delta, outputs, kernel=w.axes.lengths[2:], **geometry),
        )


class ConvolutionFilterOp(BilinearConvolutionOp):
    """The filter gradient: the adjoint of a convolution in its filters.

    Attributes
    ----------
    kernel
        The spatial lengths of the result.
    """

    kernel: Numbers

    @property
    @override
    def products(self) -> tuple[TensorOp, TensorOp]:
        return self.args[1], self

    @override
    def infer(self) -> tuple[Axes, DType]:
        images, outputs = self.operand_lengths()
        filters = (outputs[1], floor_divide(images[1], self.groups), *self.kernel)
        self.check(images, filters, outputs)
        return make_axes(filters), self.args[0].dtype

    def reference(self, x: Array, delta: Array) -> Any:
        """Compute each tap of the filters as a sum of products."""
        x, delta = _split(x, 1, self.groups), _split(delta, 1, self.groups)
        result = _split(np.zeros(self.axes.shape, x.dtype), 0, self.groups)
        for windows, elements, place in self.sliding(self.kernel).taps(x.shape[3:]):
            part, share = x[elements], delta[windows]
            count = math.prod(share.shape[3:])
            flat = (a.reshape(*a.shape[:3], count) for a in (share, part))
            result[place] = np.einsum("ngop,ngcp->goc", *flat)
        return result.reshape(self.axes.shape).astype(self.dtype)

    def decompose(self, x: TensorOp, delta: TensorOp) -> TensorOp:
        """Multiply the outputs of each group by the windows, for all images at once."""
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
        """Return the transposed convolution of the outputs, and the convolution of the images."""
        geometry = self.geometry()
        return (
            ConvolutionInputOp(outputs, delta, lengths=x.axes.lengths[2:], **geometry),
            ConvolutionOp(x, delta, **geometry),
        )


def convolved(x: Array, w: Array, sliding: Sliding, groups: int, shape: tuple[int, ...]) -> Any:
    """Return the convolution of arrays of images and filters, an array of the shape `shape`."""
    images, filters = _split(x, 1, groups), _split(w, 0, groups)
    result = _split(np.zeros(shape, images.dtype), 1, groups)
    for windows, elements, place in sliding.taps(x.shape[2:]):
        result[windows] += np.einsum("ngc...,goc->ngo...", images[elements], filters[place])
    return result.reshape(shape).astype(x.dtype)


def transposed_convolved(
    delta: Array, w: Array, sliding: Sliding, groups: int, shape: tuple[int, ...]
) -> Any:
    """Return the transposed convolution of arrays, an array of images of the shape `shape`."""
    outputs, filters = _split(delta, 1, groups), _split(w, 0, groups)
    result = _split(np.zeros(shape, outputs.dtype), 1, groups)
    for windows, elements, place in sliding.taps(shape[2:]):
        result[elements] += np.einsum("ngo...,goc->ngc...", outputs[windows], filters[place])
    return result.reshape(shape).astype(delta.dtype)


def _split(x: Array, place: int, groups: int) -> Any:
    """Return an array in the accumulator dtype, with an axis split into groups."""
    wide = np.asarray(x, accumulator_dtype(x.dtype))
    return wide.reshape(*x.shape[:place], groups, x.shape[place] // groups, *x.shape[place + 1 :])


_FORWARD = RoleSignature(
    "batch? channels spatial*",
    "filters channels spatial*",
    "filters",
    results=["batch? filters spatial*"],
    same={"filters": "channels"},
)
_BACKWARD = RoleSignature(
    "batch? channels spatial*",
    "channels filters spatial*",
    "filters",
    results=["batch? filters spatial*"],
    same={"filters": "channels"},
)


def conv(
    x: TensorLike,
    w: TensorLike,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    bias: TensorLike | None = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with filters, in one to three dimensions.

    As usual in neural networks it is a cross-correlation: filters are not flipped. The result at a
    window is the sum of its elements times those of the filter, over the channels of the group.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes.
    w
        Filters (O, C / groups, spatial axes of the kernel), O of them.
    stride
        The step between windows: an integer for all spatial axes, or a list with one for each.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window: an integer, or a list with one for each spatial axis.
    groups
        The number of independent groups, into which channels and filters are split in order. As
        many as channels make a depthwise convolution.
    bias
        A number that is added for each filter, (O,); by default none is.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=``, ``spatial=`` and ``filters=``. By default they are ``N``,
        ``C``, and ``D``, ``H``, ``W``; the axis of filters is ``K``, and the spatial axes of
        filters are those of the images, or ``T``, ``R`` and ``S``.

    Returns
    -------
    TensorOp
        (N, O, windows along each spatial axis). There are ``(length + padding - extent) // stride +
        1`` windows along an axis, with the padding of both sides and the extent of a window,
        ``dilation * (kernel - 1) + 1``. The order of named axes is that of x. The dtype is the
        promoted one; bool gives int32, and 16-bit floats are summed in float32.

    Raises
    ------
    AxesError
        If ranks differ, channels do not fit, no window fits, or ``"same"`` with a stride needs a
        length that is unknown.
    ArgumentError
        If an option has another form, or a role does not exist.

    Examples
    --------
    >>> x = np.arange(5.0).reshape(1, 1, 5)
    >>> w = np.array([[[1.0, 0.0, -1.0]]])
    >>> weft.jit(weft.conv)(x, w)
    array([[[-2., -2., -2.]]])
    >>> weft.jit(lambda x, w: weft.conv(x, w, padding=1))(x, w)
    array([[[-1., -2., -2., -2.,  3.]]])
    >>> weft.jit(lambda x, w: weft.conv(x, w, stride=2, padding=[(0, 2)]))(x, w)
    array([[[-2., -2.,  4.]]])
    >>> same = weft.jit(lambda x, w: weft.conv(x, w, padding="same"))
    >>> same(np.ones((1, 3, 8, 8)), np.ones((4, 3, 5, 5))).shape
    (1, 4, 8, 8)
    """
    apply = _PositionalConvolution("conv", SPATIAL, stride, padding, dilation, groups)
    return by_roles("conv", _FORWARD, (x, w, bias), axes, apply)


def conv1d(
    x: TensorLike,
    w: TensorLike,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    bias: TensorLike | None = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with filters, along one spatial axis.

    It is a cross-correlation: filters are not flipped. `conv` does the same for any number of
    spatial axes.

    Parameters
    ----------
    x
        Images (N, C, length).
    w
        Filters (O, C / groups, kernel), O of them.
    stride
        The step between windows: an integer for all spatial axes, or a list with one for each.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window: an integer, or a list with one for each spatial axis.
    groups
        The number of independent groups, into which channels and filters are split in order. As
        many as channels make a depthwise convolution.
    bias
        A number that is added for each filter, (O,); by default none is.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=``, ``spatial=`` and ``filters=``. By default they are ``N``,
        ``C``, and ``D``, ``H``, ``W``; the axis of filters is ``K``, and the spatial axes of
        filters are those of the images, or ``T``, ``R`` and ``S``.

    Returns
    -------
    TensorOp
        (N, O, windows). There are ``(length + padding - extent) // stride + 1`` windows along an
        axis, with the padding of both sides and the extent of a window, ``dilation * (kernel - 1) +
        1``. The order of named axes is that of x. The dtype is the promoted one; bool gives int32,
        and 16-bit floats are summed in float32.

    Raises
    ------
    AxesError
        If ranks differ, x has not one spatial axis, channels do not fit, no window fits, or
        ``"same"`` with a stride needs a length that is unknown.
    ArgumentError
        If an option has another form, or a role does not exist.

    Examples
    --------
    >>> x, w = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([[[1.0, 1.0]]])
    >>> weft.jit(weft.conv1d)(x, w)
    array([[[3., 5., 7.]]])
    >>> weft.jit(lambda x, w: weft.conv1d(x, w, dilation=2))(x, w)
    array([[[4., 6.]]])
    """
    apply = _PositionalConvolution("conv1d", (1,), stride, padding, dilation, groups)
    return by_roles("conv1d", _FORWARD, (x, w, bias), axes, apply)


def conv2d(
    x: TensorLike,
    w: TensorLike,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    bias: TensorLike | None = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with filters, along two spatial axes.

    It is a cross-correlation: filters are not flipped. `conv` does the same for any number of
    spatial axes.

    Parameters
    ----------
    x
        Images (N, C, height, width).
    w
        Filters (O, C / groups, kernel height, kernel width), O of them.
    stride
        The step between windows: an integer for all spatial axes, or a list with one for each.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window: an integer, or a list with one for each spatial axis.
    groups
        The number of independent groups, into which channels and filters are split in order. As
        many as channels make a depthwise convolution.
    bias
        A number that is added for each filter, (O,); by default none is.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=``, ``spatial=`` and ``filters=``. By default they are ``N``,
        ``C``, and ``D``, ``H``, ``W``; the axis of filters is ``K``, and the spatial axes of
        filters are those of the images, or ``T``, ``R`` and ``S``.

    Returns
    -------
    TensorOp
        (N, O, windows along the height, windows along the width). There are ``(length + padding -
        extent) // stride + 1`` windows along an axis, with the padding of both sides and the extent
        of a window, ``dilation * (kernel - 1) + 1``. The order of named axes is that of x. The
        dtype is the promoted one; bool gives int32, and 16-bit floats are summed in float32.

    Raises
    ------
    AxesError
        If ranks differ, x has not two spatial axes, channels do not fit, no window fits, or
        ``"same"`` with a stride needs a length that is unknown.
    ArgumentError
        If an option has another form, or a role does not exist.

    Examples
    --------
    >>> x, w = np.arange(9.0).reshape(1, 1, 3, 3), np.ones((1, 1, 2, 2))
    >>> weft.jit(weft.conv2d)(x, w)
    array([[[[ 8., 12.],
             [20., 24.]]]])
    >>> half = weft.jit(lambda x, w, bias: weft.conv2d(x, w, stride=2, padding=1, bias=bias))
    >>> half(np.ones((8, 3, 32, 32)), np.ones((16, 3, 3, 3)), np.zeros(16)).shape
    (8, 16, 16, 16)
    """
    apply = _PositionalConvolution("conv2d", (2,), stride, padding, dilation, groups)
    return by_roles("conv2d", _FORWARD, (x, w, bias), axes, apply)


def conv3d(
    x: TensorLike,
    w: TensorLike,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    bias: TensorLike | None = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the convolution of images with filters, along three spatial axes.

    It is a cross-correlation: filters are not flipped. `conv` does the same for any number of
    spatial axes.

    Parameters
    ----------
    x
        Images (N, C, depth, height, width).
    w
        Filters (O, C / groups, kernel depth, kernel height, kernel width), O of them.
    stride
        The step between windows: an integer for all spatial axes, or a list with one for each.
    padding
        Zeros around the image: a number for all sides; a list with, for each spatial axis, a number
        or a pair (before, after); ``"valid"`` for none; ``"same"`` for ``ceil(length / stride)``
        windows, where an odd zero comes after the image; ``"same_lower"`` likewise with the odd
        zero before it.
    dilation
        The step between elements of a window: an integer, or a list with one for each spatial axis.
    groups
        The number of independent groups, into which channels and filters are split in order. As
        many as channels make a depthwise convolution.
    bias
        A number that is added for each filter, (O,); by default none is.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=``, ``spatial=`` and ``filters=``. By default they are ``N``,
        ``C``, and ``D``, ``H``, ``W``; the axis of filters is ``K``, and the spatial axes of
        filters are those of the images, or ``T``, ``R`` and ``S``.

    Returns
    -------
    TensorOp
        (N, O, windows along depth, height and width). There are ``(length + padding - extent) //
        stride + 1`` windows along an axis, with the padding of both sides and the extent of a
        window, ``dilation * (kernel - 1) + 1``. The order of named axes is that of x. The dtype is
        the promoted one; bool gives int32, and 16-bit floats are summed in float32.

    Raises
    ------
    AxesError
        If ranks differ, x has not three spatial axes, channels do not fit, no window fits, or
        ``"same"`` with a stride needs a length that is unknown.
    ArgumentError
        If an option has another form, or a role does not exist.

    Examples
    --------
    >>> x, w = np.ones((1, 2, 4, 8, 8)), np.ones((6, 2, 1, 3, 3))
    >>> weft.jit(lambda x, w: weft.conv3d(x, w, padding=[0, 1, 1]))(x, w).shape
    (1, 6, 4, 8, 8)
    """
    apply = _PositionalConvolution("conv3d", (3,), stride, padding, dilation, groups)
    return by_roles("conv3d", _FORWARD, (x, w, bias), axes, apply)


def conv_transpose(
    x: TensorLike,
    w: TensorLike,
    stride: PerAxis = 1,
    padding: Padding = 0,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    bias: TensorLike | None = None,
    **axes: Unpack[FilterRoles],
) -> TensorOp:
    """Return the transposed convolution, the adjoint of `conv` in the images.

    Each element of an image adds the filters, times itself, to the result; neighbors are `stride`
    apart. So the result is larger where the stride is above 1.

    Parameters
    ----------
    x
        Images (N, C, spatial axes), with one to three spatial axes.
    w
        Filters (C, O / groups, spatial axes of the kernel). Note the order of the first two, which
        is that of a `conv` from the result to x.
    stride
        The step in the result between neighbors of x: an integer for all spatial axes, or a list
        with one for each.
    padding
        How many elements are cut off at the ends of the result: a number for all sides, or a list
        with, for each spatial axis, a number or a pair (before, after).
    output_padding
        How many elements the result is longer at the end, since several lengths give a `conv` the
        same number of windows: an integer below the stride or below the dilation, or a list with
        one for each spatial axis.
    dilation
        The step between elements of a filter: an integer, or a list with one for each spatial axis.
    groups
        The number of independent groups, into which the channels of x and of the result are split
        in order.
    bias
        A number that is added for each channel of the result, (O,); by default none is.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``batch=``, ``channels=``, ``spatial=`` and ``filters=``. By default they are ``N``,
        ``C``, and ``D``, ``H``, ``W``; the axis of filters is ``K``, and the spatial axes of
        filters are those of the images, or ``T``, ``R`` and ``S``.

    Returns
    -------
    TensorOp
        (N, O, spatial axes), of the lengths ``(n - 1) * stride + dilation * (kernel - 1) + 1``,
        minus the padding of both sides, plus the `output_padding`. The order of named axes is that
        of x. The dtype is the promoted one; bool gives int32.

    Raises
    ------
    AxesError
        If ranks differ, channels do not fit, or the padding leaves nothing.
    ArgumentError
        If an option has another form, `padding` is a word, or a role does not exist.

    Examples
    --------
    >>> x, w = np.array([[[1.0, 10.0]]]), np.array([[[1.0, 2.0, 3.0]]])
    >>> weft.jit(weft.conv_transpose)(x, w)
    array([[[ 1., 12., 23., 30.]]])
    >>> weft.jit(lambda x, w: weft.conv_transpose(x, w, stride=2))(x, w)
    array([[[ 1.,  2., 13., 20., 30.]]])
    >>> double = weft.jit(lambda x, w: weft.conv_transpose(x, w, 2, padding=1, output_padding=1))
    >>> double(np.ones((1, 8, 16, 16)), np.ones((8, 4, 3, 3))).shape
    (1, 4, 32, 32)
    """

    def apply(x: Any, w: Any, bias: Any) -> TensorOp:
        x, w = _numbers(x, w)
        use = Use("conv_transpose", (x, w))
        counts = use.spatial_lengths()
        _check_filters(use, groups)
        if isinstance(padding, str):
            raise use.refusal(
                f"padding must be numbers, not {padding!r}: the lengths determine 'same'"
            )
        sliding = use.sliding(counts, list(w.axes.lengths[2:]), stride, padding, dilation)
        extra = use.numbers("output_padding", output_padding, len(counts), 0)
        steps = zip(extra, sliding.stride, sliding.dilation, strict=True)
        if any(more >= max(stride, gap) for more, stride, gap in steps):
            raise use.refusal(
                f"output_padding {extra} must be less than the stride {sliding.stride} or the "
                f"dilation {sliding.dilation}"
            )
        pairs = zip(sliding.padding, extra, strict=True)
        cut = sliding._replace(padding=tuple((a, b - more) for (a, b), more in pairs))
        lengths = cut.lengths(counts)
        if any(isinstance(n, int) and n < 1 for n in lengths):
            problem = f"padding {sliding.padding} leaves nothing of the lengths {lengths}"
            raise use.refusal(problem, AxesError)
        result = ConvolutionInputOp(
            x, w, lengths=lengths, stride=cut.stride, padding=cut.padding,
            dilation=cut.dilation, groups=int(groups),
        )  # fmt: skip
        return _with_bias(use, result, bias)

    return by_roles("conv_transpose", _BACKWARD, (x, w, bias), axes, apply)


@dataclass(frozen=True)
class _PositionalConvolution:
    """A convolution of positional operands: a function of images, filters and bias."""

    function: str
    ranks: tuple[int, ...]
    stride: Any
    padding: Any
    dilation: Any
    groups: Any

    def __call__(self, x: TensorLike, w: TensorLike, bias: TensorLike | None) -> TensorOp:
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


def _numbers(x: TensorLike, w: TensorLike) -> tuple[TensorOp, TensorOp]:
    dtype = common_dtype((x, w))
    number = dtypes.int32 if dtypes.is_bool(dtype) else dtype
    return cast(as_op(x), number), cast(as_op(w), number)


def _check_filters(use: Use, groups: int) -> None:
    x, w = use.operands
    if w.rank != x.rank:
        problem = f"filters need {x.rank} axes, as the images have, not {w.axes}"
        raise use.refusal(problem, AxesError)
    if not is_count(groups, 1):
        raise use.refusal(f"groups must be an integer >= 1, not {groups!r}")


def _with_bias(use: Use, result: TensorOp, bias: TensorLike | None) -> TensorOp:
    if bias is None:
        return result
    bias = as_op(bias)
    if bias.axes != result.axes[1:2]:
        problem = f"bias must have one number for each of {result.axes[1]} filters, not {bias.axes}"
        raise use.refusal(problem, AxesError)
    return result + cast_axes(bias, (bias.axes[0], *(1 for _ in result.axes[2:])))
