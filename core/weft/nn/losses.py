"""Cross-entropy losses of labels or probabilities, from logits or log probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ops
from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, AxisKey
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import as_op, constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.nn.activation import SigmoidOp
from weft.ops.arguments import (
    aligned_to,
    broadcast_in_dim,
    broadcast_to_losses,
    checked_integer,
    checked_number,
    class_position,
    drop_axis,
    loss_operands,
    predictions_and_targets,
    reduce_losses,
)
from weft.ops.indexing.gathering import as_indices
from weft.ops.pointwise.elementwise import align, build
from weft.ops.reductions import reduction as reductions
from weft.ops.reductions.probabilities import broadcast_back, normalized_positions
from weft.ops.reductions.reduced_axes import OutAxes
from weft.ops.shape.movement import size_of
from weft.support.backports import override

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


class SafeLogOp(ops.InexactOp, CompositeOp):
    """The logarithm of the operand, clipped to at least -50."""

    def reference(self, x: Array) -> Any:
        """Clip, take the logarithm, and clip again."""
        dtype = np.asarray(x).dtype
        floor, lowest = np.asarray(SAFE_LOG_FLOOR, dtype), np.asarray(SAFE_LOG_LOWEST, dtype)
        return np.maximum(np.log(np.maximum(x, floor)), lowest)

    def decompose(self, x: TensorOp) -> TensorOp:
        """Clip, take the logarithm, and clip again: exp(-50) is 0 in float16."""
        return ops.maximum(ops.log(ops.maximum(x, SAFE_LOG_FLOOR)), SAFE_LOG_LOWEST)

    def partials(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Multiply the adjoint by 1 / x above the limit, else by 0."""
        return (
            ops.where(ops.greater(x, SAFE_LOG_FLOOR), delta / ops.maximum(x, SAFE_LOG_FLOOR), 0),
        )


class CrossEntropyLogitsOp(CompositeOp):
    """The cross entropy with logits: the sum of ``-t log(softmax(x))`` over some axes.

    It is finite for finite logits, and correct for targets that do not sum to 1. 16-bit floats are
    computed in float32.

    Attributes
    ----------
    positions
        The positions of the axes of the softmax, which are summed over.
    """

    positions: tuple[int, ...]

    def infer(self) -> tuple[Axes, DType]:
        """Return the other axes; both operands must share axes and dtype."""
        x, t = self.args
        if x.axes != t.axes or x.dtype != t.dtype:
            raise AxesError(f"logits {x.dtype} {x.axes} and targets {t.dtype} {t.axes} differ")
        return Axes(a for i, a in enumerate(x.axes) if i not in self.positions), x.dtype

    def reference(self, x: Array, t: Array) -> Any:
        """Multiply the targets by the log softmax, and sum."""
        x, t = (np.asarray(each, accumulator_dtype(self.dtype)) for each in (x, t))
        below = x - np.max(x, axis=self.positions, keepdims=True, initial=-np.inf)
        total = np.log(np.sum(np.exp(below), axis=self.positions, keepdims=True))
        return np.sum(t * (total - below), axis=self.positions).astype(self.dtype)

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """Multiply the targets by the log softmax, and sum."""
        x, t = self.widened(x, t)
        total = ops.SumOp(
            t * ops.LogSoftmaxOp(x, positions=self.positions), positions=self.positions
        )
        return ops.cast(ops.negative(total), self.dtype)

    def widened(self, *operands: TensorOp) -> tuple[TensorOp, ...]:
        """Return operands in the accumulator dtype."""
        return tuple(ops.cast(each, accumulator_dtype(self.dtype)) for each in operands)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> Any:
        """Return softmax(x) sum(t) - t for the logits, and -log(softmax(x)) for the targets."""
        delta, x, t = self.widened(delta, x, t)
        total = broadcast_back(ops.SumOp(t, positions=self.positions), x, self.positions)
        weight = broadcast_back(delta, x, self.positions)
        dx = weight * (ops.SoftmaxOp(x, positions=self.positions) * total - t)
        dt = ops.negative(weight * ops.LogSoftmaxOp(x, positions=self.positions))
        return ops.cast(dx, self.dtype), ops.cast(dt, self.dtype)


