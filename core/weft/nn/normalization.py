"""Batch, layer, group, instance and RMS normalization, and norms."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft import ops, ranks
from weft.communicators.choice import connected
from weft.errors import ArgumentError, AxesError
from weft.ir import scope
from weft.ir.axes import Axes, AxisKey, AxisKeys
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import Op, explain, explained
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import (
    aligned_to,
    broadcast_in_dim,
    checked_integer,
    checked_number,
    checked_order,
)
from weft.ops.pointwise.elementwise import align, common_dtype
from weft.ops.reductions.probabilities import broadcast_back
from weft.ops.shape.movement import size_of
from weft.support.backports import override

__all__ = [
    "NormalizeOp",
    "RmsNormOp",
    "StandardizeOp",
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "normalize",
    "rms_norm",
    "standardize",
]


class NormalizeOp(CompositeOp):
    """The base of normalizations: they divide by a root mean square over some axes, and scale.

    Operands are x, a scale and optionally a bias, broadcast to the same axes. 16-bit floats are
    computed in float32.

    Attributes
    ----------
    positions
        The positions of the reduced axes, increasing.
    epsilon
        A number added to the mean square.
    """

    positions: tuple[int, ...]
    epsilon: float

    @override
    def infer(self) -> tuple[Axes, DType]:
        x = self.args[0]
        for other in self.args[1:]:
            if other.axes != x.axes or other.dtype != x.dtype:
                raise AxesError(f"{other.dtype} {other.axes} must be {x.dtype} {x.axes}")
        return x.axes, x.dtype

    def centered(self, x: TensorOp) -> TensorOp:
        """Return the numerator, which is divided by its root mean square."""
        raise NotImplementedError

    def mean_of(self, x: TensorOp) -> TensorOp:
        """Return the mean, broadcast over the reduced axes."""
        return broadcast_back(ops.MeanOp(x, positions=self.positions), x, self.positions)

    def unit(self, x: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Return x normalized, and the normalizing factor."""
        centered = self.centered(x)
        total = ops.MeanOp(ops.square(centered), positions=self.positions) + self.epsilon
        factor = broadcast_back(ops.rsqrt(total), x, self.positions)
        return centered * factor, factor

    def decompose(self, x: TensorOp, scale: TensorOp, *bias: TensorOp) -> TensorOp:
        """Compute mean and deviations in two passes, without cancellation."""
        wide = [ops.cast(each, accumulator_dtype(self.dtype)) for each in (x, scale, *bias)]
        result = self.unit(wide[0])[0] * wide[1]
        return ops.cast(result + wide[2] if bias else result, self.dtype)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, scale: TensorOp, *bias: Any) -> Any:
        """Return factor * (centered(g) - unit * mean(g * unit)) for g = delta * scale.

        (Ioffe and Szegedy, 2015, with the sums written as means.)
        """
        wide, x, scale = (
            ops.cast(each, accumulator_dtype(self.dtype)) for each in (delta, x, scale)
        )
        unit, factor = self.unit(x)
        share = wide * scale
        dx = factor * (self.centered(share) - unit * self.mean_of(share * unit))
        return ops.cast(dx, self.dtype), ops.cast(wide * unit, self.dtype), *(delta for _ in bias)


class StandardizeOp(NormalizeOp):
    """The standardization (x - mean) / sqrt(variance + epsilon), times a scale, plus a bias."""

    @override
    def centered(self, x: TensorOp) -> TensorOp:
        return ops.subtract(x, self.mean_of(x))

    def reference(self, x: Array, scale: Array, bias: Array) -> Any:
        """Subtract the mean, divide by the standard deviation, scale and shift."""
        x, scale, bias = (
            np.asarray(each, accumulator_dtype(self.dtype)) for each in (x, scale, bias)
        )
        if not x.size:
            return x.astype(self.dtype)
        centered = x - np.mean(x, axis=self.positions, keepdims=True)
        variance = np.var(x, axis=self.positions, keepdims=True)
        return (centered / np.sqrt(variance + self.epsilon) * scale + bias).astype(self.dtype)


