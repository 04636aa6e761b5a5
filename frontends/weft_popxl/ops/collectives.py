"""Collectives over replicas, each of which is a rank; `group` is all of them by default.

Alone in its group, a replica exchanges nothing. Other groups than all replicas raise
NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import CompositeOp, TensorOp
from weft.errors import DTypeError
from weft.ir.axes import Axes
from weft.ir.dtypes import DType, is_bool, is_inexact
from weft.ops.shape.movement import IdentityOp
from weft.ranks.collectives import AllGatherOp, AllReduceOp, RankOp, ReduceScatterOp
from weft_popxl.arguments import flag, one_of, text
from weft_popxl.building import apply
from weft_popxl.data import as_tensor
from weft_popxl.errors import refuse_value
from weft_popxl.ops.families import applied, twins
from weft_popxl.program import Tensor
from weft_popxl.replica_grouping import ReplicaGrouping
from weft_popxl.replicas import ranks_of
from weft_popxl.tensor_arguments import axis_of

__all__ = [
    "replica_sharded_slice",
    "replicated_all_gather",
    "replicated_all_reduce",
    "replicated_all_reduce_",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_reduce_scatter",
    "replicated_slice",
]

SUMS = ("add", "mean", "square_add")
EXTREMES: dict[str, Any] = {"min": "min", "max": "max", "and": "min", "or": "max"}
OPS = (*SUMS, *EXTREMES, "mul")
"""The reductions; ``and`` and ``or`` are those of bools."""

Ranks = dict[str, Any]
"""The communicator of a collective, and its number of ranks."""


class IdenticalInputsOp(IdentityOp):
    """A tensor that all ranks have the same; its adjoint is the sum of the adjoints of all ranks.

    Attributes
    ----------
    communicator, ranks
        As those of a collective.
    """

    communicator: str
    ranks: int

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[TensorOp]:
        """Add up the adjoints of all ranks."""
        return (IdenticalGradInputsOp(delta, reduction="sum", **_over(self)),)


class IdenticalGradInputsOp(AllReduceOp):
    """A sum over all ranks, whose adjoint is the same on all of them."""

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return the adjoint: each rank's summand counts once in each of the equal sums."""
        return (IdenticalInputsOp(delta, **_over(self)),)


class ReplicatedAllGatherOp(AllGatherOp):
    """The tensors of all ranks, joined along the first axis, whose adjoint all ranks have."""

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Return this rank's part of the adjoint."""
        return (_part(delta, _over(self)),)


class ReplicatedSliceOp(CompositeOp):
    """The slice of a tensor, which all ranks have, at the number of this one on the first axis.

    The operands are the tensor, with one slice for each rank, and a `RankOp`.

    Attributes
    ----------
    communicator, ranks
        As those of a collective.
    """

    communicator: str
    ranks: int

    def infer(self) -> tuple[Axes, DType]:
        """Drop the first axis."""
        x, _ = self.args
        return Axes(x.axes[1:]), x.dtype

    def decompose(self, x: TensorOp, rank: TensorOp) -> TensorOp:
        """Take the slice."""
        slices: TensorOp = weft.take(x, rank, axis=0)
        return slices

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[TensorOp, None]:
        """Gather the adjoints of all ranks."""
        return ReplicatedAllGatherOp(_as_slice(delta), **_over(self)), None


def _over(op: Any) -> Ranks:
    """Return the ranks of an op."""
    return {"communicator": op.communicator, "ranks": op.ranks}


def _as_slice(x: TensorOp) -> Any:
    """Return a tensor with a new first axis of length 1."""
    return weft.reshape(x, (1, *x.shape))


