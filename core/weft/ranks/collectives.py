"""Collectives: ops in which all ranks of a program exchange tensors.

A rank is one of several processes that compute the same graphs. Collectives run in the order in
which they were built, and as often, whether or not their values are used, so that all ranks run the
same ones in the same order. What `deriv` differentiates is the sum of the dependent over all ranks:
the gradient of each collective is another one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from weft.communicators.calls import current_call
from weft.communicators.choice import connected
from weft.communicators.interface import (
    REDUCTIONS,
    Collective,
    Kind,
    Reduction,
    Request,
    result_shape,
)
from weft.errors import ArgumentError, AxesError, CommunicationError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey
from weft.ir.dtypes import Array, DType
from weft.ir.graph import Graph, called_graphs
from weft.ir.op import explain, explained
from weft.ir.storage import as_op
from weft.ir.tensor import TensorLike, TensorOp
from weft.ops.arguments import checked_integer
from weft.ops.control.host import HostOp
from weft.ops.indexing.slicing import with_lengths
from weft.ops.pointwise.comparison import equal, where
from weft.ops.pointwise.elementwise import cast, divide
from weft.ops.shape.arrangement import moveaxis
from weft.ops.shape.movement import reshape
from weft.support.backports import override
from weft.support.locks import renewed

__all__ = [
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "BroadcastFromOp",
    "CollectiveOp",
    "CommunicationOp",
    "RankOp",
    "ReduceScatterOp",
    "SendReceiveOp",
    "StartCollectiveOp",
    "WaitCollectiveOp",
    "all_gather",
    "all_reduce",
    "all_reduce_later",
    "all_to_all",
    "broadcast_from",
    "rank_index",
    "reduce_scatter",
    "send_receive",
]


CommunicationOp = HostOp
"""The class that backends have a rule for, under the name of its first subclasses."""


class ExchangeOp(HostOp):
    """An op that a communicator computes, on the host or on the device.

    Attributes
    ----------
    communicator
        The name of the communicator.
    ranks
        The number of ranks.
    """

    communicator: str
    ranks: int

    has_effect = True

    @property
    @override
    def is_exchange(self) -> bool:
        return self.ranks > 1

    def exchanged(self, *values: Any) -> Any:
        """Return the value for NumPy arrays of the operands, after the exchange with other ranks.

        Raises CommunicationError if the other ranks do not do the same.
        """
        raise NotImplementedError

    @override
    def reference(self, *values: Any) -> Any:
        return self.exchanged(*map(np.asarray, values))

    def _collective(self, kind: Kind, **options: Any) -> Collective:
        """Return the collective for the communicator, as part of this thread's call."""
        label, call = f"{type(self).__name__} in {self.file_info}", current_call()
        return Collective(kind, label=label, call=call.shown, key=call.compared, **options)


class RankOp(ExchangeOp):
    """The number of this rank, from 0, as int32."""

    @property
    def is_exchange(self) -> bool:
        """False: each rank knows its number."""
        return False

    @override
    def infer(self) -> tuple[Axes, DType]:
        return Axes(), dtypes.int32

    @override
    def exchanged(self, *values: Any) -> Any:
        return np.array(connected(self.communicator).rank, self.dtype)


class CollectiveOp(ExchangeOp):
    """A collective of one tensor, along its first axis where that is divided or joined."""

    kind: ClassVar[Kind] = "all_reduce"

    @property
    def collective(self) -> Collective:
        """What the communicator has to do."""
        return self._collective(self.kind)

    def infer(self) -> tuple[Axes, DType]:
        """Divide or multiply the first axis by the number of ranks, as the collective does."""
        (x,) = self.args
        return _exchanged_axes(self.kind, x, self.ranks), x.dtype

    @override
    def exchanged(self, *values: Any) -> Any:
        (x,) = values
        return connected(self.communicator).run(self.collective, x)

    def write(self, *arrays: Any) -> None:
        """Run the collective, which receives into the last array."""
        x, out = arrays
        connected(self.communicator).run(self.collective, x, out)

    def _same(self, kind: type[CollectiveOp], x: TensorOp, **fields: Any) -> TensorOp:
        """Return a collective over the same ranks."""
        return kind(x, communicator=self.communicator, ranks=self.ranks, **fields)