def _label_problem(labels: Array, classes: int) -> str | None:
    """Return the error text for the first label outside the classes; None if there is none."""
    if not labels.size or (labels.min() >= 0 and labels.max() < classes):
        return None
    first = tuple(np.argwhere((labels < 0) | (labels >= classes))[0].tolist())
    at = f" at {first}" if first else ""
    return f"label {labels[first]}{at} is out of range for {classes} classes"


class TakeLabelsOp(ops.TakeAlongAxisOp):
    """A gather by labels, with the number of classes subtracted from negative labels.

    Negative labels are so out of range, and errors show the original label.
    """

    def places(self, indices: Array) -> Any:
        """Return the indices for NumPy; raises IndexOutOfRange with the label."""
        indices = np.asarray(indices)
        count = self.args[0].axes[self.position].length
        labels = np.where(indices < 0, indices + count, indices)
        problem = _label_problem(np.squeeze(labels, self.position), count)
        if problem is not None:
            raise IndexOutOfRange(self.explain(problem))
        return indices.astype(np.intp, copy=False)


class PickOp(ops.IndexedOp, CompositeOp):
    """The element at each label along one axis, which the result lacks.

    Unlike other indices, negative labels are out of range. The gradient compares the index along
    the axis with the label, which is faster than a scatter.
    """

    def _check(self, indices: Array) -> None:
        problem = _label_problem(indices, self.args[0].axes[self.position].length)
        if problem is not None:
            raise IndexOutOfRange(problem)

    def infer(self) -> tuple[Axes, DType]:
        """Check that the labels have the remaining axes."""
        axes, dtype = super().infer()
        labels, others = self.args[1].axes, drop_axis(axes, self.position)
        if labels != others:
            raise AxesError(
                f"labels for {axes} along {axes[self.position]!r} must have {others}, not {labels}"
            )
        return labels, dtype

    @override
    def reference(self, x: Array, labels: Array) -> Any:
        places = np.expand_dims(self.places(labels), self.position)
        taken = np.take_along_axis(x, places, self.position)
        return np.squeeze(taken, self.position)

    def decompose(self, x: TensorOp, labels: TensorOp) -> TensorOp:
        """Move negative labels out of range, and gather."""
        axis = x.axes[self.position]
        labels = ops.cast(labels, dtypes.int64)
        places = ops.where(
            ops.less(labels, 0), labels - size_of(Axes((axis,)), labels.dtype), labels
        )
        before, after = labels.axes[: self.position], labels.axes[self.position :]
        single = Axes((*before, Axis(1, axis.name), *after))
        taken = TakeLabelsOp(x, ops.cast_axes(places, single), position=self.position)
        return ops.cast_axes(taken, self.axes)

    def generate_adjoints(self, delta: TensorOp, x: TensorOp, labels: TensorOp) -> Any:
        """Select the adjoint at the label, and 0 elsewhere."""
        here = is_label(x, labels, self.position)
        return ops.where(here, broadcast_back(delta, x, (self.position,)), 0), None


def is_label(x: TensorOp, labels: TensorOp, position: int) -> TensorOp:
    """Return the mask of the labels along an axis of x."""
    axis = x.axes[position : position + 1]
    count = ops.IotaOp(target_axes=axis, target_dtype=dtypes.int32, position=0)
    return ops.equal(
        broadcast_in_dim(count, x, (position,)),
        broadcast_back(ops.cast(labels, count.dtype), x, (position,)),
    )


class BinaryCrossEntropyLogitsOp(ops.ElementwiseOp, CompositeOp):
    """The binary cross entropy with logits, -t log(y) - (1 - t) log(1 - y) for y = sigmoid(x)."""

    def reference(self, x: Array, t: Array) -> Any:
        """Compute max(x, 0) - x t + log(1 + exp(-abs x)), which does not overflow."""
        return np.maximum(x, 0) - x * t + np.log1p(np.exp(-np.abs(x)))

    def decompose(self, x: TensorOp, t: TensorOp) -> TensorOp:
        """Compute max(x, 0) - x t + log(1 + exp(-abs x)), which does not overflow."""
        return ops.maximum(x, 0) - x * t + ops.log1p(ops.exp(ops.negative(ops.absolute(x))))

    def partials(self, delta: TensorOp, x: TensorOp, t: TensorOp) -> tuple[TensorOp, TensorOp]:
        """Multiply the adjoint by sigmoid(x) - t, and by -x for the targets."""
        slope = (1 - t) * SigmoidOp(x) - t * SigmoidOp(ops.negative(x))
        return delta * slope, ops.negative(delta * x)


