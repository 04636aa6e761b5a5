"""The loss of connectionist temporal classification (CTC).

A network gives class probabilities at each time; one class is the blank. A path has a class for
each time. Merging repeats and then dropping blanks turns a path into a label sequence. The loss is
the negative log probability of all paths for the given labels. (Graves, Fernandez, Gomez and
Schmidhuber, 2006.)

The states of the recursion are the labels with blanks before, between and after them. From one time
to the next a path keeps its state, advances by one, or skips a blank between different labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Unpack

import numpy as np

from weft import ops
from weft.errors import AxesError, DTypeError, IndexOutOfRange
from weft.ir import dtypes
from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.op import explain
from weft.ir.storage import constant
from weft.ir.tensor import CompositeOp, TensorLike, TensorOp
from weft.ops.arguments import aligned_to, broadcast_in_dim, checked_integer, reduce_losses
from weft.ops.indexing.gathering import as_indices
from weft.ops.pointwise.elementwise import align
from weft.ops.products.roles import LabelRoles, RoleSignature, by_roles
from weft.ops.shape.movement import size_of
from weft.support.backports import override

__all__ = ["CtcLossOp", "CtcOp", "CtcPosteriorOp", "ctc_loss"]

IMPOSSIBLE = -1e30
"""A finite stand-in for log 0: sums of it stay finite, and far below other logarithms."""


class Trellis(NamedTuple):
    """The operands of the recursions, for T times, N samples and S states.

    Attributes
    ----------
    classes
        The class of each state, (N, S).
    emissions
        The log probability of each state at each time, (T, N, S).
    is_on
        Whether a time is within the length of a sample, (T, N, S).
    skips
        0 for states reachable from the state two before, else `IMPOSSIBLE`, (N, S).
    starts, ends
        0 for the initial state and for final states, else `IMPOSSIBLE`, (N, S).
    """

    classes: TensorOp
    emissions: TensorOp
    is_on: TensorOp
    skips: TensorOp
    starts: TensorOp
    ends: TensorOp

    def at(self, time: int) -> tuple[TensorOp, TensorOp]:
        """Return the mask of samples within their length at a time, and the emissions."""
        return ops.tensor_slice(self.is_on, (time,)), ops.tensor_slice(self.emissions, (time,))

    def forward(self) -> list[TensorOp]:
        """Return the forward log probabilities of each state, initially and after each time."""
        found = [self.starts]
        for time in range(self.emissions.axes[0].length):
            is_on, emission = self.at(time)
            states = found[-1]
            reached = _log_sum(states, _shifted(states, 1), _shifted(states, 2) + self.skips)
            found.append(ops.where(is_on, reached + emission, states))
        return found

    def backward(self) -> list[TensorOp]:
        """Return the backward log probabilities of each state, after each time."""
        found, skips = [self.ends], _shifted(self.skips, -2)
        for time in range(self.emissions.axes[0].length - 1, 0, -1):
            is_on, emission = self.at(time)
            states = found[-1] + emission
            reached = _log_sum(states, _shifted(states, -1), _shifted(states, -2) + skips)
            found.append(ops.where(is_on, reached, found[-1]))
        return found[::-1]

    def total(self, last: TensorOp) -> TensorOp:
        """Return the log probability of all paths, (N,), from the last forward probabilities."""
        ended = last + self.ends
        top = ops.stop_gradient(ops.MaxOp(ended, positions=(1,)))
        powers = ops.exp(ended - broadcast_in_dim(top, ended, (0,)))
        return ops.log(ops.SumOp(powers, positions=(1,))) + top


def _shifted(x: TensorOp, by: int, fill: float = IMPOSSIBLE) -> TensorOp:
    """Return values shifted to later states, or with a negative number to earlier ones."""
    widths, kept = ((by, 0), slice(0, -by)) if by > 0 else ((0, -by), slice(-by, None))
    return ops.tensor_slice(ops.pad(x, [(0, 0), widths], fill), (slice(None), kept))


def _log_sum(*parts: TensorOp) -> TensorOp:
    """Return the logarithm of the sum of exponentials; the maximum gets no gradient."""
    top = parts[0]
    for part in parts[1:]:
        top = ops.maximum(top, part)
    top = ops.stop_gradient(top)
    total = ops.exp(parts[0] - top)
    for part in parts[1:]:
        total = total + ops.exp(part - top)
    return ops.log(total) + top


class CtcOp(CompositeOp):
    """The base of the CTC loss and of its gradient.

    Operands are log probabilities (T, N, C), labels (N, L), input lengths (N,) and label lengths
    (N,); all but the first are int64. 16-bit floats are computed in float32.

    Attributes
    ----------
    blank
        The class of the blank.
    """

    blank: int
    may_raise = True

    @override
    def infer(self) -> tuple[Axes, DType]:
        x, labels, times, counts = self.args
        ranks = [each.rank for each in self.args]
        if ranks != [3, 2, 1, 1] or any(each.axes.is_named for each in self.args):
            raise AxesError("takes positional axes: (T, N, C), labels (N, L), and two counts (N,)")
        if any(each.axes[0] != x.axes[1] for each in (labels, times, counts)):
            raise AxesError(f"{x.axes[1]} samples need as many labels and counts")
        if any(each.dtype != dtypes.int64 for each in (labels, times, counts)):
            raise DTypeError("labels and counts must be int64")
        classes = x.axes[2].length
        if isinstance(classes, int) and not 0 <= self.blank < classes:
            raise AxesError(f"the blank {self.blank} is not one of {classes} classes")
        return x.axes, x.dtype

    def trellis(self, x: TensorOp, labels: TensorOp, times: TensorOp, counts: TensorOp) -> Trellis:
        """Return the operands of the recursions."""
        lengths = (x.axes[0].length, labels.axes[1].length)
        if not all(isinstance(length, int) for length in lengths):
            raise AxesError(
                f"the recursion needs known numbers of times and labels, not {lengths}: give "
                "computation(axes=...) their lengths, or make placeholders with known ones"
            )
        classes = self._states(x, labels, counts)
        place = _count_along(classes.axes, 1)
        last = broadcast_in_dim(counts, classes, (0,)) * 2
        is_end = ops.logical_or(ops.equal(place, last), ops.equal(place, last - 1))
        before = _shifted(classes, 2, self.blank)
        is_skip = ops.logical_and(
            ops.not_equal(classes, self.blank), ops.not_equal(classes, before)
        )
        wide = ops.cast(x, accumulator_dtype(x.dtype))
        zero = constant(0, dtype=wide.dtype)
        skips, starts, ends = (
            ops.where(each, zero, IMPOSSIBLE) for each in (is_skip, ops.equal(place, 0), is_end)
        )
        emissions = _emissions(wide, classes)
        is_on = ops.less(_count_along(emissions.axes, 0), broadcast_in_dim(times, emissions, (1,)))
        return Trellis(classes, emissions, is_on, skips, starts, ends)

    def _states(self, x: TensorOp, labels: TensorOp, counts: TensorOp) -> TensorOp:
        """Return the class of each state: blanks, with the labels between them."""
        samples, length = labels.axes.lengths
        counted = ops.less(_count_along(labels.axes, 1), broadcast_in_dim(counts, labels, (0,)))
        beyond = labels - size_of(x.axes[2:], labels.dtype)
        labels = ops.where(counted, ops.where(ops.less(labels, 0), beyond, labels), self.blank)
        blank = constant(self.blank, dtype=labels.dtype)
        blanks = ops.broadcast(blank, make_axes((samples, 2 * length + 1)))
        return ops.update_slice(blanks, (slice(None), slice(1, None, 2)), labels)

    def recursions(
        self, x: Array, labels: Array, times: Array, counts: Array
    ) -> Iterator[ForwardBackward]:
        """Yield the NumPy recursion of each sample with a valid label length."""
        for sample, (time, count) in enumerate(zip(times, counts, strict=True)):
            if 0 <= count <= labels.shape[1]:
                classes = np.full(2 * count + 1, self.blank)
                classes[1::2] = labels[sample, :count]
                if not np.all((classes >= 0) & (classes < x.shape[2])):
                    problem = f"a label of sample {sample} is not one of {x.shape[2]} classes"
                    raise IndexOutOfRange(self.explain(problem))
                yield ForwardBackward(
                    sample, classes, x[: max(time, 0), sample, classes], self.blank
                )


class ForwardBackward:
    """The forward and backward recursions in NumPy for one sample, cut to its lengths.

    Attributes
    ----------
    sample, classes
        The index of the sample, and the class of each state.
    ahead, back
        The forward log probability of each state, initially and after each time; and the backward
        one, after each time.
    total
        The log probability of all paths.
    """

    def __init__(self, sample: int, classes: Array, emissions: Array, blank: int) -> None:
        self.sample, self.classes = sample, classes
        self.ahead, _ = _forward(emissions, classes, blank)
        _, back = _forward(emissions[::-1, ::-1], classes[::-1], blank)
        self.back = back[::-1, ::-1]
        self.total = np.logaddexp.reduce(self.ahead[-1, -2:])


def _forward(emissions: Any, classes: Any, blank: int) -> tuple[Any, Any]:
    """Return the forward log probabilities, and those without the emission of the time."""
    rows = np.full((len(emissions) + 1, len(classes)), -np.inf, emissions.dtype)
    steps = np.full_like(emissions, -np.inf)
    rows[0, 0] = 0
    may_skip = (classes[2:] != blank) & (classes[2:] != classes[:-2])
    for time, emission in enumerate(emissions):
        step = np.array(rows[time])
        step[1:] = np.logaddexp(step[1:], rows[time, :-1])
        step[2:] = np.where(may_skip, np.logaddexp(step[2:], rows[time, :-2]), step[2:])
        steps[time], rows[time + 1] = step, step + emission
    return rows, steps


class CtcLossOp(CtcOp):
    """The negative log probability of all paths, for each sample; infinite without a path."""

    @override
    def infer(self) -> tuple[Axes, DType]:
        axes, dtype = super().infer()
        return axes[1:2], dtype

    def reference(self, x: Array, labels: Array, times: Array, counts: Array) -> Any:
        """Compute the forward recursion for each sample."""
        wide = np.asarray(x, accumulator_dtype(self.dtype))
        losses = np.full(x.shape[1], np.inf, wide.dtype)
        for recursion in self.recursions(wide, labels, times, counts):
            losses[recursion.sample] = -recursion.total
        return losses.astype(self.dtype)

    def decompose(self, *args: TensorOp) -> TensorOp:
        """Compute the forward recursion for all samples at once."""
        trellis = self.trellis(*args)
        total = trellis.total(trellis.forward()[-1])
        return ops.cast(ops.where(_is_possible(total), ops.negative(total), math.inf), self.dtype)

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> Any:
        """Return the negated posterior times the adjoint."""
        posterior = CtcPosteriorOp(*args, blank=self.blank)
        return ops.negative(posterior * broadcast_in_dim(delta, posterior, (1,))), None, None, None


class CtcPosteriorOp(CtcOp):
    """The posterior probability of each class at each time, given the labels; 0 without a path."""

    def reference(self, x: Array, labels: Array, times: Array, counts: Array) -> Any:
        """Combine the forward and backward recursion for each sample."""
        wide = np.asarray(x, accumulator_dtype(self.dtype))
        result = np.zeros_like(wide)
        for recursion in self.recursions(wide, labels, times, counts):
            if np.isfinite(recursion.total):
                shares = np.exp(recursion.ahead[1:] + recursion.back - recursion.total)
                for row, share in zip(result[:, recursion.sample], shares, strict=False):
                    np.add.at(row, recursion.classes, share)
        return result.astype(self.dtype)

    def decompose(self, *args: TensorOp) -> TensorOp:
        """Combine the forward and backward recursion for all samples at once."""
        x = args[0]
        trellis = self.trellis(*args)
        if not x.axes[0].length:
            return ops.zeros_like(x)
        ahead = trellis.forward()[1:]
        total = trellis.total(ahead[-1])
        met = ops.stack(ahead) + ops.stack(trellis.backward())
        is_met = ops.logical_and(trellis.is_on, broadcast_in_dim(_is_possible(total), met, (1,)))
        shares = ops.where(is_met, ops.exp(met - broadcast_in_dim(total, met, (1,))), 0)
        samples, classes = x.axes[1:].lengths
        target = make_axes((samples, trellis.classes.axes[1].length, classes))
        here = ops.BroadcastOp(trellis.classes, target_axes=target, dims=(0, 1))
        is_here = ops.cast(ops.equal(here, _count_along(target, 2)), shares.dtype)
        by_class = ops.MatmulOp(ops.transpose(shares, (1, 0, 2)), is_here)
        return ops.cast(ops.transpose(by_class, (1, 0, 2)), self.dtype)


def _count_along(axes: Axes, position: int) -> TensorOp:
    return ops.IotaOp(target_axes=axes, target_dtype=dtypes.int64, position=position)


def _emissions(x: TensorOp, classes: TensorOp) -> TensorOp:
    """Return the log probability of each state at each time."""
    times, samples, length = x.axes.lengths
    # A lookup detects classes out of range, which must not index into another sample's row.
    within = ops.TakeOp(_count_along(make_axes((length,)), 0), classes, position=0)
    rows = _count_along(classes.axes, 0) * size_of(x.axes[2:], dtypes.int64)
    taken = ops.TakeOp(ops.cast_axes(x, (times, samples * length)), rows + within, position=1)
    return ops.maximum(taken, IMPOSSIBLE)


def _is_possible(total: TensorOp) -> TensorOp:
    return ops.greater(total, IMPOSSIBLE / 2)


_LOSS = RoleSignature(
    "time batch? classes", "batch? places", "batch?", "batch?", results=["batch?"]
)


def ctc_loss(
    log_probabilities: TensorLike,
    labels: TensorLike,
    input_lengths: TensorLike | None = None,
    label_lengths: TensorLike | None = None,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
    **axes: Unpack[LabelRoles],
) -> TensorOp:
    """Return the loss of connectionist temporal classification (CTC), for labels without alignment.

    It is the negative log probability of all paths that give the labels, if repeats are merged and
    blanks are dropped then. (Graves, Fernandez, Gomez and Schmidhuber, 2006.)

    Parameters
    ----------
    log_probabilities
        The logarithms of the probabilities of C classes at each of T times, (T, N, C), as
        `log_softmax` returns them. T is known at compilation: the recursion has a few ops for each
        time.
    labels
        Integers other than the blank, (N, L), padded to a length L that is known at compilation.
    input_lengths
        The number of valid times of each sample, (N,), or one for all; by default T. More count as
        T.
    label_lengths
        The number of valid labels of each sample, (N,), or one for all; by default L. Further
        labels may be anything.
    blank
        The class that is the blank.
    reduction
        ``"mean"`` divides each loss by its number of labels, if that is not 0, and the sum by N.
        ``"sum"`` and ``"none"`` do not divide.
    zero_infinity
        Whether infinite losses become 0, with gradient 0. A loss is infinite if the labels need
        more times than there are, or a label length exceeds L.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: ``time=``, by default ``REC``; ``batch=``, by default ``N``; ``classes=``, by default
        ``Y`` or ``C``; and ``places=``, the remaining axis of the labels.

    Returns
    -------
    TensorOp
        A scalar, or with ``"none"`` a loss for each sample, (N,), in the dtype of the logarithms;
        integers count as float32.

    Raises
    ------
    AxesError
        If the axes of operands do not fit, or T or L is unknown.
    DTypeError
        If labels or lengths are not integers.
    ArgumentError
        If the reduction is another word, `blank` is not an integer of at least 0, or a role does
        not exist.
    IndexOutOfRange
        In a call, for a label that is not a class.

    Examples
    --------
    The label 1 is given by the paths 11, 10 and 01, three of the four that are equally likely:

    >>> logarithms, labels = np.log(np.full((2, 1, 2), 0.5)), np.array([[1]])
    >>> loss = weft.jit(weft.ctc_loss)(logarithms, labels)
    >>> np.exp(-loss).item()
    0.75
    """

    def apply(x: Any, labels: Any, times: Any, counts: Any) -> TensorOp:
        return _loss(x, labels, times, counts, blank, reduction, zero_infinity)

    operands = (log_probabilities, labels, input_lengths, label_lengths)
    return by_roles("ctc_loss", _LOSS, operands, axes, apply)


def _loss(
    log_probabilities: TensorLike,
    labels: TensorLike,
    input_lengths: TensorLike | None,
    label_lengths: TensorLike | None,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> TensorOp:
    function = "ctc_loss"
    (x,) = align(ops.FloatOp, log_probabilities)
    labels = as_indices(labels)
    if x.rank != 3 or labels.rank != 2:
        problem = f"takes (T, N, C) and labels (N, L), not {x.axes} and {labels.axes}"
        raise AxesError(explain(function, problem, (x, labels)))
    length = size_of(x.axes[:1], dtypes.int64) if input_lengths is None else input_lengths
    count = size_of(labels.axes[1:], dtypes.int64) if label_lengths is None else label_lengths
    samples = x.axes[1:2]
    integers = (
        _integers(function, what, value, axes)
        for what, value, axes in (
            ("the labels", labels, Axes((*samples, *labels.axes[1:]))),
            ("input_lengths", length, samples),
            ("label_lengths", count, samples),
        )
    )
    labels, length, count = integers
    blank = checked_integer(function, "blank", blank, 0)
    losses: TensorOp = CtcLossOp(x, labels, length, count, blank=blank)
    if zero_infinity:
        losses = ops.where(ops.equal(losses, math.inf), 0, losses)
    if reduction == "mean":
        losses = losses / ops.maximum(ops.cast(count, losses.dtype), 1)
    return reduce_losses(function, losses, reduction)


def _integers(function: str, what: str, value: TensorLike, axes: Axes) -> TensorOp:
    op = as_indices(value)
    if not dtypes.is_integer(op.dtype):
        raise DTypeError(explain(function, f"{what} must be integers, not {op.dtype}", (op,)))
    return ops.broadcast(ops.cast(aligned_to(function, what, op, axes), dtypes.int64), axes)