class AllReduceOp(CollectiveOp):
    """The sum, maximum or minimum of a tensor over all ranks, which all of them get.

    Attributes
    ----------
    reduction
        ``sum``, ``max`` or ``min``.
    """

    reduction: Reduction

    @property
    @override
    def collective(self) -> Collective:
        return self._collective("all_reduce", reduction=self.reduction)

    def infer(self) -> tuple[Axes, DType]:
        """Check that the dtype has the reduction."""
        _require_reducible(self.reduction, self.args[0].dtype)
        return super().infer()

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Add up the adjoints of all ranks; an extremum's go in equal shares to where it was."""
        total = self._same(AllReduceOp, delta, reduction="sum")
        if self.reduction == "sum":
            return (total,)
        here = cast(equal(x, self), x.dtype)
        return (total * here / self._same(AllReduceOp, here, reduction="sum"),)


class AllGatherOp(CollectiveOp):
    """The tensors of all ranks, one after the other along the first axis, which all of them get."""

    kind: ClassVar[Kind] = "all_gather"

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Add up the adjoints of all ranks, of which each takes its own part."""
        return (self._same(ReduceScatterOp, delta),)


class ReduceScatterOp(CollectiveOp):
    """The sum of a tensor over all ranks, of which each gets its part of the first axis."""

    kind: ClassVar[Kind] = "reduce_scatter"

    def infer(self) -> tuple[Axes, DType]:
        """Check that the dtype can be added up."""
        _require_reducible("sum", self.args[0].dtype)
        return super().infer()

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Gather the adjoints of all ranks."""
        return (self._same(AllGatherOp, delta),)


class BroadcastFromOp(CollectiveOp):
    """The tensor of one rank, which all of them get.

    Attributes
    ----------
    root
        That rank.
    """

    root: int

    @property
    @override
    def collective(self) -> Collective:
        return self._collective("broadcast", root=self.root)

    def infer(self) -> tuple[Axes, DType]:
        """Check that there is such a rank."""
        if not 0 <= self.root < self.ranks:
            raise ArgumentError(f"there is no rank {self.root} among {self.ranks}")
        return super().infer()

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Add up the adjoints of all ranks, for the root alone."""
        total = self._same(AllReduceOp, delta, reduction="sum")
        rank = RankOp(communicator=self.communicator, ranks=self.ranks)
        return (where(equal(rank, self.root), total, 0),)


class AllToAllOp(CollectiveOp):
    """Part r of the tensors of all ranks along the first axis, at rank r, in the order of ranks."""

    kind: ClassVar[Kind] = "all_to_all"

    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        """Send each part of the adjoint back."""
        return (self._same(AllToAllOp, delta),)


class SendReceiveOp(CollectiveOp):
    """The tensor of the rank that is `offset` below; this one's goes to the rank as much above.

    Attributes
    ----------
    offset
        How many ranks the tensor goes up; down if negative.
    wraps
        Whether the last rank is followed by the first. If not, a rank without a sender gets zeros.
    """

    offset: int
    wraps: bool

    @property
    @override
    def collective(self) -> Collective:
        return self._collective("shift", offset=self.offset, wraps=self.wraps)

    @override
    def generate_adjoints(self, delta: TensorOp, x: TensorOp) -> tuple[TensorOp]:
        return (self._same(SendReceiveOp, delta, offset=-self.offset, wraps=self.wraps),)


class StartCollectiveOp(ExchangeOp):
    """Starts a collective; the value is a number for `WaitCollectiveOp`.

    Attributes
    ----------
    kind
        ``all_reduce`` (a sum), ``all_gather`` or ``reduce_scatter``.
    """

    kind: Kind

    def infer(self) -> tuple[Axes, DType]:
        """Return an int64 scalar; checks that the operand can be exchanged."""
        (x,) = self.args
        if self.kind != "all_gather":
            _require_reducible("sum", x.dtype)
        _exchanged_axes(self.kind, x, self.ranks)
        return Axes(), dtypes.int64

    @property
    def collective(self) -> Collective:
        """What the communicator has to do."""
        return self._collective(self.kind)

    def exchanged(self, *values: Any) -> Any:
        """Start the collective, which reads the operand until it has ended."""
        x = np.asarray(values[0], order="C")
        return np.array(_started.start(self.communicator, self.collective, x), self.dtype)


class WaitCollectiveOp(ExchangeOp):
    """What a collective gives that a `StartCollectiveOp` started, once it has ended.

    The operands are the value of that op and its operand, which the collective reads until then.

    Attributes
    ----------
    kind
        The kind of the collective.
    """

    kind: Kind

    def infer(self) -> tuple[Axes, DType]:
        """Return the result of the collective for the second operand."""
        x = self.args[1]
        return _exchanged_axes(self.kind, x, self.ranks), x.dtype

    @property
    def collective(self) -> Collective:
        """What the communicator does until then."""
        return self._collective(self.kind)

    @override
    def exchanged(self, *values: Any) -> Any:
        return _started.wait(int(values[0]))

    def write(self, *arrays: Any) -> None:
        """Copy what was received, and let a later collective receive into its array."""
        number, _, out = arrays
        found = self.exchanged(number)
        np.copyto(out, found)
        _started.give_back(found)

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> tuple[None, TensorOp]:
        """Exchange the adjoints of all ranks by the collective that is the adjoint of this one."""
        over: dict[str, Any] = {"communicator": self.communicator, "ranks": self.ranks}
        if self.kind == "all_reduce":
            return None, AllReduceOp(delta, reduction="sum", **over)
        gathers = self.kind == "reduce_scatter"
        return None, (AllGatherOp if gathers else ReduceScatterOp)(delta, **over)


class _Started:
    """The collectives that were started and not waited for, and arrays to receive into."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.requests: dict[int, tuple[Request, Any, Any]] = {}
        self.spare: dict[tuple[tuple[int, ...], DType], list[Any]] = {}
        self.lock = renewed(threading.RLock())

    def start(self, communicator: str, collective: Collective, x: Array) -> int:
        """Start a collective and return its number; its arrays are kept until it is waited for."""
        ranks = connected(communicator)
        shape = result_shape(collective, x.shape, ranks.size)
        with self.lock:
            spare = self.spare.get((shape, x.dtype))
            out = spare.pop() if spare else np.empty(shape, x.dtype)
            number = next(self.numbers)
            request = ranks.start(collective, x, out)
            self.requests[number] = request, x, out
        current_call().started(partial(self.abandon, number))
        return number

    def abandon(self, number: int) -> None:
        """Forget a collective that nobody waits for, unless somebody has."""
        found = self.requests.pop(number, None)
        if found is not None:
            found[0].abandon()

    def wait(self, number: int) -> Any:
        """Return the array that a collective received; raises CommunicationError if it failed."""
        found = self.requests.pop(number, None)
        if found is None:
            raise CommunicationError(f"no collective {number} was started and not waited for yet")
        request, _, out = found
        request.wait()
        return out

    def give_back(self, array: Array) -> None:
        """Keep an array for a later collective."""
        with self.lock:
            self.spare.setdefault((array.shape, array.dtype), []).append(array)


