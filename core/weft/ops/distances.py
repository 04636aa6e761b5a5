"""Regression, likelihood, margin, similarity and overlap losses."""

from __future__ import annotations

import math
from typing import Any

from weft.errors import AxesError
from weft.ir.axes import Axes
from weft.ir.dtypes import accumulator_dtype
from weft.ir.op import explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorOp
from weft.ops.arguments import (
    checked_number,
    checked_order,
    class_position,
    of_axes,
    paired,
    reduced,
    repeated_over,
    whole_number,
)
from weft.ops.comparison import greater, maximum, minimum, where
from weft.ops.elementwise import FloatOp, absolute, align, cast, square
from weft.ops.gathering import TakeOp, as_indices
from weft.ops.losses import PickOp, class_weights, is_label, labels_for, require_order
from weft.ops.math import exp, log, power
from weft.ops.movement import broadcast
from weft.ops.normalization import normalize
from weft.ops.probabilities import repeated
from weft.ops.reduced_axes import reduced_positions
from weft.ops.reduction import MeanOp, SumOp
from weft.ops.statistics import norm

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


def mse_loss(predictions: Any, targets: Any, reduction: str = "mean") -> TensorOp:
    """Return the squared distances of predictions from targets: their mean, unless asked otherwise.

    Both have the same axes (named ones in any order), or one is a scalar; AxesError otherwise.
    `reduction` is ``"mean"`` or ``"sum"``, over all axes, or ``"none"``. Integers count as float32.
    """
    x, t = paired("mse_loss", predictions, targets)
    return reduced("mse_loss", square(x - t), reduction)


def l1_loss(predictions: Any, targets: Any, reduction: str = "mean") -> TensorOp:
    """Return the absolute distances of predictions from targets, reduced as by `mse_loss`.

    The gradient of a distance of 0 is 0.
    """
    x, t = paired("l1_loss", predictions, targets)
    return reduced("l1_loss", absolute(x - t), reduction)


def huber_loss(
    predictions: Any, targets: Any, delta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return d² / 2 for a distance d of at most delta, else delta (d - delta / 2).

    It is reduced as by `mse_loss`. (Huber, 1964.)
    """
    x, t = paired("huber_loss", predictions, targets)
    delta = checked_number("huber_loss", "delta", delta)
    return reduced("huber_loss", _huber(absolute(x - t), delta), reduction)


def _huber(distance: TensorOp, delta: float) -> TensorOp:
    near = minimum(distance, delta)
    return near * (distance - near * 0.5)


def smooth_l1_loss(
    predictions: Any, targets: Any, beta: float = 1.0, reduction: str = "mean"
) -> TensorOp:
    """Return d² / (2 beta) for a distance d of at most beta, else d - beta / 2.

    That is the `huber_loss` over beta; with beta 0 it is the `l1_loss`. (Girshick, 2015.)
    """
    x, t = paired("smooth_l1_loss", predictions, targets)
    beta = checked_number("smooth_l1_loss", "beta", beta)
    distance = absolute(x - t)
    losses = _huber(distance, beta) / beta if beta else distance
    return reduced("smooth_l1_loss", losses, reduction)


def poisson_nll_loss(
    predictions: Any,
    targets: Any,
    log_input: bool = True,
    full: bool = False,
    epsilon: float = 1e-8,
    reduction: str = "mean",
) -> TensorOp:
    """Return minus the logarithm of the likelihood of counts t, Poisson-distributed.

    Predictions x are logarithms of rates, for ``exp(x) - t x``; or, without `log_input`, rates, for
    ``x - t log(x + epsilon)``. `full` adds Stirling's formula for log(t!) where t is more than 1.
    It is reduced as by `mse_loss`.
    """
    function = "poisson_nll_loss"
    x, t = paired(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    losses = exp(x) - t * x if log_input else x - t * log(x + epsilon)
    if full:
        is_many = greater(t, 1)
        many = where(is_many, t, 1)
        stirling = many * log(many) - many + log(many * (2 * math.pi)) * 0.5
        losses = losses + where(is_many, stirling, 0)
    return reduced(function, losses, reduction)


def gaussian_nll_loss(
    predictions: Any,
    targets: Any,
    variance: Any,
    full: bool = False,
    epsilon: float = 1e-6,
    reduction: str = "mean",
) -> TensorOp:
    """Return minus the logarithm of the likelihood of targets around predicted means.

    That is ``(log(variance) + (x - t)² / variance) / 2``; `full` adds ``log(2 pi) / 2``. The
    variance is broadcast to the predictions, and no less than `epsilon`; below, its gradient is 0.
    The result is reduced as by `mse_loss`. (Nix and Weigend, 1994.)
    """
    function = "gaussian_nll_loss"
    x, t = paired(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    distance = x - t
    limited = maximum(repeated_over(function, "the variance", variance, distance), epsilon)
    losses = (log(limited) + square(distance) / limited) * 0.5
    return reduced(function, losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)


def hinge_loss(scores: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> TensorOp:
    """Return ``max(0, margin - t x)`` for scores x and targets t, which are -1 or 1.

    It is reduced as by `mse_loss`; at the kink the gradient is 0.
    """
    x, t = paired("hinge_loss", scores, targets)
    return reduced("hinge_loss", maximum(0, _margin("hinge_loss", margin) - t * x), reduction)


def multi_margin_loss(
    scores: Any,
    labels: Any,
    p: int = 1,
    margin: float = 1.0,
    weights: Any = None,
    axis: Any = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the mean over classes of ``max(0, margin - x[label] + x)^p``, the label left out.

    The sum over all other classes is divided by the number of all. Classes, labels and weights are
    as for `nll_loss`, but for the mean, which is over the number of labels. At the kink the
    gradient is 0. (Crammer and Singer, 2001.)
    """
    function = "multi_margin_loss"
    labels = as_indices(labels)
    require_order(function, scores, labels)
    (x,) = align(FloatOp, scores)
    position = class_position(function, x, axis)
    labels = labels_for(function, x, labels, position)
    p, margin = whole_number(function, "p", p, 1), _margin(function, margin)
    right = repeated(PickOp(x, labels, position=position), x, (position,))
    excess = maximum(0, margin - right + x)
    others = where(is_label(x, labels, position), 0, excess if p == 1 else power(excess, p))
    losses: TensorOp = MeanOp(others, positions=(position,))
    if weights is not None:
        losses = losses * TakeOp(class_weights(function, weights, x, position), labels, position=0)
    return reduced(function, losses, reduction)


def cosine_similarity(x: Any, y: Any, axis: Any = -1, epsilon: float = 1e-8) -> TensorOp:
    """Return the cosine of the angle between vectors along an axis, or several.

    That is the sum of products of both, each over its length or over epsilon, whichever is larger;
    so 0 for a vector of zeros. Other axes are broadcast. Floats of 16 bits are computed in float32.
    Raises AxesError for an axis that only one has, or with another length.
    """
    given = as_op(x), as_op(y)
    x, y = align(FloatOp, x, y)
    dtype = x.dtype
    positions = explained("cosine_similarity", given, _vector_positions, *given, x.axes, axis)
    wide = (cast(each, accumulator_dtype(dtype)) for each in (x, y))
    x, y = (normalize(each, axes=positions, epsilon=epsilon) for each in wide)
    return cast(SumOp(x * y, positions=positions), dtype)


def _vector_positions(x: TensorOp, y: TensorOp, aligned: Axes, axis: Any) -> tuple[int, ...]:
    """Return the places, among aligned axes, of the axes of vectors, which both operands have."""
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
    x: Any, y: Any, targets: Any, margin: float = 0.0, axis: Any = -1, reduction: str = "mean"
) -> TensorOp:
    """Return 1 - cosine where x and y are to match, by targets 1, else ``max(0, cosine - margin)``.

    The cosine is the `cosine_similarity` along an axis, which targets, 1 or -1, lack. It is reduced
    as by `mse_loss`; at the kink the gradient is 0, and none flows to the targets.
    """
    function = "cosine_embedding_loss"
    cosine = cosine_similarity(x, y, axis)
    is_match = greater(of_axes(function, "the targets", targets, cosine.axes), 0)
    losses = where(is_match, 1 - cosine, maximum(0, cosine - _margin(function, margin)))
    return reduced(function, losses, reduction)