ops.SoftmaxOp.bypassed_by = (CrossEntropyLogitsOp, ops.LogSoftmaxOp)
SigmoidOp.bypassed_by = (BinaryCrossEntropyLogitsOp,)


def require_order(function: str, x: TensorLike, targets: TensorOp) -> None:
    """Refuse swapped arguments: integer scores with float targets of other axes."""
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


def labels_for(function: str, x: TensorOp, labels: TensorLike, position: int) -> TensorOp:
    """Return labels as int64, transposed to the axes of x without that of the classes."""
    op = as_indices(labels)
    if not dtypes.is_integer(op.dtype):
        problem = f"labels must be integers, not {op.dtype}: cast() converts them"
        raise DTypeError(explain(function, problem, (x, op)))
    return ops.cast(
        aligned_to(function, "the labels", op, drop_axis(x.axes, position)), dtypes.int64
    )


def safelog(x: TensorLike) -> TensorOp:
    """Return the logarithm, clipped to at least -50.

    The gradient is 0 where x is below exp(-50). Integers count as float32.

    Examples
    --------
    >>> weft.jit(weft.safelog)(np.array([0.0, 1.0]))
    array([-50.,   0.])
    """
    return build(SafeLogOp, x)


def cross_entropy_multi(
    y: TensorLike, t: TensorLike, usebits: bool = False, out_axes: OutAxes | None = None
) -> TensorOp:
    """Return the cross entropy of probabilities: the sum of ``-t log(y)`` over classes.

    If y is a `softmax`, the loss is computed from its logits, which keeps it finite; otherwise by
    `safelog`. For labels and for logits see `cross_entropy`.

    Parameters
    ----------
    y
        Predicted probabilities; integers count as float32.
    t
        Probabilities with the axes of y, named ones in any order, or a scalar.
    usebits
        Whether the unit is bits instead of nats.
    out_axes
        The axes to keep. By default the sum is over those of the softmax; without one over the last
        axis, or of a named tensor over all axes but ``N`` and ``REC``.

    Returns
    -------
    TensorOp
        The losses, with the axes that are kept.

    Raises
    ------
    AxesError
        If the axes of both differ.

    Examples
    --------
    >>> y, t = np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> weft.jit(weft.cross_entropy_multi)(y, t)
    array([0.6931, 0.2877])
    >>> weft.jit(lambda y, t: weft.cross_entropy_multi(y, t, usebits=True))(y, t)
    array([1.   , 0.415])
    """
    y, t = predictions_and_targets("cross_entropy_multi", y, t, ops.InexactOp)
    schema = y.find_schema(ops.Softmax)
    if schema is not None and out_axes is None and t.axes == y.axes:
        result: TensorOp = CrossEntropyLogitsOp(schema.x, t, positions=schema.positions)
    elif schema is not None and t.axes == y.axes:
        logits = schema.x
        inner = t * ops.LogSoftmaxOp(logits, positions=schema.positions)
        result = ops.negative(reductions.sum(inner, out_axes=out_axes))
    else:
        inner = ops.negative(ops.multiply(t, safelog(y)))
        places = None if out_axes is not None else normalized_positions(inner, None)
        result = reductions.sum(inner, places, out_axes)
    return result * (1 / float(np.log(2))) if usebits else result


def cross_entropy_binary_inner(y: TensorLike, t: TensorLike) -> TensorOp:
    """Return the elementwise binary cross entropy, ``-t log(y) - (1 - t) log(1 - y)``.

    If y is a `sigmoid`, it is computed from the logits; otherwise by `safelog`.

    Parameters
    ----------
    y
        Predicted probabilities; integers count as float32.
    t
        Targets from 0 to 1 with the axes of y, named ones in any order, or a scalar.

    Returns
    -------
    TensorOp
        The losses, with the axes of y.

    Raises
    ------
    AxesError
        If the axes of both differ.

    Examples
    --------
    >>> y, t = np.array([0.5, 0.75]), np.array([1.0, 0.0])
    >>> weft.jit(weft.cross_entropy_binary_inner)(y, t)
    array([0.6931, 1.3863])
    """
    return _binary_inner("cross_entropy_binary_inner", y, t)


