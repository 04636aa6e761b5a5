"""Cross-entropy losses, from labels or probabilities, logits or logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis
from weft.ir.dtypes import DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorOp
from weft.ops import reduction as reductions
from weft.ops.activation import SigmoidOp
from weft.ops.arguments import (
    checked_number,
    class_position,
    of_axes,
    paired,
    reduced,
    repeated_over,
    spread,
    whole_number,
    without,
)
from weft.ops.comparison import equal, greater, less, maximum, not_equal, where
from weft.ops.elementwise import (
    ElementwiseOp,
    FloatOp,
    InexactOp,
    absolute,
    align,
    build,
    cast,
    divide,
    multiply,
    negative,
)
from weft.ops.gathering import IndexedOp, TakeAlongAxisOp, TakeOp, as_indices
from weft.ops.math import exp, log, log1p, power
from weft.ops.movement import IotaOp, broadcast, cast_axes, size_of
from weft.ops.probabilities import (
    LogSoftmaxOp,
    Softmax,
    SoftmaxOp,
    normalised_positions,
    repeated,
)
from weft.ops.reduction import MeanOp, SumOp

__all__ = [
    "BinaryCrossEntropyLogitsOp",
    "CrossEntropyLogitsOp",
    "PickOp",
    "SafeLogOp",
    "TakeLabelsOp",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "cross_entropy_binary",
    "cross_entropy_binary_inner",
    "cross_entropy_multi",
    "kl_div",
    "nll_loss",
    "safelog",
    "sigmoid_focal_loss",
]

SAFE_LOG_LOWEST = -50.0
SAFE_LOG_FLOOR = float(np.exp(SAFE_LOG_LOWEST))


class SafeLogOp(InexactOp, CompositeOp):
    """The logarithm of the operand or of exp(-50), whichever is larger; so never below -50."""

    def reference(self, x: Any) -> Any:
        """Limit, then take the logarithm."""
        dtype = np.asarray(x).dtype
        floor, lowest = np.asarray(SAFE_LOG_FLOOR, dtype), np.asarray(SAFE_LOG_LOWEST, dtype)
        return np.maximum(np.log(np.maximum(x, floor)), lowest)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Limit, take the logarithm, and limit it again: exp(-50) is 0 in float16."""
        return maximum(log(maximum(x, SAFE_LOG_FLOOR)), SAFE_LOG_LOWEST)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """1 / x above the limit, else 0."""
        return (where(greater(x, SAFE_LOG_FLOOR), delta / maximum(x, SAFE_LOG_FLOOR), 0),)


