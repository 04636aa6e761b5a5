"""Rules of ops on images and sequences: their own batch axis takes up the new one, or groups do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft import nn, ops
from weft.batching.walk import Batch, batching_rule_of, moved
from weft.ir.tensor import TensorOp


def _merged(
    op: TensorOp,
    batch: Batch,
    args: Iterable[TensorOp],
    places: Iterable[int | None],
    place: int,
    **changes: Any,
) -> TensorOp:
    """Return an op on operands whose axes at these places take up the batch axis.

    None is the place of an operand without a batch axis; `place` is that of the result.
    """
    pairs = zip(args, places, strict=True)
    operands = [arg if at is None else _joined(arg, at) for arg, at in pairs]
    made = type(op)(*operands, **{**op.attributes(), **changes})
    lengths: tuple[Any, ...] = made.axes.lengths
    apart = (*lengths[:place], batch.size, op.axes.lengths[place], *lengths[place + 1 :])
    return moved(ops.cast_axes(made, apart), place, 0)


def _joined(x: TensorOp, place: int) -> TensorOp:
    """Return a tensor with its first axis merged into the one at a place of an example."""
    turned = moved(x, 0, place)
    lengths: tuple[Any, ...] = turned.axes.lengths
    length = lengths[place] * lengths[place + 1]
    return ops.cast_axes(turned, (*lengths[:place], length, *lengths[place + 2 :]))


@batching_rule_of(nn.PoolingOp, nn.GridSampleOp)
def batched_images(op: TensorOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Take the images of all examples together."""
    return _merged(op, batch, batch.spread(args), [0] * len(args), 0)


@batching_rule_of(nn.BilinearConvolutionOp)
def batched_convolution(
    op: nn.BilinearConvolutionOp, batch: Batch, first: TensorOp, second: TensorOp
) -> Any:
    """Take images together where the filters are the same for all, filters where the images are.

    Otherwise each example becomes groups of channels.
    """
    is_gradient = isinstance(op, nn.ConvolutionFilterOp)
    if batch.operands == (True, False) and not is_gradient:
        return _merged(op, batch, (first, second), (0, None), 0)
    if batch.operands == (False, True) and isinstance(op, nn.ConvolutionOp) and op.groups == 1:
        return _merged(op, batch, (first, second), (None, 0), 1)
    if not isinstance(batch.size, int) or not batch.size:
        return NotImplemented
    places, place = ((1, 1), 0) if is_gradient else ((1, 0), 1)
    groups = batch.size * op.groups
    return _merged(op, batch, batch.spread((first, second)), places, place, groups=groups)


@batching_rule_of(nn.WindowsOp)
def batched_windows(op: nn.WindowsOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Slide along the other axes."""
    windows = nn.WindowsOp(x, spans=((batch.size, 1, 1, 1), *op.spans))
    return ops.cast_axes(windows, (batch.size, *op.axes.lengths))


@batching_rule_of(nn.FoldOp)
def batched_fold(op: nn.FoldOp, batch: Batch, x: TensorOp) -> TensorOp:
    """Fold along the other axes."""
    windows = ops.cast_axes(x, (batch.size, 1, *x.axes.lengths[1:]))
    spans = ((batch.size, 1, 1, 1), *op.spans)
    return nn.FoldOp(windows, spans=spans, target_axes=batch.before(op.target_axes))


@batching_rule_of(nn.RecurrentOp)
def batched_recurrence(op: nn.RecurrentOp, batch: Batch, *args: TensorOp) -> Any:
    """Run the sequences of all examples together, if the weights are the same for all."""
    if any(batch.operands[2:]):
        return NotImplemented
    operands = (*batch.of(batch.operands[:2]).spread(args[:2]), *args[2:])
    return _merged(op, batch, operands, (1, 1, *(None for _ in args[2:])), 2)


@batching_rule_of(nn.CtcOp)
def batched_ctc(op: nn.CtcOp, batch: Batch, *args: TensorOp) -> TensorOp:
    """Take the sequences of all examples together."""
    place = 0 if isinstance(op, nn.CtcLossOp) else 1
    return _merged(op, batch, batch.spread(args), (1, 0, 0, 0), place)
