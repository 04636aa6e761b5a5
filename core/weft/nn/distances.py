"""Regression, likelihood, margin, similarity and overlap losses."""

from __future__ import annotations

import math

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
from weft.ops.indexing.gathering import TakeOp, as_indices
from weft.ops.pointwise.comparison import greater, maximum, minimum, where
from weft.ops.pointwise.elementwise import FloatOp, absolute, align, cast, square
from weft.ops.pointwise.math import exp, log, power
from weft.ops.reductions.probabilities import broadcast_back
from weft.ops.reductions.reduced_axes import reduced_positions
from weft.ops.reductions.reduction import MeanOp, SumOp
from weft.ops.reductions.statistics import norm
from weft.ops.shape.movement import broadcast

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

    Both have the same axes (named ones in any order), or one is a scalar; otherwise AxesError is
    raised. `reduction` is ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. Integers count as
    float32.
    """
    x, t, dtype = loss_operands("mse_loss", predictions, targets)
    return reduce_losses("mse_loss", square(x - t), reduction, dtype=dtype)


def l1_loss(predictions: TensorLike, targets: TensorLike, reduction: str = "mean") -> TensorOp:
    """Return the absolute error of predictions and targets, reduced as by `mse_loss`.

    The gradient of an error of 0 is 0.
    """
    x, t, dtype = loss_operands("l1_loss", predictions, targets)
    return reduce_losses("l1_loss", absolute(x - t), reduction, dtype=dtype)


def huber_loss(
    predictions: TensorLike, targets: TensorLike, delta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the Huber loss: d² / 2 for an error d of at most delta, else delta (d - delta / 2).

    It is reduced as by `mse_loss`. (Huber, 1964.)
    """
    x, t, dtype = loss_operands("huber_loss", predictions, targets)
    delta = checked_number("huber_loss", "delta", delta)
    return reduce_losses("huber_loss", _huber(absolute(x - t), delta), reduction, dtype=dtype)


def _huber(distance: TensorOp, delta: float) -> TensorOp:
    near = minimum(distance, delta)
    return near * (distance - near * 0.5)


