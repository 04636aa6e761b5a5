"""Regression, likelihood, margin, similarity and overlap losses."""

from __future__ import annotations

import math

from weft import ops
from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, AxisKeys
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn.losses import PickOp, class_weights, is_label, labels_for, require_order
from weft.nn.normalization import normalize
from weft.ops.arguments import (
    aligned_to,
    broadcast_to_losses,
    checked_integer,
    checked_number,
    checked_order,
    class_position,
    loss_operands,
    reduce_losses,
)
from weft.ops.indexing.gathering import as_indices
from weft.ops.pointwise.elementwise import align
from weft.ops.reductions.probabilities import broadcast_back
from weft.ops.reductions.reduced_axes import reduced_positions

__all__ = [
    "cosine_embedding_loss",
    "cosine_similarity",
    "dice_loss",
    "gaussian_nll_loss",
    "hinge_loss",
    "huber_loss",
    "l1_loss",
    "mse_loss",
    "multi_margin_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "triplet_loss",
]


def mse_loss(predictions: TensorLike, targets: TensorLike, reduction: str = "mean") -> TensorOp:
    """Return the squared error of predictions and targets, by default its mean.

    Parameters
    ----------
    predictions
        A tensor of floats; integers count as float32.
    targets
        A tensor with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the errors, in the promoted dtype. 16-bit floats are computed
        in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word.

    Examples
    --------
    >>> x, t = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 1.0])
    >>> weft.jit(lambda x, t: weft.mse_loss(x, t, reduction="none"))(x, t)
    array([ 0.,  4., 16.])
    >>> weft.jit(lambda x, t: weft.mse_loss(x, t, reduction="sum"))(x, t)
    array(20.)
    """
    x, t, dtype = loss_operands("mse_loss", predictions, targets)
    return reduce_losses("mse_loss", ops.square(x - t), reduction, dtype=dtype)


def l1_loss(predictions: TensorLike, targets: TensorLike, reduction: str = "mean") -> TensorOp:
    """Return the absolute error of predictions and targets, by default its mean.

    The gradient of an error of 0 is 0.

    Parameters
    ----------
    predictions
        A tensor of floats; integers count as float32.
    targets
        A tensor with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the errors, in the promoted dtype. 16-bit floats are computed
        in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word.

    Examples
    --------
    >>> x, t = np.array([1.0, 2.0, 5.0]), np.array([1.0, 4.0, 1.0])
    >>> weft.jit(weft.l1_loss)(x, t)
    array(2.)
    """
    x, t, dtype = loss_operands("l1_loss", predictions, targets)
    return reduce_losses("l1_loss", ops.absolute(x - t), reduction, dtype=dtype)


