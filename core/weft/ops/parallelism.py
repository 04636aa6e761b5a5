"""Data parallelism: gradients averaged over ranks, while the backward pass still runs.

Gradients are put into buckets in the order in which the backward pass computes them. The sum of a
bucket over all ranks is started as soon as its last gradient is there, and waited for where the
gradients are used. (Li et al., PyTorch Distributed: Experiences on accelerating data parallel
training, VLDB 2020.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from weft.communicators.choice import connected
from weft.errors import ArgumentError
from weft.ir import dtypes, scope, upcalls
from weft.ir.dtypes import DType
from weft.ir.op import Op, explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.collectives import all_reduce_later
from weft.ops.joining import concat
from weft.ops.movement import reshape

__all__ = ["data_parallel"]

BUCKET = 2**22
"""The bytes of a bucket: large enough that the exchange of a bucket is bound by bandwidth."""


def data_parallel(
    loss_or_gradients: Any,
    variables: Any = None,
    bucket_bytes: int = BUCKET,
    communicator: str | None = None,
) -> tuple[list[TensorOp], list[Any]]:
    """Return the means over all ranks of the gradients of a loss, and their variables.

    Each rank computes the loss of its own, equally large share of a batch. The result is what
    optimisers take: ``weft.sgd(*weft.data_parallel(loss), learning_rate=0.1)``. By default the
    variables are all that the loss depends on; gradients may be given in place of the loss, as to
    optimisers. A gradient of `bucket_bytes` or more is exchanged by itself. All gradients are
    floats. On one rank the gradients are returned as they are.

    Raises ArgumentError if there is no variable, or not one gradient for each.
    """
    chosen, gradients = _gradients(loss_or_gradients, variables)
    limit = checked_integer("data_parallel", "bucket_bytes", bucket_bytes, 1)
    ranks = connected(communicator).size
    if ranks == 1:
        return gradients, chosen
    means: dict[Op, TensorOp] = {}
    for bucket in list(_buckets(dict.fromkeys(gradients), limit)):
        means.update(_means(bucket, ranks, communicator))
    return [means[gradient] for gradient in gradients], chosen


def _gradients(given: Any, variables: Any) -> tuple[list[Any], list[TensorOp]]:
    if isinstance(given, TensorOp):
        chosen = list(given.variables() if variables is None else variables)
        gradients = [upcalls.deriv(given, variable) for variable in chosen]
    elif variables is None or not isinstance(given, Iterable):
        problem = f"takes a scalar loss, or gradients and their variables, not {given!r}"
        raise ArgumentError(explain("data_parallel", problem, ()))
    else:
        chosen, gradients = list(variables), [as_op(gradient) for gradient in given]
    if not chosen or len(chosen) != len(gradients):
        problem = f"{len(gradients)} gradients were given for {len(chosen)} variables"
        raise ArgumentError(explain("data_parallel", problem, gradients))
    for gradient in gradients:
        if not dtypes.is_float(gradient.dtype):
            problem = f"a mean over ranks needs floats, not {gradient.dtype}"
            raise ArgumentError(explain("data_parallel", problem, (gradient,)))
    return chosen, gradients


def _buckets(gradients: Iterable[TensorOp], limit: int) -> Iterator[list[TensorOp]]:
    """Yield the buckets, each of one dtype, in the order in which the backward pass fills them."""
    open_ones: dict[DType, list[TensorOp]] = {}
    for gradient in sorted(gradients, key=lambda op: (op.order, op.serial)):
        bucket = open_ones.setdefault(gradient.dtype, [])
        if bucket and _bytes([*bucket, gradient]) > limit:
            yield bucket
            bucket = open_ones[gradient.dtype] = []
        bucket.append(gradient)
    yield from (bucket for bucket in open_ones.values() if bucket)


def _bytes(gradients: Iterable[TensorOp]) -> int:
    return sum(op.axes.size * op.dtype.itemsize for op in gradients if op.axes.is_static)


def _means(
    bucket: list[TensorOp], ranks: int, communicator: str | None
) -> Iterator[tuple[TensorOp, TensorOp]]:
    """Yield each gradient of a bucket with its mean over the ranks."""
    with _right_after(bucket[-1]):
        flat = [reshape(gradient, (-1,)) for gradient in bucket]
        _, total = all_reduce_later(flat[0] if len(flat) == 1 else concat(flat), communicator)
    total.__dict__["order"] = total.serial  # the wait comes after all of the backward pass
    place: Any = 0
    for gradient in bucket:
        length = gradient.axes.size
        yield gradient, reshape(total[place : place + length], gradient.axes) / ranks
        place = place + length


@contextmanager
def _right_after(last: TensorOp) -> Iterator[None]:
    """Give the ops built inside the place after an op, before all that were built after it."""
    with scope.all_ops() as made:
        yield
    for op in made:
        op.__dict__["order"] = last.order + 0.5