def _parts(x: TensorOp, over: Ranks) -> Any:
    """Return a tensor with a new first axis, along which are the ranks' parts of the old one."""
    return weft.reshape(x, (over["ranks"], x.shape[0] // over["ranks"], *x.shape[1:]))


def _part(x: TensorOp, over: Ranks) -> TensorOp:
    """Return this rank's part, along the first axis, of a tensor that all ranks have the same."""
    return ReplicatedSliceOp(_parts(x, over), RankOp(**over), **over)


def _summed(op: str, x: TensorOp, over: Ranks, collective: Callable[..., TensorOp]) -> TensorOp:
    """Return one of `SUMS` from the sums of a collective."""
    if op == "mean" and not is_inexact(x.dtype):
        raise DTypeError(f"a mean over replicas needs floats, not {x.dtype}: ops.cast first")
    total = collective(weft.square(x) if op == "square_add" else x, **over)
    return total / over["ranks"] if op == "mean" else total


def _reduced(op: str, x: TensorOp, over: Ranks) -> Any:
    """Return a reduction over all ranks."""
    if op in ("and", "or") and not is_bool(x.dtype):
        raise DTypeError(f"{op!r} over replicas needs bools, not {x.dtype}: ops.cast first")
    if op == "mul":
        return weft.prod(AllGatherOp(_as_slice(x), **over), axis=0)
    if op in SUMS:
        return _summed(op, x, {**over, "reduction": "sum"}, AllReduceOp)
    return AllReduceOp(x, reduction=EXTREMES[op], **over)


def _added(kind: str, op: Any, group: Any) -> Ranks:
    """Return the ranks of a reduction whose gradient is known for sums only."""
    if text(f"{kind}: op", op) != "add":
        refuse_value(f"{kind}: op must be 'add', not {op!r}")
    return ranks_of(kind, group)


def _padded(x: TensorOp, ranks: int) -> Any:
    """Return a tensor as a vector with an equal part for each rank, the last ones with zeros."""
    return weft.pad(weft.flatten(x), [(0, -x.axes.size % ranks)])


def _replicated_all_reduce(
    kind: str, t: Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Return a reduction of t over replicas, of which each gets all.

    `op` is ``add``, ``mean``, ``mul``, ``min``, ``max``, ``square_add`` (the sum of squares), and
    for bools ``and`` or ``or``; others raise ValueError. The gradient is that of the sum of the
    results of all replicas: for ``add``, the sum of their gradients.
    """
    name, over = one_of(f"{kind}: op", op, OPS), ranks_of(kind, group)
    return applied(kind, lambda x: _reduced(name, x, over), as_tensor(t))


replicated_all_reduce, replicated_all_reduce_ = twins(
    _replicated_all_reduce, "Replace t by its `replicated_all_reduce`."
)


def replicated_all_reduce_identical_inputs(
    t: Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Return t, which all replicas have the same; the gradient is the sum of their gradients.

    It begins a part of a program that replicas share, which the form with identical gradients ends.
    Raises ValueError for another `op` than ``add``.
    """
    kind = "replicated_all_reduce_identical_inputs"
    over = _added(kind, op, group)
    return apply(kind, lambda x: IdenticalInputsOp(x, **over), as_tensor(t))


def replicated_all_reduce_identical_grad_inputs(
    t: Tensor, op: str = "add", group: ReplicaGrouping | None = None
) -> Tensor:
    """Return the sum of t over replicas, which have the same gradient of it; t gets that gradient.

    Raises ValueError for another `op` than ``add``.
    """
    kind = "replicated_all_reduce_identical_grad_inputs"
    over = {**_added(kind, op, group), "reduction": "sum"}
    return apply(kind, lambda x: IdenticalGradInputsOp(x, **over), as_tensor(t))


def replicated_all_gather(
    t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None, output_shape: str = "auto"
) -> Tensor:
    """Return the t of all replicas, in their order.

    They are joined along `axis` for an `output_shape` of ``concat`` or ``auto``, and along a new
    first axis for ``new_axis`` or scalars. There are no meta shapes, so ``meta_shape`` raises
    ValueError, as other names do. The gradient is this replica's part of that of the result, which
    all replicas have the same.
    """
    kind, t = "replicated_all_gather", as_tensor(t)
    shape = one_of(f"{kind}: output_shape", output_shape, ("auto", "concat", "new_axis"))
    over = ranks_of(kind, group)
    place = axis_of(kind, t, axis) if t.rank else 0

    def function(x: TensorOp) -> Any:
        if shape == "new_axis" or not t.rank:
            return ReplicatedAllGatherOp(_as_slice(x), **over)
        return weft.moveaxis(ReplicatedAllGatherOp(weft.moveaxis(x, place, 0), **over), 0, place)

    return apply(kind, function, t)


def replicated_slice(t: Tensor, axis: int = 0, group: ReplicaGrouping | None = None) -> Tensor:
    """Return this replica's part of t along an axis, without the axis if the part has length 1.

    Raises ValueError if the replicas cannot have equal parts. The gradient is that of all replicas'
    parts, joined, since t is the same on all of them.
    """
    kind, t = "replicated_slice", as_tensor(t)
    place, over = axis_of(kind, t, axis), ranks_of(kind, group)
    length, rest = divmod(t.shape[place], over["ranks"])
    if rest:
        refuse_value(f"{kind}: {over['ranks']} replicas have no equal parts of axis {place}: {t!r}")

    def function(x: TensorOp) -> Any:
        part = _part(weft.moveaxis(x, place, 0), over)
        return part[0] if length == 1 else weft.moveaxis(part, 0, place)

    return apply(kind, function, t)


def replicated_reduce_scatter(
    t: Tensor,
    op: str = "add",
    group: ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """Return this replica's part of a `replicated_all_reduce` of t, as a vector.

    The parts are of the flattened reduction, padded with zeros to a multiple of the number of
    replicas. The last argument has no effect: elements keep their order.
    """
    kind = "replicated_reduce_scatter"
    name, over = one_of(f"{kind}: op", op, OPS), ranks_of(kind, group)
    flag(
        f"{kind}: configure_output_for_replicated_tensor_sharding",
        configure_output_for_replicated_tensor_sharding,
    )

    def function(x: TensorOp) -> Any:
        padded = _padded(x, over["ranks"])
        if name in SUMS:
            return _summed(name, padded, over, ReduceScatterOp)
        return weft.take(_parts(_reduced(name, padded, over), over), RankOp(**over), axis=0)

    return apply(kind, function, as_tensor(t))


def replica_sharded_slice(t: Tensor, group: ReplicaGrouping | None = None) -> Tensor:
    """Return this replica's part of t as `replicated_reduce_scatter` has it, with nothing reduced.

    The gradient is as for `replicated_slice`.
    """
    kind = "replica_sharded_slice"
    over = ranks_of(kind, group)
    return apply(kind, lambda x: _part(_padded(x, over["ranks"]), over), as_tensor(t))