_started = _Started()


def communications(graph: Graph) -> Iterator[ExchangeOp]:
    """Yield the ops of a graph, and of those that it calls, that a communicator computes."""
    ops = (op for each in called_graphs(graph, own=True) for op in each.ops)
    return (op for op in ops if isinstance(op, ExchangeOp))


def communicators_of(graph: Graph) -> list[str]:
    """Return the names of the communicators through which a graph exchanges tensors, in order."""
    return sorted({op.communicator for op in communications(graph) if op.is_exchange})


def _exchanged_axes(kind: Kind, x: TensorOp, ranks: int) -> Axes:
    """Return the axes of what a collective gives each rank.

    Raises AxesError for a tensor without a part for each rank.
    """
    lengths: list[Any] = list(x.axes.lengths)
    if isinstance(lengths[0] if lengths else 0, int):
        try:
            lengths = list(result_shape(Collective(kind), x.axes.lengths, ranks))
        except ArgumentError as error:
            raise AxesError(error.problem) from None
    elif kind == "all_gather":
        lengths[0] = lengths[0] * ranks
    elif kind == "reduce_scatter":
        lengths[0] = lengths[0] // ranks
    return with_lengths(x.axes, lengths)


def _require_reducible(reduction: str, dtype: DType) -> None:
    if reduction not in REDUCTIONS:
        wanted = ", ".join(REDUCTIONS)
        raise ArgumentError(f"there is no reduction {reduction!r} over ranks: use {wanted} or mean")
    if reduction == "sum" and dtypes.is_bool(dtype):
        raise DTypeError("bools are not added up: cast them to an integer, or use max or min")
    if reduction != "sum" and dtype.kind == "c":
        raise DTypeError(f"complex numbers have no {reduction}")