class RmsNormOp(NormalizeOp):
    """The operand divided by its root mean square over some axes, times a scale."""

    @override
    def centered(self, x: TensorOp) -> TensorOp:
        return x

    def reference(self, x: Array, scale: Array) -> Any:
        """Divide by the root of the mean square, and scale."""
        x, scale = (np.asarray(each, accumulator_dtype(self.dtype)) for each in (x, scale))
        if not x.size:
            return x.astype(self.dtype)
        total = np.mean(np.square(x), axis=self.positions, keepdims=True) + self.epsilon
        return (x / np.sqrt(total) * scale).astype(self.dtype)


def _channels(function: str, x: TensorOp, axis: AxisKeys | None) -> tuple[int, ...]:
    """Return the positions of the channel axes: the given ones, the axis named C, or 1."""
    if axis is None:
        axis = x.axes.channel_axis if x.axes.is_named else range(1, x.rank)[:1]
    places = () if axis is None else explained(function, (x,), x.axes.positions, axis)
    if not places:
        problem = f"which axis of {x.axes} is that of the channels? Say axis="
        raise AxesError(explain(function, problem, (x,)))
    return tuple(sorted(places))


def _samples(x: TensorOp, channels: tuple[int, ...]) -> tuple[int, ...]:
    """Return the positions of the sample axes: N and REC, or 0."""
    if not x.axes.is_named:
        return () if 0 in channels else (0,)
    return tuple(i for i, axis in enumerate(x.axes) if axis.is_batch or axis.is_recurrent)


def _all_but(function: str, x: TensorOp, kept: tuple[int, ...]) -> tuple[int, ...]:
    positions = tuple(place for place in range(x.rank) if place not in kept)
    if not positions:
        problem = f"{x.axes} has no axes left to take a mean over, besides the kept ones"
        raise AxesError(explain(function, problem, (x,)))
    return positions


def _operands(function: str, x: TensorOp, axes: Axes, **others: Any) -> list[TensorOp]:
    """Return x and others in one dtype, with 1 for a missing scale and -0.0 for a missing bias.

    Both change nothing, so they are simplified away; 0.0 would turn -0.0 into 0.0.
    """
    given = {what: value for what, value in others.items() if value is not None}
    dtype = ops.FloatOp.operand_dtype(common_dtype((x, *given.values())))
    tensors = [ops.cast(x, dtype)]
    for what in others:
        neutral = constant(1.0 if what == "scale" else -0.0, dtype=dtype)
        op = aligned_to(function, what, given[what], axes) if what in given else neutral
        tensors.append(ops.cast(op, dtype))
    return tensors


def _normalized(
    kind: type[NormalizeOp],
    function: str,
    x: TensorOp,
    positions: tuple[int, ...],
    places: tuple[int, ...],
    epsilon: float,
    **others: Any,
) -> TensorOp:
    """Return x normalized over axes, and scaled along others, as an op of a class."""
    epsilon = checked_number(function, "epsilon", epsilon)
    axes = Axes(x.axes[place] for place in places)
    operands = _operands(function, x, axes, **others)
    others_spread = (broadcast_in_dim(each, x, places) for each in operands[1:])
    return kind(operands[0], *others_spread, positions=positions, epsilon=epsilon)


def standardize(x: TensorLike, axes: AxisKeys = -1, epsilon: float = 1e-5) -> TensorOp:
    """Return x standardized over axes, ``(x - mean) / sqrt(variance + epsilon)``.

    The result has mean 0 and, apart from epsilon, variance 1. It is `layer_norm` without a scale
    and a bias.

    Parameters
    ----------
    x
        A tensor of floats; integers count as float32.
    axes
        The axes of mean and variance: axes, names or positions, one or a list.
    epsilon
        A number of at least 0. Equal elements give 0, or NaN with an epsilon of 0.

    Returns
    -------
    TensorOp
        Floats, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If there is no such axis.
    ArgumentError
        If `epsilon` is out of range.

    Examples
    --------
    >>> weft.jit(weft.standardize)(np.array([[1.0, 3.0], [5.0, 5.0]]))
    array([[-1.,  1.],
           [ 0.,  0.]])
    """
    return layer_norm(x, axes=axes, epsilon=epsilon)


