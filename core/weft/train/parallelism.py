"""Data parallelism: gradients averaged over ranks, while the backward pass still runs.

Gradients are put into buckets in the order in which the backward pass computes them. The sum of a
bucket over all ranks is started as soon as its last gradient is there, and waited for where the
gradients are used. (Li et al., PyTorch Distributed: Experiences on accelerating data parallel
training, VLDB 2020.) Nothing is left to compute during the exchange of the last gradient, but its
own later rows. (Wang et al., Overlap communication with dependent computation via decomposition in
large deep learning models, ASPLOS 2023.) For shards of gradients see `weft.ranks.sharding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from weft.autodiff.reverse import deriv
from weft.communicators.choice import connected
from weft.errors import ArgumentError, AxesError
from weft.ir import dtypes, scope
from weft.ir.axes import Axes, ShardAxis
from weft.ir.op import Op, explain
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import check_flags, checked_integer
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.joining import concat
from weft.ops.shape.movement import reshape
from weft.ranks.collectives import started, waited
from weft.ranks.sharding import BUCKET, buckets, columns, rows, shard_axis, side_by_side
from weft.train.optimizers import check_variables, gradient_for

__all__ = ["data_parallel"]


def data_parallel(
    loss_or_gradients: TensorOp | Iterable[TensorLike],
    variables: Iterable[TensorOp] | None = None,
    bucket_bytes: int = BUCKET,
    communicator: str | None = None,
    sharded: bool = False,
) -> tuple[list[TensorOp], list[Any]]:
    """Return the means over all ranks of the gradients of a loss, and their variables.

    Each rank computes the loss of its own, equally large share of a batch. The result is what
    optimizers take. A bucket of gradients is exchanged while the backward pass still runs. On one
    rank the gradients are returned as they are.

    Parameters
    ----------
    loss_or_gradients
        A scalar loss, or a list of gradients; these are floats.
    variables
        The variables: a list; for gradients one for each, in their order. By default all that the
        loss depends on.
    bucket_bytes
        How many bytes are exchanged at once. A gradient of as many or more is exchanged by itself;
        the last one, if it is a product of matrices, is computed and exchanged in parts of so many
        bytes.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.
    sharded
        Whether each rank gets its shard of each mean only, a vector with a `ShardAxis`. Optimizers
        keep the state of that shard alone, update it, and gather the variable from all ranks. So
        their state takes its memory once in all, and not once for each rank. No gradient is divided
        then.

    Returns
    -------
    tuple[list, list]
        The gradients and the variables.

    Raises
    ------
    ArgumentError
        If there is no variable, not one gradient for each, or a gradient is not a float.
    AxesError
        If a gradient is a shard; with `sharded` also if one has unknown lengths, or does not fit
        its variable.

    Examples
    --------
    >>> w = weft.variable((2,), "float64", np.array([1.0, -2.0]))
    >>> loss = weft.sum(weft.square(w))
    >>> step = weft.sgd(*weft.data_parallel(loss), learning_rate=0.25)
    >>> transformer = weft.make_transformer()
    >>> transformer.computation(step)()
    >>> transformer.computation(w)()
    array([ 0.5, -1. ])
    """
    chosen, gradients = _gradients(loss_or_gradients, variables)
    limit = checked_integer("data_parallel", "bucket_bytes", bucket_bytes, 1)
    check_flags("data_parallel", sharded=sharded)
    ranks = connected(communicator).size
    if ranks == 1:
        return gradients, chosen
    if sharded:
        check_variables("data_parallel", chosen)
        pairs = zip(chosen, gradients, strict=True)
        gradients = [gradient_for("data_parallel", *pair) for pair in pairs]
    parts = {gradient: [gradient] for gradient in gradients}
    if not sharded:
        last = max(gradients, key=lambda op: (op.order, op.serial))
        parts[last] = _parts(last, limit)
    exchanged = _shards_of_sums if sharded else _sums
    sums: dict[Op, TensorOp] = {}
    for bucket in list(buckets(chain(*parts.values()), limit)):
        sums.update(exchanged(bucket, communicator))
    means = {
        gradient: _joined([sums[part] for part in each]) / ranks for gradient, each in parts.items()
    }
    return [means[gradient] for gradient in gradients], chosen


def _gradients(
    given: TensorOp | Iterable[TensorLike], variables: Iterable[TensorOp] | None
) -> tuple[list[Any], list[TensorOp]]:
    if isinstance(given, TensorOp):
        chosen = list(given.variables() if variables is None else variables)
        gradients = [deriv(given, variable) for variable in chosen]
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
        if (axis := shard_axis(gradient)) is not None:
            problem = f"a gradient is the shard {axis!r} of a mean already: give it to an optimizer"
            raise AxesError(explain("data_parallel", problem, (gradient,)))
    return chosen, gradients


def _parts(gradient: TensorOp, limit: int) -> list[TensorOp]:
    """Return products of so many bytes of rows, for a product of matrices; else the gradient."""
    is_product = isinstance(gradient, MatmulOp) and len(gradient.axes) == 2
    if not is_product or not gradient.axes.is_static:
        return [gradient]
    x, y = gradient.args
    length, width = gradient.axes.lengths
    count = max(1, limit // max(1, width * gradient.dtype.itemsize))
    if count >= length:
        return [gradient]
    with scope.replacing(gradient):
        return [x[place : place + count] @ y for place in range(0, length, count)]


def _joined(parts: list[TensorOp]) -> TensorOp:
    return parts[0] if len(parts) == 1 else concat(parts)


def _sums(bucket: list[TensorOp], communicator: str | None) -> Iterator[tuple[TensorOp, TensorOp]]:
    """Yield each gradient of a bucket with its sum over the ranks."""
    with _right_after(bucket[-1]):
        flat = [reshape(gradient, (-1,)) for gradient in bucket]
        start = started("all_reduce", _joined(flat), communicator)
    total = waited(start)
    place: Any = 0
    for gradient in bucket:
        length = gradient.axes.size
        yield gradient, reshape(total[place : place + length], gradient.axes)
        place = place + length


def _shards_of_sums(
    bucket: list[TensorOp], communicator: str | None
) -> Iterator[tuple[TensorOp, TensorOp]]:
    """Yield each gradient of a bucket with this rank's shard of its sum over the ranks."""
    ranks = connected(communicator).size
    with _right_after(bucket[-1]):
        joined = side_by_side([rows(gradient, ranks) for gradient in bucket])
        start = started("reduce_scatter", joined, communicator)
    axes = [ShardAxis(gradient.axes, ranks, start.communicator) for gradient in bucket]
    parts = columns(waited(start), axes)
    for gradient, axis, part in zip(bucket, axes, parts, strict=True):
        yield gradient, reshape(part, Axes((axis,)))


@contextmanager
def _right_after(last: TensorOp) -> Iterator[None]:
    """Give the ops built inside the place after an op, before all that were built after it."""
    with scope.all_ops() as made:
        yield
    # No two have one place, since the line of an op is found by it: two calls may exchange the
    # same gradient. Below 0.5 with a thousand million ops, and exact with millions.
    for op in made:
        op.__dict__["order"] = last.order + 0.5 + op.serial * 2.0**-31