def _over(communicator: str | None) -> dict[str, Any]:
    """Return the attributes that say over which ranks a collective is."""
    found = connected(communicator)
    return {"communicator": found.name, "ranks": found.size}


def rank_index(communicator: str | None = None) -> RankOp:
    """Return the number of the rank that computes it, from 0, as an int32 scalar.

    `communicator` is the name of a communicator; without it that of the context counts, see
    `weft.communicators`. Raises UnknownPluginError if nothing has the name.

    Examples
    --------
    Without a launcher there is one rank:

    >>> weft.jit(lambda: weft.rank_index())()
    array(0, dtype=int32)
    """
    return RankOp(**_over(communicator))


def all_reduce(
    x: TensorLike,
    reduction: Literal["sum", "mean", "max", "min"] = "sum",
    communicator: str | None = None,
) -> TensorOp:
    """Return the sum, mean, max or min of a tensor over all ranks; each rank gets all of it.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype.
    reduction
        ``"sum"``, ``"mean"``, ``"max"`` or ``"min"``. Of bools, max is or, and min is and.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor like x, the same on all ranks.

    Raises
    ------
    DTypeError
        For a sum of bools, and for a mean of what are not floats.
    ArgumentError
        If the reduction is another word.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    Ranks that are imitated all have the tensor of the only real one:

    >>> from weft.testing.imitation import imitated_ranks
    >>> with imitated_ranks(4):
    ...     weft.jit(weft.all_reduce)(np.array([1.0, 2.0]))
    array([4., 8.])
    """
    x = as_op(x)
    over = _over(communicator)
    if reduction != "mean":
        return AllReduceOp(x, reduction=reduction, **over)
    if not dtypes.is_inexact(x.dtype):
        raise _no_mean("all_reduce", x)
    total: TensorOp = AllReduceOp(x, reduction="sum", **over)
    return divide(total, over["ranks"])


def _no_mean(function: str, x: TensorOp) -> DTypeError:
    problem = f"a mean over ranks needs floats, not {x.dtype}: cast first"
    return DTypeError(explain(function, problem, (x,)))


def all_reduce_later(x: TensorLike, communicator: str | None = None) -> tuple[TensorOp, TensorOp]:
    """Start the sum of a tensor over all ranks; returns the op that starts and the op that waits.

    What is built between the two, and what does not need the sum, is computed while the ranks
    exchange it.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    tuple[TensorOp, TensorOp]
        The start, and the sum, a tensor like x.

    Raises
    ------
    DTypeError
        For bools.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> from weft.testing.imitation import imitated_ranks
    >>> with imitated_ranks(4):
    ...     weft.jit(lambda x: weft.all_reduce_later(x)[1])(np.array([1.0, 2.0]))
    array([4., 8.])
    """
    start = started("all_reduce", as_op(x), communicator)
    return start, waited(start)


def started(kind: Kind, x: TensorOp, communicator: str | None = None) -> StartCollectiveOp:
    """Return an op that starts a collective along the first axis; see `StartCollectiveOp`."""
    return StartCollectiveOp(x, kind=kind, **_over(communicator))


def waited(start: StartCollectiveOp) -> WaitCollectiveOp:
    """Return the result of the collective that an op starts."""
    over: dict[str, Any] = {"communicator": start.communicator, "ranks": start.ranks}
    return WaitCollectiveOp(start, start.args[0], kind=start.kind, **over)


def all_gather(x: TensorLike, axis: AxisKey = 0, communicator: str | None = None) -> TensorOp:
    """Return the tensors of all ranks, in their order, joined along an axis.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype. Scalars are joined to a vector.
    axis
        The axis, by position or name.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor with the axes of x, of which that one is as many times as long as there are ranks.

    Raises
    ------
    AxesError
        If there is no such axis.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> from weft.testing.imitation import imitated_ranks
    >>> with imitated_ranks(2):
    ...     weft.jit(weft.all_gather)(np.array([1.0, 2.0]))
    array([1., 2., 1., 2.])
    """
    x = as_op(x)
    if not x.axes:
        x = reshape(x, (1,))
    return _along("all_gather", axis, x, lambda first: AllGatherOp(first, **_over(communicator)))