def layer_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    axes: AxisKeys = -1,
    epsilon: float = 1e-5,
) -> TensorOp:
    """Return the layer normalization of x: standardized over axes, times a scale, plus a bias.

    It is ``(x - mean) / sqrt(variance + epsilon) * scale + bias``, with the biased variance. (Ba,
    Kiros and Hinton, 2016.)

    Parameters
    ----------
    x
        A tensor of floats; integers count as float32.
    scale, bias
        Tensors of the shape of x along `axes`, in the order of x, or scalars; by default 1 and 0.
    axes
        The axes of mean and variance: axes, names or positions, one or a list. By default the last:
        each row of (N, features) is normalized by itself.
    epsilon
        A number of at least 0. Equal elements give 0, or NaN with an epsilon of 0.

    Returns
    -------
    TensorOp
        Floats in the promoted dtype, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If there is no such axis, or scale or bias have others.
    ArgumentError
        If `epsilon` is out of range.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0], [5.0, 5.0]])
    >>> weft.jit(weft.layer_norm)(x, np.array([2.0, 2.0]), np.array([0.0, 1.0]))
    array([[-2.,  3.],
           [ 0.,  1.]])
    """
    (x,) = align(ops.FloatOp, x)
    positions = tuple(sorted(explained("layer_norm", (x,), x.axes.positions, axes)))
    return _normalized(
        StandardizeOp, "layer_norm", x, positions, positions, epsilon, scale=scale, bias=bias
    )


def rms_norm(
    x: TensorLike, scale: TensorLike | None = None, axes: AxisKeys = -1, epsilon: float = 1e-5
) -> TensorOp:
    """Return the RMS normalization of x, ``x / sqrt(mean(x**2) + epsilon)``, times a scale.

    (Zhang and Sennrich, 2019.)

    Parameters
    ----------
    x
        A tensor of floats; integers count as float32.
    scale
        A tensor of the shape of x along `axes`, in the order of x, or a scalar; by default 1.
    axes
        The axes of the mean: axes, names or positions, one or a list.
    epsilon
        A number of at least 0.

    Returns
    -------
    TensorOp
        Floats in the promoted dtype, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If there is no such axis, or the scale has others.
    ArgumentError
        If `epsilon` is out of range.

    Examples
    --------
    >>> weft.jit(weft.rms_norm)(np.array([[1.0, 7.0], [2.0, 2.0]]))
    array([[0.2, 1.4],
           [1. , 1. ]])
    """
    (x,) = align(ops.FloatOp, x)
    positions = tuple(sorted(explained("rms_norm", (x,), x.axes.positions, axes)))
    return _normalized(RmsNormOp, "rms_norm", x, positions, positions, epsilon, scale=scale)