def huber_loss(
    predictions: TensorLike, targets: TensorLike, delta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the Huber loss, which is quadratic near 0 and linear beyond (Huber, 1964).

    For an absolute error d it is ``d**2 / 2`` up to `delta`, and ``delta * (d - delta / 2)`` above.

    Parameters
    ----------
    predictions
        A tensor of floats; integers count as float32.
    targets
        A tensor with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    delta
        The error at which the loss becomes linear, at least 0.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, in the promoted dtype. 16-bit floats are computed
        in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word, or `delta` is out of range.

    Examples
    --------
    >>> x, t = np.array([1.0, 1.5, 5.0]), np.array([1.0, 1.0, 1.0])
    >>> weft.jit(lambda x, t: weft.huber_loss(x, t, delta=2.0, reduction="none"))(x, t)
    array([0.   , 0.125, 6.   ])
    """
    x, t, dtype = loss_operands("huber_loss", predictions, targets)
    delta = checked_number("huber_loss", "delta", delta)
    return reduce_losses("huber_loss", _huber(ops.absolute(x - t), delta), reduction, dtype=dtype)


def _huber(distance: TensorOp, delta: float) -> TensorOp:
    near = ops.minimum(distance, delta)
    return near * (distance - near * 0.5)


def smooth_l1_loss(
    predictions: TensorLike, targets: TensorLike, beta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the smooth L1 loss, which is quadratic near 0 and linear with slope 1 beyond.

    For an absolute error d it is ``d**2 / (2 * beta)`` up to `beta`, and ``d - beta / 2`` above:
    the `huber_loss` divided by beta. (Girshick, 2015.)

    Parameters
    ----------
    predictions
        A tensor of floats; integers count as float32.
    targets
        A tensor with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    beta
        The error at which the loss becomes linear, at least 0; with 0 it is the `l1_loss`.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, in the promoted dtype. 16-bit floats are computed
        in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word, or `beta` is out of range.

    Examples
    --------
    >>> x, t = np.array([1.0, 1.5, 5.0]), np.array([1.0, 1.0, 1.0])
    >>> weft.jit(lambda x, t: weft.smooth_l1_loss(x, t, beta=2.0, reduction="none"))(x, t)
    array([0.    , 0.0625, 3.    ])
    """
    x, t, dtype = loss_operands("smooth_l1_loss", predictions, targets)
    beta = checked_number("smooth_l1_loss", "beta", beta)
    distance = ops.absolute(x - t)
    losses = _huber(distance, beta) / beta if beta else distance
    return reduce_losses("smooth_l1_loss", losses, reduction, dtype=dtype)


def poisson_nll_loss(
    predictions: TensorLike,
    targets: TensorLike,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> TensorOp:
    """Return the negative log likelihood of counts t that are Poisson-distributed.

    Parameters
    ----------
    predictions
        Log rates x, with the loss ``exp(x) - t * x``; or rates, with ``x - t * log(x + epsilon)``.
    targets
        Counts t with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    log_input
        Whether the predictions are logarithms.
    full
        Whether Stirling's approximation of log(t!) is added, for t above 1.
    epsilon
        What is added to rates before their logarithm is taken; at least 0.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, in the promoted dtype. Integers count as float32;
        16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word, or `epsilon` is out of range.

    Examples
    --------
    >>> x, t = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    >>> weft.jit(lambda x, t: weft.poisson_nll_loss(x, t, reduction="none"))(x, t)
    array([1.    , 0.7183])
    """
    function = "poisson_nll_loss"
    x, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    losses = ops.exp(x) - t * x if log_input else x - t * ops.log(x + epsilon)
    if full:
        is_many = ops.greater(t, 1)
        many = ops.where(is_many, t, 1)
        stirling = many * ops.log(many) - many + ops.log(many * (2 * math.pi)) * 0.5
        losses = losses + ops.where(is_many, stirling, 0)
    return reduce_losses(function, losses, reduction, dtype=dtype)


def gaussian_nll_loss(
    predictions: TensorLike,
    targets: TensorLike,
    variance: TensorLike,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: str = "mean",
) -> TensorOp:
    """Return the negative log likelihood of targets distributed normally around predictions.

    It is ``(log(variance) + (x - t)**2 / variance) / 2`` (Nix and Weigend, 1994).

    Parameters
    ----------
    predictions
        Means x.
    targets
        A tensor with the axes of the predictions, named ones in any order. One of both may be a
        scalar.
    variance
        A tensor that is broadcast to the losses, or a number. It is clipped to at least `epsilon`,
        below which its gradient is 0.
    full
        Whether ``log(2 * pi) / 2`` is added.
    epsilon
        The least variance; at least 0.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, in the promoted dtype. Integers count as float32;
        16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If the axes of predictions and targets differ, or the variance does not fit them.
    ArgumentError
        If the reduction is another word, or `epsilon` is out of range.

    Examples
    --------
    >>> x, t, variance = np.array([0.0, 1.0]), np.array([0.0, 3.0]), np.array([1.0, 4.0])
    >>> weft.jit(lambda *args: weft.gaussian_nll_loss(*args, reduction="none"))(x, t, variance)
    array([0.    , 1.1931])
    """
    function = "gaussian_nll_loss"
    x, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    distance = x - t
    spread = broadcast_to_losses(function, "the variance", variance, distance)
    if not isinstance(variance, int | float):
        dtype = dtypes.promote(dtype, spread.dtype)
    limited = ops.maximum(ops.cast(spread, accumulator_dtype(dtype)), epsilon)
    losses = (ops.log(limited) + distance * (distance / limited)) * 0.5
    losses = losses + 0.5 * math.log(2 * math.pi) if full else losses
    return reduce_losses(function, losses, reduction, dtype=dtype)


def hinge_loss(
    scores: TensorLike, targets: TensorLike, margin: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the hinge loss, ``max(0, margin - t * x)``; its gradient at the kink is 0.

    Parameters
    ----------
    scores
        A tensor x of floats; integers count as float32.
    targets
        Targets t, which are -1 or 1, with the axes of the scores, named ones in any order. One of
        both may be a scalar.
    margin
        A finite number.
    reduction
        ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. The mean of no elements is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, in the promoted dtype. 16-bit floats are computed
        in float32.

    Raises
    ------
    AxesError
        If the axes of both differ: they are not broadcast.
    ArgumentError
        If the reduction is another word, or the margin is not a finite number.

    Examples
    --------
    >>> x, t = np.array([0.25, 2.0, 2.0]), np.array([1.0, 1.0, -1.0])
    >>> weft.jit(lambda x, t: weft.hinge_loss(x, t, reduction="none"))(x, t)
    array([0.75, 0.  , 3.  ])
    """
    x, t, dtype = loss_operands("hinge_loss", scores, targets)
    losses = ops.maximum(0, _margin("hinge_loss", margin) - t * x)
    return reduce_losses("hinge_loss", losses, reduction, dtype=dtype)


def multi_margin_loss(
    scores: TensorLike,
    labels: TensorLike,
    p: int = 1,
    margin: float = 1.0,
    weights: TensorLike | None = None,
    axis: AxisKey | None = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the multi-class hinge loss of labels, ``max(0, margin - x[label] + x) ** p``.

    It is the mean over classes. The sum leaves out the class of the label, but is divided by the
    number of all classes. The gradient at the kink is 0. (Crammer and Singer, 2001.)

    Parameters
    ----------
    scores
        Scores x of the shape (N, C), for N samples and C classes; integers count as float32.
    labels
        Integers from 0 to C - 1, with the axes of the scores without that of the classes: (N,).
    p
        The exponent, an integer of at least 1.
    margin
        A finite number.
    weights
        A factor for each class, of the shape (C,), by which the loss of its labels is multiplied;
        by default 1.
    axis
        The axis of the classes, by position or name; by default that named ``C``, or the last.
    reduction
        ``"mean"``, which divides by the number of labels whatever the weights, ``"sum"`` or
        ``"none"``.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each label, in the dtype of the scores. 16-bit
        floats are computed in float32.

    Raises
    ------
    AxesError
        If axes do not fit.
    DTypeError
        If labels are not integers.
    ArgumentError
        If the reduction is another word, or `p` or the margin is out of range.
    IndexOutOfRange
        In a call, for a label that is not a class; negative ones are none.

    Examples
    --------
    >>> x, labels = np.array([[0.5, 0.0, 1.0, 0.25]]), np.array([2])
    >>> weft.jit(weft.multi_margin_loss)(x, labels)
    array(0.1875)
    """
    function = "multi_margin_loss"
    labels = as_indices(labels)
    require_order(function, scores, labels)
    (x,) = align(ops.FloatOp, scores)
    position = class_position(function, x, axis)
    labels, wide = (
        labels_for(function, x, labels, position),
        ops.cast(x, accumulator_dtype(x.dtype)),
    )
    p, margin = checked_integer(function, "p", p, 1), _margin(function, margin)
    right = broadcast_back(PickOp(wide, labels, position=position), x, (position,))
    excess = ops.maximum(0, margin - right + wide)
    others = ops.where(is_label(x, labels, position), 0, excess if p == 1 else ops.power(excess, p))
    losses: TensorOp = ops.MeanOp(others, positions=(position,))
    if weights is not None:
        factors = class_weights(function, weights, wide, position)
        losses = losses * ops.TakeOp(factors, labels, position=0)
    return reduce_losses(function, losses, reduction, dtype=x.dtype)


def cosine_similarity(
    x: TensorLike, y: TensorLike, axis: AxisKeys = -1, epsilon: float = 1e-8
) -> TensorOp:
    """Return the cosine similarity of vectors along one or more axes.

    It is the dot product of both vectors, each divided by its norm, or by `epsilon` if that is
    larger; so a zero vector gives 0.

    Parameters
    ----------
    x, y
        Tensors of floats; integers count as float32. They have the axes of the vectors, with the
        same lengths; other axes are broadcast.
    axis
        The axes of the vectors, by position or name, one or a list of them.
    epsilon
        The least divisor; at least 0.

    Returns
    -------
    TensorOp
        The cosines, with the other axes. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If an axis of vectors is missing in one operand or has another length.
    ArgumentError
        If `epsilon` is out of range.

    Examples
    --------
    >>> x, y = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([4.0, 3.0])
    >>> weft.jit(weft.cosine_similarity)(x, y)
    array([0.96, 0.8 ])
    """
    given = as_op(x), as_op(y)
    x, y = align(ops.FloatOp, x, y)
    dtype = x.dtype
    positions = explained("cosine_similarity", given, _vector_positions, *given, x.axes, axis)
    wide = (ops.cast(each, accumulator_dtype(dtype)) for each in (x, y))
    x, y = (normalize(each, axes=positions, epsilon=epsilon) for each in wide)
    return ops.cast(ops.SumOp(x * y, positions=positions), dtype)


def _vector_positions(x: TensorOp, y: TensorOp, aligned: Axes, axis: AxisKeys) -> tuple[int, ...]:
    """Return the positions of the vectors' axes among the aligned axes; both must have them."""
    if aligned.is_named:
        vectors = [x.axes[place] for place in x.axes.positions(axis)]
        y.axes.positions(vectors)
        return tuple(sorted(aligned.positions(vectors)))
    positions = tuple(sorted(aligned.positions(axis)))
    for place in positions:
        lengths = [op.axes.lengths[place - len(aligned) :][:1] for op in (x, y)]
        if lengths[0] != lengths[1]:
            raise AxesError(f"vectors of {x.axes} and {y.axes} along {axis!r} differ in length")
    return positions


def cosine_embedding_loss(
    x: TensorLike,
    y: TensorLike,
    targets: TensorLike,
    margin: float = 0.0,
    axis: AxisKey = -1,
    reduction: str = "mean",
) -> TensorOp:
    """Return ``1 - cosine`` for similar vectors, and ``max(0, cosine - margin)`` for others.

    The cosine is their `cosine_similarity`. The gradient at the kink is 0; targets have none.

    Parameters
    ----------
    x, y
        Tensors of floats, whose other axes are broadcast; integers count as float32.
    targets
        A number for each pair, with the axes of the cosines, or a scalar: above 0, as 1, for
        similar vectors, else, as -1, for others.
    margin
        The cosine up to which the loss of others is 0, a finite number.
    axis
        The axis of the vectors, by position or name.
    reduction
        ``"mean"`` or ``"sum"``, over all pairs, or ``"none"``. The mean of no pairs is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each pair.

    Raises
    ------
    AxesError
        If axes do not fit.
    ArgumentError
        If the reduction is another word, or the margin is not a finite number.

    Examples
    --------
    >>> x, y = np.array([[3.0, 4.0], [3.0, 4.0]]), np.array([[4.0, 3.0], [4.0, 3.0]])
    >>> loss = weft.jit(lambda x, y, t: weft.cosine_embedding_loss(x, y, t, reduction="none"))
    >>> loss(x, y, np.array([1, -1]))
    array([0.04, 0.96])
    """
    function = "cosine_embedding_loss"
    cosine = cosine_similarity(x, y, axis)
    is_match = ops.greater(aligned_to(function, "the targets", targets, cosine.axes), 0)
    losses = ops.where(is_match, 1 - cosine, ops.maximum(0, cosine - _margin(function, margin)))
    return reduce_losses(function, losses, reduction)


def triplet_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    margin: float = 1.0,
    p: float = 2,
    axis: AxisKey = -1,
    reduction: str = "mean",
) -> TensorOp:
    """Return ``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)``.

    The gradient is 0 for a distance of 0 and at the kink. (Schroff, Kalenichenko and Philbin,
    2015.)

    Parameters
    ----------
    anchor, positive, negative
        Vectors, those that should be near to the anchor, and those that should be far: tensors of
        the same axes, named ones in any order. Integers count as float32.
    margin
        By how much the negative should be farther, a finite number.
    p
        The order of the norm of differences, at least 1, or infinity.
    axis
        The axis of the vectors, by position or name.
    reduction
        ``"mean"`` or ``"sum"``, over all triplets, or ``"none"``. The mean of none is NaN.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each triplet. 16-bit floats are computed in float32.

    Raises
    ------
    AxesError
        If axes do not fit.
    ArgumentError
        If the reduction is another word, or `p` or the margin is out of range.

    Examples
    --------
    >>> anchor, near, far = np.zeros((1, 2)), np.array([[3.0, 4.0]]), np.array([[0.0, 2.0]])
    >>> weft.jit(weft.triplet_loss)(anchor, near, far)
    array(4.)
    """
    function = "triplet_loss"
    p, margin = checked_order(function, p), _margin(function, margin)
    (near, dtype), (far, _) = (
        _distance(function, anchor, other, p, axis) for other in (positive, negative)
    )
    return reduce_losses(function, ops.maximum(0, near - far + margin), reduction, dtype=dtype)


def _distance(
    function: str, x: TensorLike, y: TensorLike, p: float, axis: AxisKey
) -> tuple[TensorOp, DType]:
    """Return the distances, in float32 for 16-bit floats, and the dtype of the loss."""
    x, y, dtype = loss_operands(function, x, y)
    positions = tuple(sorted(explained(function, (x, y), x.axes.positions, axis)))
    return ops.norm(x - y, p, positions), dtype


def _margin(function: str, margin: float) -> float:
    return checked_number(function, "margin", margin, low=-math.inf)


def dice_loss(
    predictions: TensorLike,
    targets: TensorLike,
    axes: AxisKeys | None = None,
    epsilon: float = 1.0,
    reduction: str = "mean",
) -> TensorOp:
    """Return the Dice loss, ``1 - (2 * sum(y * t) + epsilon) / (sum(y) + sum(t) + epsilon)``.

    (Milletari, Navab and Ahmadi, 2016, without squares.)

    Parameters
    ----------
    predictions, targets
        Tensors y and t, with numbers from 0 to 1, of the same axes, named ones in any order. One of
        both may be a scalar. Integers count as float32.
    axes
        The axes of the sums, by position or name; by default all, of a named tensor all but ``N``
        and ``REC``.
    epsilon
        A number of at least 0; above 0 the loss of nothing predicted as nothing is 0.
    reduction
        ``"mean"`` or ``"sum"``, over the other axes, or ``"none"``.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss along the other axes. 16-bit floats are computed in
        float32.

    Raises
    ------
    AxesError
        If axes do not fit.
    ArgumentError
        If the reduction is another word, or `epsilon` is out of range.

    Examples
    --------
    >>> y, t = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> weft.jit(lambda y, t: weft.dice_loss(y, t, axes=-1, reduction="none"))(y, t)
    array([0.3333, 0.    ])
    """
    function = "dice_loss"
    y, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    product = y * t
    positions = reduced_positions(product, axes, None)
    overlap, *sizes = (
        ops.SumOp(ops.broadcast(each, product.axes), positions=positions)
        for each in (product, y, t)
    )
    losses = 1 - (overlap * 2 + epsilon) / (sizes[0] + sizes[1] + epsilon)
    return reduce_losses(function, losses, reduction, dtype=dtype)