def triplet_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2,
    axis: Any = -1,
    reduction: str = "mean",
) -> TensorOp:
    """Return ``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)``.

    Distances are p-norms of differences along an axis, with p as for `normalize`; a distance of 0
    has gradient 0, and so has the kink. All three have the same axes. It is reduced as by
    `mse_loss`. (Schroff, Kalenichenko and Philbin, 2015.)
    """
    function = "triplet_loss"
    p, margin = checked_order(function, p), _margin(function, margin)
    near, far = (_distance(function, anchor, other, p, axis) for other in (positive, negative))
    return reduced(function, maximum(0, near - far + margin), reduction)


def _distance(function: str, x: Any, y: Any, p: float, axis: Any) -> TensorOp:
    x, y = paired(function, x, y)
    difference = cast(x - y, accumulator_dtype(x.dtype))
    positions = tuple(sorted(explained(function, (x, y), difference.axes.positions, axis)))
    return cast(norm(difference, p, positions), x.dtype)


def _margin(function: str, margin: Any) -> float:
    return checked_number(function, "margin", margin, low=-math.inf)


def dice_loss(
    predictions: Any,
    targets: Any,
    axes: Any = None,
    epsilon: float = 1.0,
    reduction: str = "mean",
) -> TensorOp:
    """Return ``1 - (2 sum(y t) + epsilon) / (sum(y) + sum(t) + epsilon)``, the lack of overlap.

    Sums are over axes, by default over all but those named ``N`` and ``REC``; what is left is
    reduced as by `mse_loss`. Floats of 16 bits are computed in float32. (Milletari, Navab and
    Ahmadi, 2016, without squares.)
    """
    function = "dice_loss"
    y, t = paired(function, predictions, targets)
    epsilon = checked_number(function, "epsilon", epsilon)
    wide = [cast(each, accumulator_dtype(y.dtype)) for each in (y, t)]
    product = wide[0] * wide[1]
    positions = reduced_positions(product, axes, None)
    overlap, *sizes = (
        SumOp(broadcast(each, product.axes), positions=positions) for each in (product, *wide)
    )
    losses = 1 - (overlap * 2 + epsilon) / (sizes[0] + sizes[1] + epsilon)
    return reduced(function, cast(losses, y.dtype), reduction)