class CrossEntropyLogitsOp(CompositeOp):
    """The sum over some axes of ``-t log(softmax(x))``, computed from the logits x.

    Finite for any finite logits, and right for targets that do not sum to 1. Floats of 16 bits are
    computed in float32.

    Attributes
    ----------
    positions
        The places of the axes that the softmax normalises; the result lacks them.
    """

    positions: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Drop the normalised axes; both operands share axes and dtype."""
        x, t = self.args
        if x.axes != t.axes or x.dtype != t.dtype:
            raise AxesError(f"logits {x.dtype} {x.axes} and targets {t.dtype} {t.axes} differ")
        return Axes(a for i, a in enumerate(x.axes) if i not in self.positions), x.dtype

    def reference(self, x: Any, t: Any) -> Any:
        """Multiply the targets with the logarithms of the softmax."""
        x, t = (np.asarray(each, accumulator_dtype(self.dtype)) for each in (x, t))
        below = x - np.max(x, axis=self.positions, keepdims=True)
        total = np.log(np.sum(np.exp(below), axis=self.positions, keepdims=True))
        return np.sum(t * (total - below), axis=self.positions).astype(self.dtype)

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """Multiply the targets with the logarithms of the softmax."""
        x, t = self.widened(x, t)
        total = SumOp(t * LogSoftmaxOp(x, positions=self.positions), positions=self.positions)
        return cast(negative(total), self.dtype)

    def widened(self, *operands: TensorOp) -> tuple[TensorOp, ...]:
        """Return operands in the dtype in which sums are taken."""
        return tuple(cast(each, accumulator_dtype(self.dtype)) for each in operands)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> Any:
        """Softmax times the sum of targets minus targets; -log(softmax) for the targets."""
        delta, x, t = self.widened(delta, x, t)
        total = repeated(SumOp(t, positions=self.positions), x, self.positions)
        spread = repeated(delta, x, self.positions)
        dx = spread * (SoftmaxOp(x, positions=self.positions) * total - t)
        dt = negative(spread * LogSoftmaxOp(x, positions=self.positions))
        return cast(dx, self.dtype), cast(dt, self.dtype)


def _label_problem(labels: Any, classes: int) -> str | None:
    """Return what is wrong with the first label that is none of the classes."""
    if not labels.size or (labels.min() >= 0 and labels.max() < classes):
        return None
    first = tuple(np.argwhere((labels < 0) | (labels >= classes))[0].tolist())
    at = f" at {first}" if first else ""
    return f"label {labels[first]}{at} is out of range for {classes} classes"


class TakeLabelsOp(TakeAlongAxisOp):
    """One element along an axis by its label, less the number of classes where that is below 0.

    So no label counts from the end, and an error can name each.
    """

    def places(self, indices: Any) -> Any:
        """Return the indices as NumPy takes them; raises IndexOutOfRange that names a label."""
        indices = np.asarray(indices)
        count = self.args[0].axes[self.position].length
        labels = np.where(indices < 0, indices + count, indices)
        problem = _label_problem(np.squeeze(labels, self.position), count)
        if problem is not None:
            raise IndexOutOfRange(self.explain(problem))
        return indices.astype(np.intp, copy=False)


class PickOp(IndexedOp, CompositeOp):
    """For each label, the element at that place along one axis, which the result lacks.

    Labels count from 0; unlike other indices, those below are out of range. The gradient compares
    each place along the axis with the label, which is faster than a scatter.
    """

    def _check(self, indices: Any) -> None:
        problem = _label_problem(indices, self.args[0].axes[self.position].length)
        if problem is not None:
            raise IndexOutOfRange(problem)

    def infer(self) -> tuple[Axes, DType]:
        """Check that the labels have the other axes."""
        axes, dtype = super().infer()
        labels, others = self.args[1].axes, without(axes, self.position)
        if labels != others:
            raise AxesError(
                f"labels for {axes} along {axes[self.position]!r} have {others}, not {labels}"
            )
        return labels, dtype

    def reference(self, x: Any, labels: Any) -> Any:
        """Take."""
        places = np.expand_dims(self.places(labels), self.position)
        taken = np.take_along_axis(x, places, self.position)
        return np.squeeze(taken, self.position)

    def decompose(self, x: TensorOp, labels: TensorOp) -> TensorOp:
        """Move labels below 0 out of range, and take."""
        axis = x.axes[self.position]
        labels = cast(labels, dtypes.int64)
        places = where(less(labels, 0), labels - size_of(Axes((axis,)), labels.dtype), labels)
        before, after = labels.axes[: self.position], labels.axes[self.position :]
        single = Axes((*before, Axis(1, axis.name), *after))
        taken = TakeLabelsOp(x, cast_axes(places, single), position=self.position)
        return cast_axes(taken, self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, labels: TensorOp) -> Any:
        """Put the adjoint where the label is."""
        here = is_label(x, labels, self.position)
        return where(here, repeated(delta, x, (self.position,)), 0), None


def is_label(x: TensorOp, labels: TensorOp, position: int) -> TensorOp:
    """Return, for each place along an axis of x, whether it is the label."""
    axis = x.axes[position : position + 1]
    count = IotaOp(target_axes=axis, target_dtype=dtypes.int32, position=0)
    return equal(spread(count, x, (position,)), repeated(cast(labels, count.dtype), x, (position,)))


class BinaryCrossEntropyLogitsOp(ElementwiseOp, CompositeOp):
    """-t log(y) - (1 - t) log(1 - y) for y = sigmoid(x), computed from x without overflow."""

    def reference(self, x: Any, t: Any) -> Any:
        """max(x, 0) - x t + log(1 + exp(-abs x))."""
        return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """max(x, 0) - x t + log(1 + exp(-abs x))."""
        return maximum(x, 0) - x * t + log1p(exp(negative(absolute(x))))

    def partials(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Sigmoid(x) - t, and -x for the targets."""
        slope = (1 - t) * SigmoidOp(x) - t * SigmoidOp(negative(x))
        return delta * slope, negative(delta * x)