def reduce_scatter(
    x: TensorLike,
    reduction: Literal["sum", "mean"] = "sum",
    axis: AxisKey = 0,
    communicator: str | None = None,
) -> TensorOp:
    """Return this rank's part, along an axis, of the sum or mean of a tensor over all ranks.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype.
    reduction
        ``"sum"`` or ``"mean"``.
    axis
        The axis that is divided, by position or name.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor with the axes of x, of which that one is as many times shorter as there are ranks.

    Raises
    ------
    AxesError
        If there is no such axis, or its length is not a multiple of the number of ranks.
    ArgumentError
        If the reduction is another word.
    DTypeError
        For a sum of bools, and for a mean of what are not floats.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> from weft.testing.imitation import imitated_ranks
    >>> with imitated_ranks(2):
    ...     weft.jit(weft.reduce_scatter)(np.array([1.0, 2.0, 3.0, 4.0]))
    array([2., 4.])
    """
    x = as_op(x)
    over = _over(communicator)
    if reduction not in ("sum", "mean"):
        problem = f"has the reductions sum and mean, not {reduction!r}"
        raise ArgumentError(explain("reduce_scatter", problem, (x,)))
    if reduction == "mean" and not dtypes.is_inexact(x.dtype):
        raise _no_mean("reduce_scatter", x)
    total = _along("reduce_scatter", axis, x, lambda first: ReduceScatterOp(first, **over))
    return divide(total, over["ranks"]) if reduction == "mean" else total


def broadcast_from(x: TensorLike, root: int = 0, communicator: str | None = None) -> TensorOp:
    """Return the tensor that one rank has, on all ranks.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype.
    root
        The number of the rank whose tensor it is.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor like x, the same on all ranks.

    Raises
    ------
    ArgumentError
        If there is no such rank.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> weft.jit(weft.broadcast_from)(np.array([1.0, 2.0]))
    array([1., 2.])
    """
    number = checked_integer("broadcast_from", "root", root)
    return BroadcastFromOp(as_op(x), root=number, **_over(communicator))


def all_to_all(x: TensorLike, axis: AxisKey = 0, communicator: str | None = None) -> TensorOp:
    """Return a tensor of the parts that all ranks have for this one, in the order of ranks.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype. It is divided into as many equal
        parts as there are ranks: part r is for rank r.
    axis
        The axis that is divided, by position or name.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor like x, with the parts along the same axis.

    Raises
    ------
    AxesError
        If there is no such axis, or its length is not a multiple of the number of ranks.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> from weft.testing.imitation import imitated_ranks
    >>> with imitated_ranks(2):
    ...     weft.jit(weft.all_to_all)(np.array([1.0, 2.0, 3.0, 4.0]))
    array([1., 2., 1., 2.])
    """
    over = _over(communicator)
    return _along("all_to_all", axis, as_op(x), lambda first: AllToAllOp(first, **over))


def send_receive(
    x: TensorLike, offset: int = 1, wraps: bool = True, communicator: str | None = None
) -> TensorOp:
    """Send a tensor to the rank `offset` above, and return that of the rank as much below.

    Parameters
    ----------
    x
        The tensor of this rank; all have the same axes and dtype.
    offset
        How many ranks above this one the receiver is; negative for one below.
    wraps
        Whether the first rank comes after the last one. Otherwise nothing does, and ranks that
        nobody sends to get zeros.
    communicator
        The name of a communicator; without it that of the context counts, see `weft.communicators`.

    Returns
    -------
    TensorOp
        A tensor like x.

    Raises
    ------
    ArgumentError
        If the offset is not a whole number.
    UnknownPluginError
        If no communicator has the name.

    Examples
    --------
    >>> weft.jit(weft.send_receive)(np.array([1.0, 2.0]))
    array([1., 2.])
    >>> weft.jit(lambda x: weft.send_receive(x, wraps=False))(np.array([1.0, 2.0]))
    array([0., 0.])
    """
    number = checked_integer("send_receive", "offset", offset)
    return SendReceiveOp(as_op(x), offset=number, wraps=bool(wraps), **_over(communicator))


def _along(
    function: str, axis: AxisKey, x: TensorOp, collective: Callable[[TensorOp], TensorOp]
) -> TensorOp:
    """Return a collective along an axis: those of the communicator are along the first."""
    if not x.axes:
        found: TensorOp = collective(x)
        return found
    position = explained(function, (x,), x.axes.position, axis)
    return moveaxis(collective(moveaxis(x, position, 0)), 0, position)