def batch_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    mean: TensorLike | None = None,
    variance: TensorLike | None = None,
    training: bool = False,
    axis: AxisKeys | None = None,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
    across_ranks: bool = False,
) -> TensorOp:
    """Return the batch normalization of x: each channel standardized, times a scale, plus a bias.

    It is ``(x - mean) / sqrt(variance + epsilon) * scale + bias``. (Ioffe and Szegedy, 2015.)

    Parameters
    ----------
    x
        A tensor of floats, as (N, C) or (N, C, H, W); integers count as float32.
    scale, bias
        Tensors of the shape (C,), or scalars; by default 1 and 0.
    mean, variance
        The statistics of each channel, of the shape (C,), or scalars. In training those of x are
        used: these are then omitted, or are states of running averages, from `persistent_tensor`.
    training
        Whether the statistics are the mean and the biased variance of x over all axes but the
        channels.
    axis
        The axis of the channels, or several: axes, names or positions. By default that named ``C``,
        or position 1.
    momentum
        The weight of the newest statistics in the running averages, from 0 to 1.
    epsilon
        A number of at least 0, which is added to the variance.
    across_ranks
        Whether the statistics are those of all ranks' x, which have the same shape.

    Returns
    -------
    TensorOp
        Floats in the promoted dtype, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If it is unclear which axis is that of the channels, nothing is left to take a mean over, or
        another tensor has other axes.
    ArgumentError
        If only one of the statistics is given, or none without training; if a running average was
        made by `variable`, which an optimizer would train as well; or if a number is out of range.
    StateError
        If a running average is not a state, or writes of one have no order.

    Notes
    -----
    Running averages become ``(1 - momentum) * state + momentum * statistic`` whenever the result is
    computed, right after it; the statistic is the mean, or the unbiased variance. They are written
    as by `saved_user_deps`: other computations do not perform them. Several results may share
    states if each depends on the one before; otherwise they need a `sequential`. For parameters in
    trees see `weft.nn.BatchNorm`.

    Examples
    --------
    >>> x = np.array([[1.0, 10.0], [3.0, 30.0]])
    >>> weft.jit(lambda x: weft.batch_norm(x, training=True))(x)
    array([[-1., -1.],
           [ 1.,  1.]])
    >>> given = weft.jit(lambda x, mean, variance: weft.batch_norm(x, mean=mean, variance=variance))
    >>> given(x, np.array([1.0, 10.0]), np.array([4.0, 400.0]))
    array([[0., 0.],
           [1., 1.]])

    Running averages in states:

    >>> mean, variance = (weft.persistent_tensor((2,), "float64", value) for value in (0, 1))
    >>> y = weft.batch_norm(x, mean=mean, variance=variance, training=True)
    >>> transformer = weft.make_transformer()
    >>> train, averages = transformer.computation(y), transformer.computation([mean, variance])
    >>> _ = train()
    >>> averages()
    (array([0.2, 2. ]), array([ 1.1, 20.9]))
    """
    (x,) = align(ops.FloatOp, x)
    places = _channels("batch_norm", x, axis)
    momentum = checked_number("batch_norm", "momentum", momentum, high=1)
    if (mean is None) != (variance is None) or (mean is None and not training):
        problem = "give the mean and the variance, or training=True for batch statistics"
        raise ArgumentError(explain("batch_norm", problem, (x,)))
    if not training:
        return _by_statistics(x, places, epsilon, mean, variance, scale, bias)
    positions = _all_but("batch_norm", x, places)
    if across_ranks:
        statistics = _statistics_across_ranks(x, positions, places)
        result = _by_statistics(x, places, epsilon, *statistics[:2], scale, bias)
    else:
        result = _normalized(
            StandardizeOp, "batch_norm", x, positions, places, epsilon, scale=scale, bias=bias
        )
    if mean is None:
        return result
    for what, state in (("mean", mean), ("variance", variance)):
        if getattr(state, "is_trainable", False):
            problem = f"the running {what} {state} is a variable, which optimizers train: make it"
            raise ArgumentError(
                explain("batch_norm", f"{problem} by persistent_tensor()", (state,))
            )
    with scope.saved_user_deps():
        if not across_ranks:
            statistics = _statistics(x, positions)
        writes = _running_averages(*statistics, mean, variance, momentum)
        # The result also comes first, so that its operands have run: x may contain earlier writes.
        return ops.sequential([result, *writes, result])  # type: ignore[return-value]


def _by_statistics(
    x: TensorOp,
    places: tuple[int, ...],
    epsilon: float,
    mean: TensorLike | None,
    variance: TensorLike | None,
    *affine: Any,
) -> TensorOp:
    epsilon = checked_number("batch_norm", "epsilon", epsilon)
    axes = Axes(x.axes[place] for place in places)
    others = dict(zip(("scale", "bias"), affine, strict=True), mean=mean, variance=variance)
    operands = _operands("batch_norm", x, axes, **others)
    dtype = operands[0].dtype
    x, scale, bias, mean, variance = (ops.cast(each, accumulator_dtype(dtype)) for each in operands)
    factor = ops.broadcast(scale * ops.rsqrt(variance + epsilon), axes)
    result = (x - broadcast_in_dim(mean, x, places)) * broadcast_in_dim(factor, x, places)
    return ops.cast(result + broadcast_in_dim(bias, x, places), dtype)