SoftmaxOp.bypassed_by = (CrossEntropyLogitsOp, LogSoftmaxOp)
SigmoidOp.bypassed_by = (BinaryCrossEntropyLogitsOp,)


def require_order(function: str, x: Any, targets: TensorOp) -> None:
    """Refuse integers in the place of scores beside floats of other axes as targets."""
    x = as_op(x)
    is_swapped = dtypes.is_integer(x.dtype) and dtypes.is_inexact(targets.dtype)
    if is_swapped and not _has_axes(targets, x.axes):
        problem = (
            f"labels are the second argument, not the first: {x.dtype} {x.axes} comes before "
            f"{targets.dtype} {targets.axes}"
        )
        raise DTypeError(explain(function, problem, (x, targets)))


def _has_axes(x: TensorOp, axes: Axes) -> bool:
    return x.axes == axes or (x.axes.is_named and axes.is_named and x.axes.is_equal_set(axes))


def labels_for(function: str, x: TensorOp, labels: Any, position: int) -> TensorOp:
    """Return labels as int64, with the axes of x but that of the classes, in its order."""
    op = as_indices(labels)
    if not dtypes.is_integer(op.dtype):
        problem = f"labels must be integers, not {op.dtype}: cast() makes some"
        raise DTypeError(explain(function, problem, (x, op)))
    return cast(of_axes(function, "the labels", op, without(x.axes, position)), dtypes.int64)


def safelog(x: Any) -> TensorOp:
    """Return the logarithm, limited below at -50."""
    return build(SafeLogOp, x)


def cross_entropy_multi(y: Any, t: Any, usebits: bool = False, out_axes: Any = None) -> TensorOp:
    """Return the sum of ``-t log(y)`` over classes, in nats or, with `usebits`, in bits.

    For the result of `softmax` it is computed from the logits, finite at any of them, and summed
    over the axes that the softmax normalised; otherwise from `safelog`, over the default axes of
    `softmax`. `out_axes` names the axes to keep instead. Targets have the axes of y in any order,
    or none; raises AxesError for others.
    """
    y, t = paired("cross_entropy_multi", y, t, InexactOp)
    schema = y.find_schema(Softmax)
    if schema is not None and out_axes is None and t.axes == y.axes:
        result: TensorOp = CrossEntropyLogitsOp(schema.x, t, positions=schema.positions)
    elif schema is not None and t.axes == y.axes:
        logits = schema.x
        inner = t * LogSoftmaxOp(logits, positions=schema.positions)
        result = negative(reductions.sum(inner, out_axes=out_axes))
    else:
        inner = negative(multiply(t, safelog(y)))
        places = None if out_axes is not None else normalised_positions(inner, None)
        result = reductions.sum(inner, places, out_axes)
    return result * (1 / float(np.log(2))) if usebits else result


def cross_entropy_binary_inner(y: Any, t: Any) -> TensorOp:
    """Return ``-t log(y) - (1 - t) log(1 - y)``, from the logits where y is a sigmoid.

    Targets have the axes of y in any order, or none; raises AxesError for others.
    """
    return _binary_inner("cross_entropy_binary_inner", y, t)


def _binary_inner(function: str, y: Any, t: Any) -> TensorOp:
    y, t = paired(function, y, t, InexactOp)
    if isinstance(y.meaning, SigmoidOp) and y.axes == t.axes:
        return BinaryCrossEntropyLogitsOp(y.meaning.args[0], t)
    return negative(safelog(y) * t + safelog(1 - y) * (1 - t))


def cross_entropy_binary(y: Any, t: Any, out_axes: Any = None) -> TensorOp:
    """Return the binary cross entropy summed over the default axes, or all but `out_axes`.

    Targets have the axes of y in any order, or none; raises AxesError for others.
    """
    return reductions.sum(_binary_inner("cross_entropy_binary", y, t), out_axes=out_axes)


