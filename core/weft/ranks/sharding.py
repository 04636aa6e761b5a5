"""Shards: the equal parts of a tensor, of which each rank has its own.

The elements of a tensor, in row-major order and padded with zeros to a multiple of the number of
ranks, are divided in the order of ranks. A `ShardAxis` says of a vector what it is a part of.
(Rajbhandari and others: ZeRO: Memory optimizations toward training trillion parameter models,
2020.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from weft import ops
from weft.errors import AxesError
from weft.ir import dtypes
from weft.ir.axes import Axes, Axis, ShardAxis
from weft.ir.op import explain
from weft.ir.tensor import TensorOp
from weft.ranks.collectives import all_gather

BUCKET = 2**22
"""The bytes of a bucket: large enough that the exchange of a bucket is bound by bandwidth."""


def shard_axis(x: TensorOp) -> ShardAxis | None:
    """Return the axis of a shard; None for any other tensor."""
    axis = x.axes[0] if len(x.axes) == 1 else None
    return axis if isinstance(axis, ShardAxis) else None


def rows(x: TensorOp, ranks: int) -> TensorOp:
    """Return the shards of all ranks as the rows of a matrix; AxesError for unknown lengths."""
    if not x.axes.is_static:
        problem = f"{x.axes} has unknown lengths, and so would its shards: give them numbers"
        raise AxesError(explain("data_parallel", problem, (x,)))
    padded = ops.pad(ops.reshape(x, (-1,)), [(0, -x.axes.size % ranks)])
    return ops.reshape(padded, (ranks, padded.axes.size // ranks))


def own_shard(x: TensorOp, axis: ShardAxis, rank: TensorOp) -> TensorOp:
    """Return the shard of a rank."""
    row = ops.dynamic_slice(rows(x, axis.ranks), (rank, 0), (1, axis.length))
    return ops.reshape(row, Axes((axis,)))


def without_padding(x: TensorOp, axis: ShardAxis, rank: TensorOp) -> TensorOp:
    """Return the shard of a rank with zeros for padding, whatever was computed of it."""
    if axis.axes.size % axis.ranks == 0:
        return x
    place = ops.IotaOp(target_axes=x.axes, target_dtype=dtypes.int64, position=0)
    return ops.where(ops.less(place + rank * axis.length, axis.axes.size), x, 0)


def gathered(shards: Sequence[TensorOp]) -> list[TensorOp]:
    """Return the whole tensors of shards, which all ranks get, exchanged in buckets."""
    wholes: dict[TensorOp, TensorOp] = {}
    for bucket in buckets(shards, BUCKET):
        joined = side_by_side([ops.reshape(shard, (1, shard.axes.size)) for shard in bucket])
        axes = [axis for shard in bucket if (axis := shard_axis(shard)) is not None]
        parts = columns(all_gather(joined, communicator=axes[0].communicator), axes)
        for shard, axis, part in zip(bucket, axes, parts, strict=True):
            flat = ops.reshape(part, (axis.ranks * axis.length,))[: axis.axes.size]
            wholes[shard] = ops.reshape(flat, axis.axes)
    return [wholes[shard] for shard in shards]


def buckets(tensors: Iterable[TensorOp], limit: int) -> Iterator[list[TensorOp]]:
    """Yield tensors that are exchanged together, in the order in which they are computed.

    Each bucket has one dtype and at most so many bytes, unless a single tensor has more; those of a
    shard are the ones of the whole tensor.
    """
    open_ones: dict[Hashable, list[TensorOp]] = {}
    for x in sorted(dict.fromkeys(tensors), key=lambda op: (op.order, op.serial)):
        axis = shard_axis(x)
        key = x.dtype, None if axis is None else (axis.ranks, axis.communicator)
        bucket = open_ones.setdefault(key, [])
        if bucket and sum(map(_bytes, (*bucket, x))) > limit:
            yield bucket
            bucket = open_ones[key] = []
        bucket.append(x)
    yield from (bucket for bucket in open_ones.values() if bucket)


def _bytes(x: TensorOp) -> int:
    axis = shard_axis(x)
    axes = x.axes if axis is None else axis.axes
    return axes.size * x.dtype.itemsize if axes.is_static else 0


def side_by_side(matrices: Sequence[TensorOp]) -> TensorOp:
    """Return matrices joined along the second axis."""
    return matrices[0] if len(matrices) == 1 else ops.concat(matrices, 1)


def columns(matrix: TensorOp, axes: Iterable[Axis]) -> Iterator[TensorOp]:
    """Yield consecutive columns of a matrix, as many as each of some axes is long."""
    place = 0
    for axis in axes:
        yield matrix[:, place : place + axis.length]
        place += axis.length