def _statistics(x: TensorOp, positions: tuple[int, ...]) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return the mean, the biased variance, and the number of elements that they are over."""
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    count = size_of(Axes(x.axes[place] for place in positions), wide.dtype)
    return ops.MeanOp(wide, positions=positions), ops.VarianceOp(wide, positions=positions), count


def _statistics_across_ranks(
    x: TensorOp, positions: tuple[int, ...], places: tuple[int, ...]
) -> tuple[TensorOp, TensorOp, TensorOp]:
    """Return the results of `_statistics` over the x of all ranks."""
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    count = size_of(Axes(x.axes[place] for place in positions), wide.dtype)
    mean = ranks.all_reduce(ops.MeanOp(wide, positions=positions), "mean")
    squares = ops.square(wide - broadcast_in_dim(mean, x, places))
    variance = ranks.all_reduce(ops.MeanOp(squares, positions=positions), "mean")
    return mean, variance, count * connected().size


def _running_averages(
    mean: TensorOp,
    variance: TensorOp,
    count: TensorOp,
    old_mean: Any,
    old_variance: Any,
    momentum: float,
) -> list[Op]:
    return [
        ops.moving_average(state, value, 1 - momentum)
        for state, value in ((old_mean, mean), (old_variance, _unbiased(variance, count)))
    ]


def _unbiased(variance: TensorOp, count: TensorOp) -> TensorOp:
    return variance * ops.divide(count, ops.maximum(count - 1, 1))


def channel_statistics(x: TensorOp) -> tuple[TensorOp, TensorOp]:
    """Return the mean and the unbiased variance of each channel, along axis 1, for averages."""
    mean, variance, count = _statistics(x, _all_but("batch_norm", x, (1,)))
    return mean, _unbiased(variance, count)


def instance_norm(
    x: TensorLike,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    axis: AxisKey | None = None,
    epsilon: float = 1e-5,
) -> TensorOp:
    """Return the instance normalization: each channel of each sample standardized, and scaled.

    (Ulyanov, Vedaldi and Lempitsky, 2016.)

    Parameters
    ----------
    x
        A tensor of floats, as (N, C, H, W); integers count as float32. Mean and variance are over
        all axes but the channels and the samples, which are position 0, or the axes named ``N`` and
        ``REC``.
    scale, bias
        Tensors of the shape (C,), or scalars; by default 1 and 0.
    axis
        The axis of the channels, by position or name; by default that named ``C``, or position 1.
    epsilon
        A number of at least 0, which is added to the variance.

    Returns
    -------
    TensorOp
        Floats in the promoted dtype, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If it is unclear which axis is that of the channels, nothing is left to take a mean over, or
        scale or bias have other axes.
    ArgumentError
        If `epsilon` is out of range.

    Examples
    --------
    >>> x = np.array([[[1.0, 3.0], [10.0, 30.0]]])
    >>> weft.jit(weft.instance_norm)(x, np.array([1.0, 2.0]))
    array([[[-1.,  1.],
            [-2.,  2.]]])
    """
    (x,) = align(ops.FloatOp, x)
    places = _channels("instance_norm", x, axis)
    positions = _all_but("instance_norm", x, (*places, *_samples(x, places)))
    return _normalized(
        StandardizeOp, "instance_norm", x, positions, places, epsilon, scale=scale, bias=bias
    )


def group_norm(
    x: TensorLike,
    groups: int,
    scale: TensorLike | None = None,
    bias: TensorLike | None = None,
    axis: AxisKey | None = None,
    epsilon: float = 1e-5,
) -> TensorOp:
    """Return the group normalization: each group of channels of a sample standardized, and scaled.

    Mean and variance are over the channels of a group and all axes but those of the samples, which
    are position 0, or the axes named ``N`` and ``REC``. (Wu and He, 2018.)

    Parameters
    ----------
    x
        A tensor of floats, as (N, C, H, W); integers count as float32.
    groups
        The number of groups, of consecutive channels; it divides their number. With 1 all channels
        are normalized together, with C each by itself.
    scale, bias
        Tensors of the shape (C,), or scalars; by default 1 and 0.
    axis
        The axis of the channels, by position or name; by default that named ``C``, or position 1.
    epsilon
        A number of at least 0, which is added to the variance.

    Returns
    -------
    TensorOp
        Floats in the promoted dtype, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If the number of channels is unknown or not divided by that of the groups, or scale or bias
        have other axes.
    ArgumentError
        If `groups` or `epsilon` is out of range.

    Examples
    --------
    >>> x = np.array([[1.0, 3.0, 10.0, 30.0]])
    >>> weft.jit(lambda x: weft.group_norm(x, 2))(x)
    array([[-1.,  1., -1.,  1.]])
    """
    (x,) = align(ops.FloatOp, x)
    groups = checked_integer("group_norm", "groups", groups, 1)
    channel, *more = _channels("group_norm", x, axis)
    axes = x.axes[channel : channel + 1]
    length = axes.size
    if more or not isinstance(length, int) or length % groups:
        problem = f"{groups} groups must divide one axis of known length, not {axes}"
        raise AxesError(explain("group_norm", problem, (x,)))
    lengths = x.axes.lengths
    inner = (groups, length // groups)
    split = ops.cast_axes(x, (*lengths[:channel], *inner, *lengths[channel + 1 :]))
    kept = (channel, *(place + (place > channel) for place in _samples(x, (channel,))))
    affine = {
        what: None if value is None else _grouped(what, value, axes, inner)
        for what, value in (("scale", scale), ("bias", bias))
    }
    positions = _all_but("group_norm", split, kept)
    places = (channel, channel + 1)
    result = _normalized(StandardizeOp, "group_norm", split, positions, places, epsilon, **affine)
    return ops.cast_axes(result, x.axes)


def _grouped(what: str, value: TensorLike, axes: Axes, inner: tuple[int, int]) -> TensorOp:
    op = aligned_to("group_norm", what, value, axes)
    return ops.cast_axes(op, inner) if op.axes else op


def local_response_norm(
    x: TensorLike,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    axis: AxisKey | None = None,
) -> TensorOp:
    """Return the local response normalization, ``x / (k + alpha * mean(x**2)) ** beta``.

    The mean is over a window of channels around each; channels outside count as 0. With k = 0 a
    window of zeros gives NaN. (Krizhevsky, Sutskever and Hinton, 2012, with alpha divided by the
    size.)

    Parameters
    ----------
    x
        A tensor of floats, as (N, C, H, W); integers count as float32.
    size
        The number of channels in a window, of which ``size // 2`` come before.
    alpha, beta, k
        Numbers of at least 0 in the formula.
    axis
        The axis of the channels, by position or name; by default that named ``C``, or position 1.

    Returns
    -------
    TensorOp
        Floats, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If it is unclear which axis is that of the channels.
    ArgumentError
        If `size` is not an integer of at least 1, or another number is out of range.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0, 2.0]])
    >>> weft.jit(lambda x: weft.local_response_norm(x, 3, alpha=3.0, beta=1.0))(x)
    array([[0.1667, 0.2   , 0.2222]])
    """
    (x,) = align(ops.FloatOp, x)
    size = checked_integer("local_response_norm", "size", size, 1)
    channel, *more = _channels("local_response_norm", x, axis)
    if more:
        problem = f"windows move along one axis of {x.axes}, not {axis!r}"
        raise AxesError(explain("local_response_norm", problem, (x,)))
    alpha, beta, k = (
        checked_number("local_response_norm", what, value)
        for what, value in (("alpha", alpha), ("beta", beta), ("k", k))
    )
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    length = x.axes[channel].length
    most = length if isinstance(length, int) else size  # a wider window reaches only zeros
    before, after = min(size // 2, most), min((size - 1) // 2, most)
    widths = [(0, 0)] * x.rank
    widths[channel] = (before, after)
    padded = ops.pad(ops.square(wide), widths)
    around = (slice(None),) * channel
    windows = [
        ops.tensor_slice(padded, (*around, slice(i, i + length))) for i in range(before + after + 1)
    ]
    total = functools.reduce(ops.add, windows)
    return ops.cast(
        wide / ops.power(k + (alpha / size) * ops.cast_axes(total, x.axes), beta), x.dtype
    )


def normalize(x: TensorLike, p: float = 2, axes: AxisKeys = -1, epsilon: float = 1e-12) -> TensorOp:
    """Return x divided by its p-norm over axes, or by `epsilon` if that is larger.

    Parameters
    ----------
    x
        A tensor of floats; integers count as float32.
    p
        The order of the norm, at least 1; infinity for the maximum norm.
    axes
        The axes of the norm: axes, names or positions, one or a list.
    epsilon
        The least divisor, at least 0. Zeros give 0, with gradient ``1 / epsilon``, or NaN with an
        epsilon of 0.

    Returns
    -------
    TensorOp
        Floats, with the axes of x. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If there is no such axis.
    ArgumentError
        If `p` or `epsilon` is out of range.

    Examples
    --------
    >>> x = np.array([[3.0, 4.0], [0.0, 0.0]])
    >>> weft.jit(weft.normalize)(x)
    array([[0.6, 0.8],
           [0. , 0. ]])
    >>> weft.jit(lambda x: weft.normalize(x, p=1, axes=0))(x)
    array([[1., 1.],
           [0., 0.]])
    """
    (x,) = align(ops.FloatOp, x)
    positions = tuple(sorted(explained("normalize", (x,), x.axes.positions, axes)))
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    epsilon = checked_number("normalize", "epsilon", epsilon)
    length = ops.norm(wide, checked_order("normalize", p), positions)
    return ops.cast(wide / broadcast_back(ops.maximum(length, epsilon), x, positions), x.dtype)