def _binary_inner(function: str, y: TensorLike, t: TensorLike) -> TensorOp:
    y, t = predictions_and_targets(function, y, t, ops.InexactOp)
    if isinstance(y.meaning, SigmoidOp) and y.axes == t.axes:
        return BinaryCrossEntropyLogitsOp(y.meaning.args[0], t)
    return ops.negative(safelog(y) * t + safelog(1 - y) * (1 - t))


def cross_entropy_binary(y: TensorLike, t: TensorLike, out_axes: OutAxes | None = None) -> TensorOp:
    """Return the sum of the binary cross entropy, ``-t log(y) - (1 - t) log(1 - y)``.

    If y is a `sigmoid`, it is computed from the logits; otherwise by `safelog`.
    `binary_cross_entropy` has a mean and weights.

    Parameters
    ----------
    y
        Predicted probabilities; integers count as float32.
    t
        Targets from 0 to 1 with the axes of y, named ones in any order, or a scalar.
    out_axes
        The axes to keep; by default those named ``N`` and ``REC``.

    Returns
    -------
    TensorOp
        The sums, with the axes that are kept.

    Raises
    ------
    AxesError
        If the axes of both differ.

    Examples
    --------
    >>> y, t = np.array([[0.5, 0.75], [0.5, 0.5]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> weft.jit(weft.cross_entropy_binary)(y, t)
    array(3.4657)
    >>> weft.jit(lambda y, t: weft.cross_entropy_binary(y, t, out_axes=0))(y, t)
    array([2.0794, 1.3863])
    """
    return reductions.sum(_binary_inner("cross_entropy_binary", y, t), out_axes=out_axes)


def class_weights(function: str, weights: TensorLike, x: TensorOp, position: int) -> TensorOp:
    """Return the class weights, broadcast to the class axis and cast to the dtype of x."""
    axes = x.axes[position : position + 1]
    return ops.broadcast(
        ops.cast(aligned_to(function, "the weights", weights, axes), x.dtype), axes
    )


def _by_label(
    function: str,
    logarithms: TensorOp,
    labels: TensorLike,
    weights: TensorLike | None,
    ignore_index: int | None,
    smoothing: float,
    position: int,
    reduction: str,
    dtype: DType,
) -> TensorOp:
    """Return the negative log likelihood of labels, with class weights and label smoothing."""
    labels = labels_for(function, logarithms, labels, position)
    counted: TensorOp | None = None
    factors: TensorOp | None = None
    if ignore_index is not None:
        counted = ops.not_equal(labels, checked_integer(function, "ignore_index", ignore_index))
        labels = ops.where(counted, labels, 0)
    losses = ops.negative(PickOp(logarithms, labels, position=position))
    if weights is not None:
        shares = class_weights(function, weights, logarithms, position)
        factors = ops.TakeOp(shares, labels, position=0)
        losses = losses * factors
        logarithms = logarithms * broadcast_in_dim(shares, logarithms, (position,))
    if smoothing:
        even = ops.negative(ops.MeanOp(logarithms, positions=(position,)))
        losses = losses * (1 - smoothing) + even * smoothing
    if counted is not None:
        losses = ops.where(counted, losses, 0)
        one = constant(1, dtype=losses.dtype)
        factors = ops.where(counted, one if factors is None else factors, 0)
    return reduce_losses(function, losses, reduction, factors, dtype)