def class_weights(function: str, weights: Any, x: TensorOp, position: int) -> TensorOp:
    """Return one weight for each class along an axis of x, in its dtype."""
    axes = x.axes[position : position + 1]
    return broadcast(cast(of_axes(function, "the weights", weights, axes), x.dtype), axes)


def _by_label(
    function: str,
    logarithms: TensorOp,
    labels: Any,
    weights: Any,
    ignore_index: Any,
    smoothing: float,
    position: int,
    reduction: str,
) -> TensorOp:
    """Return minus the logarithm at each label, weighted, and mixed with the mean over classes."""
    labels = labels_for(function, logarithms, labels, position)
    counted: TensorOp | None = None
    factors: TensorOp | None = None
    if ignore_index is not None:
        counted = not_equal(labels, whole_number(function, "ignore_index", ignore_index))
        labels = where(counted, labels, 0)
    losses = negative(PickOp(logarithms, labels, position=position))
    if weights is not None:
        shares = class_weights(function, weights, logarithms, position)
        factors = TakeOp(shares, labels, position=0)
        losses = losses * factors
        logarithms = logarithms * spread(shares, logarithms, (position,))
    if smoothing:
        even = negative(MeanOp(logarithms, positions=(position,)))
        losses = losses * (1 - smoothing) + even * smoothing
    if counted is not None:
        losses = where(counted, losses, 0)
        one = constant(1, dtype=losses.dtype)
        factors = where(counted, one if factors is None else factors, 0)
    return reduced(function, losses, reduction, factors)


