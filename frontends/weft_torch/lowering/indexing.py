"""Gathers and scatters."""

from __future__ import annotations

from typing import Any

import weft
from weft_torch.rules import Node, Tensor, at_axis, is_inexact, lowers, typed

lowers("embedding")(lambda weight, indices: weft.take(weight, indices, 0))
lowers("take")(lambda x, index: weft.take(weft.reshape(x, (-1,)), index, 0))

REDUCTIONS = {
    None: "set", "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max",
    "amin": "min", "mean": "mean",
}  # fmt: skip
"""What ATen calls the reductions of scatters."""


def _reduction(how: str, dtype: str) -> str:
    """Return weft's name of a reduction: sums and products of bools are whether any or all are."""
    return {"add": "max", "mul": "min"}.get(how, how) if dtype == "bool" else how


def _flat(x: Tensor) -> Tensor:
    """Return a scalar as a tensor of one element."""
    return weft.reshape(x, (1,)) if x.rank == 0 else x


@lowers("index_select")
def index_select(node: Node, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Take slices of an axis."""
    return weft.reshape(weft.take(_flat(x), _flat(index), dim), node.shape())


def _cut_to(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """Return x cut to the lengths of the indices, which may be shorter, beside an axis."""
    if index.axes.lengths == x.axes.lengths:
        return x
    lengths = enumerate(index.axes.lengths)
    return weft.tensor_slice(
        x, tuple(slice(None) if at == dim else slice(0, n) for at, n in lengths)
    )


@lowers("gather")
def gather(node: Node, x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Take elements along an axis."""
    if 0 in index.axes.lengths:
        return weft.zeros(node.shape(), node.dtype())
    x, index = _flat(x), _flat(index)
    dim %= x.rank
    return weft.reshape(weft.take_along_axis(_cut_to(x, index, dim), index, dim), node.shape())


@lowers("scatter scatter_add scatter_reduce")
def scatter(
    node: Node,
    x: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    value: Any = None,
    reduce: str | None = None,
    include_self: bool = True,
) -> Tensor:
    """Put elements along an axis."""
    how = REDUCTIONS["add" if node.name == "scatter_add" else reduce]
    if 0 in index.axes.lengths:
        return x
    x, index = _flat(x), _flat(index)
    dim %= x.rank
    if isinstance(src, weft.TensorOp):
        src = weft.tensor_slice(_flat(src), tuple(slice(0, n) for n in index.axes.lengths))
    else:
        given = value if src is None else src
        src = weft.broadcast(typed(given, node.dtype()), index.axes.lengths)
    cut = _cut_to(x, index, dim)
    made = _scattered(node, cut, index, typed(src, node.dtype()), dim, how, include_self)
    if cut.axes.lengths != x.axes.lengths:
        made = weft.update_slice(x, tuple(slice(0, n) for n in cut.axes.lengths), made)
    return weft.reshape(made, node.shape())


def _scattered(
    node: Node, x: Tensor, index: Tensor, src: Tensor, dim: int, how: str, include_self: bool
) -> Tensor:
    def put(base: Tensor, updates: Tensor, reduction: str) -> Tensor:
        reduction = _reduction(reduction, base.dtype.name)
        return weft.scatter_along_axis(
            base, index, updates, dim, reduction=reduction, include_self=include_self
        )

    if how != "mean":
        return put(x, src, how)
    total = put(x, src, "add")
    ones, none = weft.ones(index.axes.lengths, "int64"), weft.zeros(x.axes.lengths, "int64")
    count = weft.scatter_along_axis(none, index, ones, dim, reduction="add")
    count = count + 1 if include_self else weft.maximum(count, 1)
    count = typed(count, node.dtype())
    return total / count if is_inexact(node.dtype()) else weft.floordivide(total, count)


@lowers("index_add")
def index_add(node: Node, x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: Any) -> Tensor:
    """Add slices to those of an axis."""
    source = source if alpha == 1 else source * typed(alpha, node.dtype())
    how = _reduction("add", node.dtype())
    made = weft.scatter(_flat(x), _flat(index), _flat(source), dim, reduction=how)
    return weft.reshape(made, node.shape())


@lowers("index_copy")
def index_copy(node: Node, x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Put slices in place of those of an axis."""
    return weft.reshape(weft.scatter(_flat(x), _flat(index), _flat(source), dim), node.shape())


@lowers("index_fill")
def index_fill(node: Node, x: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """Fill slices of an axis."""
    base, at = _flat(x), _flat(index)
    lengths = base.axes.lengths
    shape = at_axis(base.rank, dim, at.axes.lengths[0])
    shape = tuple(n if isinstance(s, slice) else s for n, s in zip(lengths, shape, strict=True))
    source = weft.broadcast(typed(value, node.dtype()), shape)
    return weft.reshape(weft.scatter(base, at, source, dim), node.shape())


@lowers("index_reduce")
def index_reduce(
    node: Node, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """Reduce slices into those of an axis."""
    made = weft.index_reduce(
        _flat(x), dim, _flat(index), _flat(source), reduce, include_self=include_self
    )
    return weft.reshape(made, node.shape())


@lowers("put")
def put(node: Node, x: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """Put elements by their numbers in row-major order."""
    x, index, source = (weft.reshape(each, (-1,)) for each in (x, index, source))
    how = _reduction("add" if accumulate else "set", node.dtype())
    made = weft.scatter(x, index, source, 0, reduction=how)
    return weft.reshape(made, node.shape())


class _Indices:
    """Indices of some axes, of which the others are taken whole.

    Attributes
    ----------
    order
        The axes, first those that have indices.
    rows
        The indices, broadcast to one shape, as the last axis.
    back
        The order of axes that ATen gives the result, if it is another one than of indices first.
    """

    def __init__(self, indices: Any, rank: int) -> None:
        used = [at for at, index in enumerate(indices) if index is not None]
        self.rest = [at for at in range(rank) if at not in used]
        self.order = used + self.rest
        together = weft.broadcast_arrays(*[typed(indices[at], "int64") for at in used])
        self.rows = weft.stack(list(together), pos=together[0].rank)
        first, count = used[0], self.rows.rank - 1
        is_together = used == list(range(first, first + len(used)))
        ahead = first if is_together else 0
        total = count + len(self.rest)
        self.back = [*range(count, count + ahead), *range(count), *range(count + ahead, total)]

    def forth(self) -> list[int]:
        """Return the inverse of the order `back`."""
        return sorted(range(len(self.back)), key=self.back.__getitem__)


def _masks(indices: Any) -> bool:
    return any(index is not None and index.dtype.name == "bool" for index in indices)


@lowers("index _unsafe_index")
def index(node: Node, x: Tensor, indices: Any) -> Tensor:
    """Take elements by indices of several axes."""
    if _masks(indices):
        raise node.refuse("the number of results depends on a mask")
    found = _Indices(indices, x.rank)
    made = weft.gather_nd(weft.transpose(x, found.order), found.rows)
    return weft.transpose(made, found.back) if made.rank else made


@lowers("index_put _unsafe_index_put")
def index_put(node: Node, x: Tensor, indices: Any, values: Tensor, accumulate: bool) -> Tensor:
    """Put elements by indices of several axes, or by one mask."""
    values = typed(values, node.dtype())
    if _masks(indices):
        if len(indices) > 1:
            raise node.refuse("a mask together with indices")
        return _put_by_mask(x, indices[0], values, accumulate)
    found = _Indices(indices, x.rank)
    base = weft.transpose(x, found.order) if x.rank else x
    shape = found.rows.axes.lengths[:-1] + tuple(x.axes.lengths[at] for at in found.rest)
    values = weft.broadcast(values, tuple(shape[at] for at in found.back))
    values = weft.transpose(values, found.forth()) if values.rank else values
    how = _reduction("add" if accumulate else "set", node.dtype())
    made = weft.scatter_nd(base, found.rows, values, reduction=how)
    return weft.transpose(made, [found.order.index(at) for at in range(x.rank)])


def _put_by_mask(x: Tensor, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """Put values, one after the other unless there is only one, where a mask is set."""
    if values.rank > x.rank - mask.rank and values.axes.lengths[0] != 1:
        count = weft.cumsum(typed(weft.reshape(mask, (-1,)), "int64"), 0)
        taken = weft.take(values, weft.maximum(count - 1, 0), 0)
        values = weft.reshape(taken, mask.axes.lengths + values.axes.lengths[1:])
    elif values.rank > x.rank - mask.rank:
        values = weft.reshape(values, (1,) * mask.rank + values.axes.lengths[1:])
    mask = weft.reshape(mask, mask.axes.lengths + (1,) * (x.rank - mask.rank))
    if accumulate:
        values = x | values if x.dtype.name == "bool" else x + values
    return weft.where(mask, values, x)


@lowers("masked_scatter")
def masked_scatter(node: Node, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Put elements one after the other where a mask is set."""
    x, mask = weft.broadcast(x, node.shape()), weft.broadcast(mask, node.shape())
    count = weft.cumsum(typed(weft.reshape(mask, (-1,)), "int64"), 0)
    taken = weft.take(weft.reshape(source, (-1,)), weft.maximum(count - 1, 0), 0)
    return weft.where(mask, weft.reshape(taken, node.shape()), x)


@lowers("masked_scatter_backward")
def masked_scatter_backward(node: Node, grad_output: Tensor, mask: Tensor) -> Tensor:
    """Return the gradient of the elements that were put where a mask is set."""
    mask = weft.reshape(weft.broadcast(mask, grad_output.axes.lengths), (-1,))
    place = weft.cumsum(typed(mask, "int64"), 0) - 1
    errors = weft.where(mask, weft.reshape(grad_output, (-1,)), 0)
    flat = weft.reshape(weft.zeros(node.shape(), node.dtype()), (-1,))
    made = weft.scatter(flat, weft.maximum(place, 0), errors, 0, reduction="add")
    return weft.reshape(made, node.shape())


@lowers("repeat_interleave.Tensor")
def repeat_interleave(node: Node, repeats: Tensor, output_size: int | None) -> Tensor:
    """Return each number as often as a tensor says."""
    if output_size is None:
        raise node.refuse("the number of results depends on values: give output_size")
    ends = weft.cumsum(repeats, 0)
    return weft.searchsorted(ends, weft.arange(output_size, dtype=ends.dtype), "right")


def _bag_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """Return in which bag each index is."""
    places = weft.arange(indices.axes.lengths[0], dtype=offsets.dtype.name)
    return weft.searchsorted(offsets, places, "right") - 1


def _bagged(
    weight: Tensor, indices: Tensor, offsets: Tensor, mode: int, factors: Any, padding_idx: int
) -> Tensor:
    padding = padding_idx if padding_idx >= 0 else None
    name = ("sum", "mean", "max")[mode]
    return weft.embedding_bag(weight, indices, offsets, name, factors, padding)


@lowers("_embedding_bag _embedding_bag_forward_only")
def embedding_bag(
    node: Node,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: int,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Any:
    """Reduce bags of rows; return the bag of each index, their sizes and the rows of maxima too."""
    offsets = offsets[:-1] if include_last_offset else offsets
    found = _bagged(weight, indices, offsets, mode, per_sample_weights, padding_idx)
    if not node.uses(1, 2, 3):
        return found, *node.zeros(1, 2, 3)
    bag, kind = _bag_of(indices, offsets), offsets.dtype.name
    count = indices.axes.lengths[0]
    is_counted = weft.not_equal(indices, padding_idx)
    none = weft.zeros(offsets.axes.lengths, kind)
    sizes = weft.scatter(none, bag, typed(is_counted, kind), 0, reduction="add")
    (rows,) = node.zeros(3)
    if mode == 2:
        taken, best = weft.take(weight, indices, 0), weft.take(found, bag, 0)
        is_best = weft.equal(taken, best) & weft.unsqueeze(is_counted, 1)
        place = weft.where(is_best, weft.unsqueeze(weft.arange(count, dtype=kind), 1), count)
        none = weft.full(rows.axes.lengths, count, dtype=kind)
        first = weft.scatter(none, bag, typed(place, kind), 0, reduction="min")
        rows = weft.take(indices, weft.minimum(first, count - 1), 0)
    bags = bag if node.shape(1)[0] else node.zeros(1)[0]
    return found, bags, sizes, rows


@lowers("_embedding_bag_backward")
def embedding_bag_backward(
    node: Node,
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int,
) -> Tensor:
    """Return the gradient of the rows that bags are reduced from."""
    if sparse:
        raise node.refuse("a sparse gradient")
    zeros = weft.zeros(node.shape(), node.dtype())
    if mode == 2:
        errors = weft.where(weft.unsqueeze(bag_size, 1) > 0, grad, 0)
        return weft.scatter_along_axis(zeros, maximum_indices, errors, 0, reduction="add")
    offsets = offsets[: grad.axes.lengths[0]]
    made = _bagged(zeros, indices, offsets, mode, per_sample_weights, padding_idx)
    made = weft.deriv(made, zeros, grad)
    if not scale_grad_by_freq:
        return made
    none = weft.zeros(node.shape()[:1], node.dtype())
    ones = weft.ones(indices.axes.lengths, node.dtype())
    counts = weft.scatter(none, indices, ones, 0, reduction="add")
    return made / weft.unsqueeze(weft.maximum(counts, 1), 1)


@lowers("_embedding_bag_per_sample_weights_backward")
def embedding_bag_factors_backward(
    grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int
) -> Tensor:
    """Return the gradient of the factors of rows in sums."""
    bag = _bag_of(indices, offsets[: grad.axes.lengths[0]])
    made = weft.sum(weft.take(grad, bag, 0) * weft.take(weight, indices, 0), 1)
    return weft.where(weft.equal(indices, padding_idx), 0, made)


@lowers("searchsorted")
def searchsorted(
    node: Node, sorted_sequence: Tensor, x: Tensor, right: bool, side: str | None, sorter: Any
) -> Tensor:
    """Return where numbers would be put into sorted rows."""
    x = typed(x, sorted_sequence.dtype.name) if not isinstance(x, weft.TensorOp) else x
    return weft.searchsorted(
        sorted_sequence, x, "right" if right or side == "right" else "left", sorter=sorter
    )


@lowers("bucketize")
def bucketize(x: Tensor, boundaries: Tensor, right: bool) -> Tensor:
    """Return between which boundaries numbers are."""
    x = x if isinstance(x, weft.TensorOp) else typed(x, boundaries.dtype.name)
    return weft.searchsorted(boundaries, x, "right" if right else "left")