def nll_loss(
    log_probabilities: TensorLike,
    labels: TensorLike,
    weights: TensorLike | None = None,
    ignore_index: int | None = None,
    axis: AxisKey | None = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the negative log likelihood of labels: minus the log probability at each of them.

    Parameters
    ----------
    log_probabilities
        The logarithms, as `log_softmax` returns them: (N, C) for N samples and C classes.
    labels
        Integers from 0 to C - 1, with the axes of the logarithms without that of the classes: (N,).
    weights
        A factor for each class, of the shape (C,); by default 1.
    ignore_index
        A label that is left out: its loss is 0, and a mean does not count it. By default there is
        none.
    axis
        The axis of the classes, by position or name; by default that named ``C``, or the last.
    reduction
        ``"mean"`` divides the sum of the losses by the sum of the weights of the labels that are
        not left out; it is NaN if there are none. ``"sum"`` does not divide. ``"none"`` returns the
        loss of each label.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each label, in the dtype of the logarithms. Integers
        count as float32; 16-bit floats are summed in float32.

    Raises
    ------
    AxesError
        If axes do not fit.
    DTypeError
        If labels are not integers.
    ArgumentError
        If the reduction is another word.
    IndexOutOfRange
        In a call, for a label that is not a class; negative ones are none.

    Examples
    --------
    >>> logarithms, labels = np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])
    >>> weft.jit(lambda x, t: weft.nll_loss(x, t, reduction="none"))(logarithms, labels)
    array([0.6931, 0.2877])
    >>> weft.jit(weft.nll_loss)(logarithms, labels)
    array(0.4904)
    """
    labels = as_indices(labels)
    require_order("nll_loss", log_probabilities, labels)
    (x,) = align(ops.FloatOp, log_probabilities)
    position = class_position("nll_loss", x, axis)
    wide = ops.cast(x, accumulator_dtype(x.dtype))
    return _by_label(
        "nll_loss", wide, labels, weights, ignore_index, 0, position, reduction, x.dtype
    )


def cross_entropy(
    logits: TensorLike,
    targets: TensorLike,
    weights: TensorLike | None = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: AxisKey | None = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the cross entropy of targets and the softmax of logits along the axis of classes.

    Integer targets are labels, as for `nll_loss` of the `log_softmax`. Float targets are
    probabilities of classes: the loss is ``-sum(t * log_softmax(x))``. They are used as they are,
    not normalized.

    Parameters
    ----------
    logits
        Scores (N, C) for N samples and C classes; integers count as float32.
    targets
        Labels from 0 to C - 1, with the axes of the logits without that of the classes: (N,). Or
        probabilities, with all axes of the logits: (N, C).
    weights
        A factor for each class, of the shape (C,); by default 1.
    ignore_index
        A label that is left out: its loss is 0, and a mean does not count it. By default there is
        none.
    label_smoothing
        The part of each target, from 0 to 1, that is spread evenly over all classes (Szegedy et
        al., 2016).
    axis
        The axis of the classes, by position or name; by default that named ``C``, or the last.
    reduction
        ``"mean"``, ``"sum"`` or ``"none"``. A mean over labels divides by the sum of the weights of
        those that are not left out, and is NaN if there are none; a mean over probabilities divides
        by the number of samples.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each sample, in the dtype of the logits. 16-bit
        floats are computed in float32.

    Raises
    ------
    AxesError
        If axes do not fit.
    DTypeError
        If float targets have the axes of labels.
    ArgumentError
        If the reduction is another word, `label_smoothing` is out of range, or `ignore_index` is
        given with probabilities.
    IndexOutOfRange
        In a call, for a label that is not a class; negative ones are none.

    Examples
    --------
    >>> logits = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    >>> weft.jit(lambda x, t: weft.cross_entropy(x, t, reduction="none"))(logits, np.array([2, 0]))
    array([1.0986, 0.5514])
    >>> weft.jit(lambda x, t: weft.cross_entropy(x, t, ignore_index=-1))(logits, np.array([2, -1]))
    array(1.0986)
    >>> weft.jit(weft.cross_entropy)(logits, np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]))
    array(0.825)
    """
    function = "cross_entropy"
    targets = as_indices(targets)
    require_order(function, logits, targets)
    (x,) = align(ops.FloatOp, logits)
    position = class_position(function, x, axis)
    smoothing = checked_number(function, "label_smoothing", label_smoothing, high=1)
    if not dtypes.is_inexact(targets.dtype):
        options = (weights, ignore_index, smoothing, position, reduction, x.dtype)
        wide = ops.LogSoftmaxOp(ops.cast(x, accumulator_dtype(x.dtype)), positions=(position,))
        return _by_label(function, wide, targets, *options)
    if _has_axes(targets, drop_axis(x.axes, position)):
        problem = (
            f"labels must be integers, not {targets.dtype}: cast() converts them; float targets "
            f"are class probabilities, with the axes {x.axes} of the logits"
        )
        raise DTypeError(explain(function, problem, (x, targets)))
    if ignore_index is not None:
        problem = f"ignore_index is for labels, not for {targets.dtype} targets: use weights of 0"
        raise ArgumentError(explain(function, problem, (x, targets)))
    x, t, dtype = loss_operands(function, x, targets)
    if smoothing:
        count = size_of(x.axes[position : position + 1], x.dtype)
        t = t * (1 - smoothing) + ops.divide(smoothing, count)
    if weights is not None:
        t = t * broadcast_in_dim(class_weights(function, weights, x, position), x, (position,))
    losses = CrossEntropyLogitsOp(x, t, positions=(position,))
    return reduce_losses(function, losses, reduction, dtype=dtype)