def smooth_l1_loss(
    predictions: TensorLike, targets: TensorLike, beta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the smooth L1 loss: d² / (2 beta) for an error d of at most beta, else d - beta / 2.

    That is the `huber_loss` divided by beta; for beta 0 it is the `l1_loss`. (Girshick, 2015.)
    """
    x, t, dtype = loss_operands("smooth_l1_loss", predictions, targets)
    beta = checked_number("smooth_l1_loss", "beta", beta)
    distance = absolute(x - t)
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
    """Return the negative log likelihood of Poisson-distributed counts t.

    Predictions x are log rates, with the loss ``exp(x) - t x``; or, without `log_input`, rates,
    with ``x - t log(x + epsilon)``. `full` adds Stirling's approximation of log(t!) for t above 1.
    The loss is reduced as by `mse_loss`.
    """
    function = "poisson_nll_loss"
    x, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    losses = exp(x) - t * x if log_input else x - t * log(x + epsilon)
    if full:
        is_many = greater(t, 1)
        many = where(is_many, t, 1)
        stirling = many * log(many) - many + log(many * (2 * math.pi)) * 0.5
        losses = losses + where(is_many, stirling, 0)
    return reduce_losses(function, losses, reduction, dtype=dtype)


def gaussian_nll_loss(
    predictions: TensorLike,
    targets: TensorLike,
    variance: TensorLike,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: str = "mean",
) -> TensorOp:
    """Return the negative log likelihood of targets, normally distributed around predicted means.

    That is ``(log(variance) + (x - t)² / variance) / 2``; `full` adds ``log(2 pi) / 2``. The
    variance is broadcast to the predictions and clipped to at least `epsilon`, below which its
    gradient is 0. The loss is reduced as by `mse_loss`. (Nix and Weigend, 1994.)
    """
    function = "gaussian_nll_loss"
    x, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    distance = x - t
    spread = broadcast_to_losses(function, "the variance", variance, distance)
    if not isinstance(variance, int | float):
        dtype = dtypes.promote(dtype, spread.dtype)
    limited = maximum(cast(spread, accumulator_dtype(dtype)), epsilon)
    losses = (log(limited) + distance * (distance / limited)) * 0.5
    losses = losses + 0.5 * math.log(2 * math.pi) if full else losses
    return reduce_losses(function, losses, reduction, dtype=dtype)


def hinge_loss(
    scores: TensorLike, targets: TensorLike, margin: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return the hinge loss ``max(0, margin - t x)`` of scores x and targets t, which are -1 or 1.

    It is reduced as by `mse_loss`. The gradient at the kink is 0.
    """
    x, t, dtype = loss_operands("hinge_loss", scores, targets)
    losses = maximum(0, _margin("hinge_loss", margin) - t * x)
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
    """Return the multi-class hinge loss: the mean over classes of ``max(0, margin - x[y] + x)^p``.

    The sum leaves out the label y, but is divided by the number of all classes. Classes, labels and
    weights are as for `nll_loss`, except that a mean divides by the number of labels. The gradient
    at the kink is 0. (Crammer and Singer, 2001.)
    """
    function = "multi_margin_loss"
    labels = as_indices(labels)
    require_order(function, scores, labels)
    (x,) = align(FloatOp, scores)
    position = class_position(function, x, axis)
    labels, wide = labels_for(function, x, labels, position), cast(x, accumulator_dtype(x.dtype))
    p, margin = checked_integer(function, "p", p, 1), _margin(function, margin)
    right = broadcast_back(PickOp(wide, labels, position=position), x, (position,))
    excess = maximum(0, margin - right + wide)
    others = where(is_label(x, labels, position), 0, excess if p == 1 else power(excess, p))
    losses: TensorOp = MeanOp(others, positions=(position,))
    if weights is not None:
        factors = class_weights(function, weights, wide, position)
        losses = losses * TakeOp(factors, labels, position=0)
    return reduce_losses(function, losses, reduction, dtype=x.dtype)


def cosine_similarity(
    x: TensorLike, y: TensorLike, axis: AxisKeys = -1, epsilon: float = 1e-8
) -> TensorOp:
    """Return the cosine similarity of vectors along one or more axes.

    That is the dot product of both vectors, each divided by its norm or by epsilon, whichever is
    larger; so a zero vector gives 0. Other axes are broadcast. 16-bit floats are computed in
    float32. Raises AxesError if an axis of vectors is missing in one operand or has another length.
    """
    given = as_op(x), as_op(y)
    x, y = align(FloatOp, x, y)
    dtype = x.dtype
    positions = explained("cosine_similarity", given, _vector_positions, *given, x.axes, axis)
    wide = (cast(each, accumulator_dtype(dtype)) for each in (x, y))
    x, y = (normalize(each, axes=positions, epsilon=epsilon) for each in wide)
    return cast(SumOp(x * y, positions=positions), dtype)


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
    """Return ``1 - cosine`` for pairs with target 1, and ``max(0, cosine - margin)`` for target -1.

    The cosine is the `cosine_similarity` along an axis; targets have the remaining axes. The loss
    is reduced as by `mse_loss`. The gradient is 0 at the kink; targets have none.
    """
    function = "cosine_embedding_loss"
    cosine = cosine_similarity(x, y, axis)
    is_match = greater(aligned_to(function, "the targets", targets, cosine.axes), 0)
    losses = where(is_match, 1 - cosine, maximum(0, cosine - _margin(function, margin)))
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

    Distances are p-norms of differences along an axis, with p as for `normalize`. The gradient is 0
    for a distance of 0 and at the kink. All three operands have the same axes. The loss is reduced
    as by `mse_loss`. (Schroff, Kalenichenko and Philbin, 2015.)
    """
    function = "triplet_loss"
    p, margin = checked_order(function, p), _margin(function, margin)
    (near, dtype), (far, _) = (
        _distance(function, anchor, other, p, axis) for other in (positive, negative)
    )
    return reduce_losses(function, maximum(0, near - far + margin), reduction, dtype=dtype)


def _distance(
    function: str, x: TensorLike, y: TensorLike, p: float, axis: AxisKey
) -> tuple[TensorOp, DType]:
    """Return the distances, in float32 for 16-bit floats, and the dtype of the loss."""
    x, y, dtype = loss_operands(function, x, y)
    positions = tuple(sorted(explained(function, (x, y), x.axes.positions, axis)))
    return norm(x - y, p, positions), dtype


def _margin(function: str, margin: float) -> float:
    return checked_number(function, "margin", margin, low=-math.inf)


def dice_loss(
    predictions: TensorLike,
    targets: TensorLike,
    axes: AxisKeys | None = None,
    epsilon: float = 1.0,
    reduction: str = "mean",
) -> TensorOp:
    """Return the Dice loss ``1 - (2 sum(y t) + epsilon) / (sum(y) + sum(t) + epsilon)``.

    The sums are over `axes`, by default over all but those named ``N`` and ``REC``. The loss is
    reduced over the others as by `mse_loss`. 16-bit floats are computed in float32. (Milletari,
    Navab and Ahmadi, 2016, without squares.)
    """
    function = "dice_loss"
    y, t, dtype = loss_operands(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    product = y * t
    positions = reduced_positions(product, axes, None)
    overlap, *sizes = (
        SumOp(broadcast(each, product.axes), positions=positions) for each in (product, y, t)
    )
    losses = 1 - (overlap * 2 + epsilon) / (sizes[0] + sizes[1] + epsilon)
    return reduce_losses(function, losses, reduction, dtype=dtype)