def nll_loss(
    log_probabilities: Any,
    labels: Any,
    weights: Any = None,
    ignore_index: int | None = None,
    axis: Any = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return minus the logarithm of the probability of each label: the negative log-likelihood.

    Classes are along `axis`: by default the axis named ``C``, or the last place, as for
    `log_softmax`. Labels are integers from 0, with all other axes; a call that computes the loss
    raises IndexOutOfRange for one out of range. A label equal to `ignore_index` counts for nothing.

    `weights`, one for each class, multiply the losses of their class. `reduction` is ``"mean"``,
    over the sum of the weights of all labels that count (NaN if that is 0), ``"sum"``, or
    ``"none"`` for a loss for each label.
    """
    labels = as_indices(labels)
    require_order("nll_loss", log_probabilities, labels)
    (x,) = align(FloatOp, log_probabilities)
    position = class_position("nll_loss", x, axis)
    return _by_label("nll_loss", x, labels, weights, ignore_index, 0, position, reduction)


def cross_entropy(
    logits: Any,
    targets: Any,
    weights: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: Any = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the cross entropy of targets and the softmax of logits along the axis of classes.

    Integer targets are labels, and all is as for `nll_loss` of the `log_softmax`. Float targets are
    shares of the classes, with the axes of the logits: the loss is ``-sum(t log softmax(x))``, each
    class with its weight, and the mean is over the number of losses. Shares that do not sum to 1
    are taken as they are; `ignore_index` is for labels only.

    With `label_smoothing`, that part of each target is spread evenly over all classes (Szegedy and
    others, 2016).
    """
    function = "cross_entropy"
    targets = as_indices(targets)
    require_order(function, logits, targets)
    (x,) = align(FloatOp, logits)
    position = class_position(function, x, axis)
    smoothing = checked_number(function, "label_smoothing", label_smoothing, high=1)
    if not dtypes.is_inexact(targets.dtype):
        x = LogSoftmaxOp(x, positions=(position,))
        options = (weights, ignore_index, smoothing, position, reduction)
        return _by_label(function, x, targets, *options)
    if _has_axes(targets, without(x.axes, position)):
        problem = (
            f"labels must be integers, not {targets.dtype}: cast() makes some; float targets are "
            f"shares of the classes, with the axes {x.axes} of the logits"
        )
        raise DTypeError(explain(function, problem, (x, targets)))
    if ignore_index is not None:
        problem = f"ignore_index is for labels, but the targets are {targets.dtype}: weigh them 0"
        raise ArgumentError(explain(function, problem, (x, targets)))
    x, t = paired(function, x, targets)
    if smoothing:
        count = size_of(x.axes[position : position + 1], x.dtype)
        t = t * (1 - smoothing) + divide(smoothing, count)
    if weights is not None:
        t = t * spread(class_weights(function, weights, x, position), x, (position,))
    return reduced(function, CrossEntropyLogitsOp(x, t, positions=(position,)), reduction)


def binary_cross_entropy(
    y: Any, targets: Any, weights: Any = None, reduction: str = "mean"
) -> TensorOp:
    """Return ``-t log(y) - (1 - t) log(1 - y)`` for probabilities y and targets t.

    Where y is a `sigmoid` it is computed from the logits; else logarithms are limited at -50, as by
    `safelog`. Weights are broadcast to the losses; the mean is over their number.
    """
    y, t = paired("binary_cross_entropy", y, targets)
    losses = _binary_inner("binary_cross_entropy", y, t)
    return _weighted("binary_cross_entropy", losses, weights, reduction)


def binary_cross_entropy_with_logits(
    logits: Any,
    targets: Any,
    pos_weight: Any = None,
    weights: Any = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the `binary_cross_entropy` of the sigmoid of logits, finite for any finite logits.

    `pos_weight`, broadcast to the losses, multiplies the part with t: above 1 it raises recall,
    below 1 precision.
    """
    function = "binary_cross_entropy_with_logits"
    x, t = paired(function, logits, targets)
    if pos_weight is None:
        return _weighted(function, BinaryCrossEntropyLogitsOp(x, t), weights, reduction)
    one, zero = (constant(value, dtype=x.dtype) for value in (1, 0))
    positive = BinaryCrossEntropyLogitsOp(x, one) * repeated_over(
        function, "pos_weight", pos_weight, x
    )
    losses = t * positive + (1 - t) * BinaryCrossEntropyLogitsOp(x, zero)
    return _weighted(function, losses, weights, reduction)


def _weighted(function: str, losses: TensorOp, weights: Any, reduction: str) -> TensorOp:
    if weights is not None:
        losses = losses * repeated_over(function, "weights", weights, losses)
    return reduced(function, losses, reduction)


def sigmoid_focal_loss(
    logits: Any,
    targets: Any,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> TensorOp:
    """Return the binary cross entropy of logits times (1 - p)^gamma, p being the target's share.

    So what is easy counts little. `alpha`, from 0 to 1 or None, weighs the targets 1, and 1 - alpha
    the targets 0. Where p is rounded to 1 the loss and its gradient are 0. (Lin and others, 2017.)
    """
    function = "sigmoid_focal_loss"
    x, t = paired(function, logits, targets)
    gamma = checked_number(function, "gamma", gamma)
    losses: TensorOp = BinaryCrossEntropyLogitsOp(x, t)
    if gamma:
        wrong = SigmoidOp(negative(x)) * t + SigmoidOp(x) * (1 - t)
        # Where a sigmoid is rounded to 0, powers below 1 have an infinite slope.
        is_zero = equal(wrong, 0)
        losses = losses * where(is_zero, 0, power(where(is_zero, 1, wrong), gamma))
    if alpha is not None:
        alpha = checked_number(function, "alpha", alpha, high=1)
        losses = losses * (t * alpha + (1 - t) * (1 - alpha))
    return reduced(function, losses, reduction)


def kl_div(
    log_predictions: Any, targets: Any, log_target: bool = False, reduction: str = "mean"
) -> TensorOp:
    """Return the divergence ``t (log(t) - x)`` of targets t from predictions with logarithms x.

    With `log_target` the targets are logarithms too. The sum over classes is the divergence of
    Kullback and Leibler (1951); so besides the usual reductions there is ``"batchmean"``, the sum
    over the length of the axis named ``N``, or of the first. A target of 0 gives 0, with gradient
    0, where the slope is infinite.
    """
    x, t = paired("kl_div", log_predictions, targets)
    share = exp(t) if log_target else t
    is_zero = equal(share, 0)
    logarithm = t if log_target else log(where(is_zero, 1, t))
    losses = share * where(is_zero, 0, logarithm - x)
    if reduction != "batchmean":
        return reduced("kl_div", losses, reduction)
    samples = losses.axes.batch_axes() if losses.axes.is_named else losses.axes[:1]
    total = reduced("kl_div", cast(losses, accumulator_dtype(losses.dtype)), "sum")
    return cast(divide(total, size_of(samples, total.dtype)), losses.dtype)