def binary_cross_entropy(
    y: TensorLike, targets: TensorLike, weights: TensorLike | None = None, reduction: str = "mean"
) -> TensorOp:
    """Return the binary cross entropy of probabilities, ``-t log(y) - (1 - t) log(1 - y)``.

    If y is a `sigmoid`, it is computed from the logits; otherwise logarithms are clipped to at
    least -50, as by `safelog`.

    Parameters
    ----------
    y
        Predicted probabilities; integers count as float32.
    targets
        Targets from 0 to 1 with the axes of y, named ones in any order, or a scalar.
    weights
        Factors of the losses, broadcast to them; by default 1.
    reduction
        ``"mean"`` divides the sum by the number of losses, whatever the weights; it is NaN if there
        are none. ``"sum"`` does not divide, and ``"none"`` does not add up.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, with the axes of y.

    Raises
    ------
    AxesError
        If the axes of targets or weights do not fit.
    ArgumentError
        If the reduction is another word.

    Examples
    --------
    >>> y, t = np.array([0.5, 0.75, 0.0]), np.array([1.0, 0.0, 1.0])
    >>> weft.jit(lambda y, t: weft.binary_cross_entropy(y, t, reduction="none"))(y, t)
    array([ 0.6931,  1.3863, 50.    ])
    """
    y, t = predictions_and_targets("binary_cross_entropy", y, targets)
    losses = _binary_inner("binary_cross_entropy", y, t)
    return _weighted("binary_cross_entropy", losses, weights, reduction)


def binary_cross_entropy_with_logits(
    logits: TensorLike,
    targets: TensorLike,
    pos_weight: TensorLike | None = None,
    weights: TensorLike | None = None,
    reduction: str = "mean",
) -> TensorOp:
    """Return the `binary_cross_entropy` of the sigmoid of logits, finite for finite logits.

    Parameters
    ----------
    logits
        Scores; integers count as float32.
    targets
        Targets from 0 to 1 with the axes of the logits, named ones in any order, or a scalar.
    pos_weight
        The weight of positive targets, broadcast to the losses: it multiplies the term ``-t
        log(y)``. Above 1 it raises recall, below 1 precision. By default 1.
    weights
        Factors of the losses, broadcast to them; by default 1.
    reduction
        ``"mean"`` divides the sum by the number of losses, whatever the weights; it is NaN if there
        are none. ``"sum"`` does not divide, and ``"none"`` does not add up.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, with the axes of the logits.

    Raises
    ------
    AxesError
        If the axes of targets or weights do not fit.
    ArgumentError
        If the reduction is another word.

    Examples
    --------
    >>> x, t = np.array([0.0, 100.0, -2.0]), np.array([1.0, 0.0, 0.0])
    >>> loss = weft.binary_cross_entropy_with_logits
    >>> weft.jit(lambda x, t: loss(x, t, reduction="none"))(x, t)
    array([  0.6931, 100.    ,   0.1269])
    >>> weft.jit(lambda x, t: loss(x, t, pos_weight=3.0, reduction="none"))(x, t)
    array([  2.0794, 100.    ,   0.1269])
    """
    function = "binary_cross_entropy_with_logits"
    x, t = predictions_and_targets(function, logits, targets)
    if pos_weight is None:
        return _weighted(function, BinaryCrossEntropyLogitsOp(x, t), weights, reduction)
    one, zero = (constant(value, dtype=x.dtype) for value in (1, 0))
    positive = BinaryCrossEntropyLogitsOp(x, one) * broadcast_to_losses(
        function, "pos_weight", pos_weight, x
    )
    losses = t * positive + (1 - t) * BinaryCrossEntropyLogitsOp(x, zero)
    return _weighted(function, losses, weights, reduction)


def _weighted(
    function: str, losses: TensorOp, weights: TensorLike | None, reduction: str
) -> TensorOp:
    if weights is not None:
        losses = losses * broadcast_to_losses(function, "weights", weights, losses)
    return reduce_losses(function, losses, reduction)


def sigmoid_focal_loss(
    logits: TensorLike,
    targets: TensorLike,
    alpha: float | None = 0.25,
    gamma: float = 2.0,
    reduction: str = "mean",
) -> TensorOp:
    """Return the focal loss: the binary cross entropy of logits times ``(1 - p) ** gamma``.

    Here p is the probability that the sigmoid of the logits gives to the target, so easy examples
    count little. Where p is rounded to 1, the loss and its gradient are 0. (Lin et al., 2017.)

    Parameters
    ----------
    logits
        Scores; integers count as float32.
    targets
        Targets from 0 to 1 with the axes of the logits, named ones in any order, or a scalar.
    alpha
        The weight of targets 1, from 0 to 1; ``1 - alpha`` is that of targets 0. None for no
        weights.
    gamma
        The exponent, at least 0; with 0 the loss is the weighted cross entropy.
    reduction
        ``"mean"``, over all losses, ``"sum"`` or ``"none"``.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the losses, with the axes and the dtype of the logits. 16-bit
        floats are computed in float32.

    Raises
    ------
    AxesError
        If the axes of both differ.
    ArgumentError
        If the reduction is another word, or `alpha` or `gamma` is out of range.

    Examples
    --------
    >>> x, t = np.array([0.0, 1.0, -1.0]), np.array([1.0, 1.0, 1.0])
    >>> weft.jit(lambda x, t: weft.sigmoid_focal_loss(x, t, reduction="none"))(x, t)
    array([0.0433, 0.0057, 0.1755])
    """
    function = "sigmoid_focal_loss"
    x, t, dtype = loss_operands(function, logits, targets)
    gamma = checked_number(function, "gamma", gamma)
    losses: TensorOp = BinaryCrossEntropyLogitsOp(x, t)
    if gamma:
        wrong = SigmoidOp(ops.negative(x)) * t + SigmoidOp(x) * (1 - t)
        # If a sigmoid is rounded to 0, powers below 1 have an infinite derivative.
        is_zero = ops.equal(wrong, 0)
        losses = losses * ops.where(is_zero, 0, ops.power(ops.where(is_zero, 1, wrong), gamma))
    if alpha is not None:
        alpha = checked_number(function, "alpha", alpha, high=1)
        losses = losses * (t * alpha + (1 - t) * (1 - alpha))
    return reduce_losses(function, losses, reduction, dtype=dtype)


def kl_div(
    log_predictions: TensorLike,
    targets: TensorLike,
    log_target: bool = False,
    reduction: str = "mean",
) -> TensorOp:
    """Return the Kullback-Leibler divergence, ``t * (log(t) - x)``, of targets and log predictions.

    The divergence of two distributions is the sum over their classes (Kullback and Leibler, 1951).
    A target of 0 gives a loss of 0 with gradient 0.

    Parameters
    ----------
    log_predictions
        Log probabilities x; integers count as float32.
    targets
        Probabilities t with the axes of the predictions, named ones in any order, or a scalar.
    log_target
        Whether the targets are log probabilities, too.
    reduction
        ``"mean"`` divides by the number of elements, ``"batchmean"`` by the length of the axis
        named ``N``, or of the first. ``"sum"`` does not divide, and ``"none"`` does not add up.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` the elements, with the axes and the dtype of the predictions.

    Raises
    ------
    AxesError
        If the axes of both differ.
    ArgumentError
        If the reduction is another word.

    Examples
    --------
    >>> x, t = np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([[1.0, 0.0], [0.25, 0.75]])
    >>> weft.jit(lambda x, t: weft.kl_div(x, t, reduction="batchmean"))(x, t)
    array(0.3466)
    """
    x, t, dtype = loss_operands("kl_div", log_predictions, targets)
    share = ops.exp(t) if log_target else t
    is_zero = ops.equal(share, 0)
    logarithm = t if log_target else ops.log(ops.where(is_zero, 1, t))
    losses = share * ops.where(is_zero, 0, logarithm - x)
    if reduction != "batchmean":
        return reduce_losses("kl_div", losses, reduction, dtype=dtype)
    samples = losses.axes.batch_axes() if losses.axes.is_named else losses.axes[:1]
    total = reduce_losses("kl_div", losses, "sum")
    return ops.cast(ops.divide(total, size_of(samples, total.dtype)), dtype)
