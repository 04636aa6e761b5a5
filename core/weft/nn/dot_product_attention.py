"""Dot-product attention, its masks, its key-value cache, and embedding tables.

Tensors have the positional axes (..., heads, sequence, depth).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, SupportsIndex, Unpack

import numpy as np

from weft.errors import ArgumentError, AxesError, DTypeError
from weft.ir import dtypes
from weft.ir.axes import Axes, AxisKey, broadcast_axes
from weft.ir.dtypes import Array, DType, accumulator_dtype
from weft.ir.lengths import Length, product
from weft.ir.op import explain, explained
from weft.ir.storage import as_op, constant
from weft.ir.tensor import TensorLike, TensorOp
from weft.nn import blocked_attention
from weft.ops.arguments import (
    aligned_to,
    broadcast_in_dim,
    check_flags,
    checked_integer,
    checked_number,
)
from weft.ops.control.effects import stop_gradient
from weft.ops.control.scans import ScannableOp
from weft.ops.control.state import assign, value_of
from weft.ops.indexing.dynamic_slices import dynamic_update_slice
from weft.ops.indexing.gathering import as_indices, take
from weft.ops.indexing.segments import segment_max, segment_mean, segment_sum
from weft.ops.pointwise.comparison import (
    equal,
    greater,
    greater_equal,
    logical_and,
    logical_or,
    where,
)
from weft.ops.pointwise.elementwise import FloatOp, add, cast, common_dtype
from weft.ops.products.linalg import MatmulOp, matmul, matrix_transpose, require_positional
from weft.ops.products.roles import AttentionRoles, ProjectionRoles, RoleSignature, by_roles
from weft.ops.reductions.cumulative import place
from weft.ops.reductions.probabilities import SoftmaxOp
from weft.ops.reductions.reduction import MaxOp, SumOp
from weft.ops.reductions.sorting import searchsorted
from weft.ops.shape.movement import BroadcastOp, IotaOp, broadcast, cast_axes, size_of, transpose
from weft.ops.shape.views import WriteTarget
from weft.support.backports import override

__all__ = [
    "AttentionOp",
    "attention",
    "attention_with_cache",
    "embedding",
    "embedding_bag",
    "multi_head_attention",
    "update_cache",
]


class AttentionOp(ScannableOp):
    """Scaled dot-product attention: a weighted mean of the values for each query.

    The weights are ``softmax(scale * query keyᵀ + bias)`` along the keys. A query with all keys
    masked gives 0. Operands are query, key, value, and optionally a mask (bool, True for keys to
    attend to) and a bias, both with the axes (..., heads, queries, keys). Keys and values may have
    fewer heads, each shared by consecutive heads of the query. 16-bit floats are computed in
    float32. (Vaswani and others: Attention is all you need, 2017; Ainslie and others: GQA, 2023.)

    Attributes
    ----------
    is_causal
        Whether later keys are masked; the last query is aligned with the last key.
    scale
        The factor of the products of queries and keys.
    """

    is_causal: bool
    scale: float

    @override
    def infer(self) -> tuple[Axes, DType]:
        query, key, value, *extras = self.args
        ranks = {query.rank, key.rank, value.rank}
        if len(ranks) != 1 or query.rank < 3:
            raise AxesError(
                f"query, key and value must have the axes (..., heads, sequence, depth), not "
                f"{query.axes}, {key.axes} and {value.axes}"
            )
        self._check_pairs(query.axes, key.axes, value.axes)
        if {key.dtype, value.dtype} != {query.dtype} or not dtypes.is_float(query.dtype):
            given = f"{query.dtype}, {key.dtype} and {value.dtype}"
            raise DTypeError(f"query, key and value must be floats of one dtype, not {given}")
        kinds = [x.dtype for x in extras]
        if kinds not in ([], [dtypes.bool_], [query.dtype], [dtypes.bool_, query.dtype]):
            raise DTypeError(f"a mask is bool and a bias {query.dtype}, not {kinds}")
        for x in extras:
            if x.axes != self.score_axes:
                raise AxesError(f"a mask or bias must have {self.score_axes}, not {x.axes}")
        return Axes((*query.axes[:-1], value.axes[-1])), query.dtype

    def _check_pairs(self, query: Axes, key: Axes, value: Axes) -> None:
        if query[:-3] != key[:-3] or key[:-1] != value[:-1]:
            raise AxesError(
                f"key {key} and value {value} may differ in depth only, and their leading axes "
                f"must be those of the query {query}"
            )
        if query[-1] != key[-1]:
            raise AxesError(f"query {query} and key {key} differ in depth")
        heads, groups = query[-3].length, key[-3].length
        both_known = isinstance(heads, int) and isinstance(groups, int)
        if heads != groups and not (both_known and groups and heads % groups == 0):
            raise AxesError(
                f"the number of heads of the query, {heads}, is not a multiple of the key's, "
                f"{groups}"
            )

    @property
    def score_axes(self) -> Axes:
        """The axes of the attention scores."""
        query, key = self.args[0].axes, self.args[1].axes
        return Axes((*query[:-1], key[-2]))

    def reference(self, query: Array, key: Array, value: Array, *extras: Any) -> Any:
        """Compute the weighted mean of the values."""
        wide = accumulator_dtype(self.dtype)
        repeats = query.shape[-3] // key.shape[-3] if key.shape[-3] else 1
        key, value = (np.repeat(np.asarray(x, wide), repeats, axis=-3) for x in (key, value))
        scores = np.asarray(query, wide) @ np.swapaxes(key, -1, -2) * np.asarray(self.scale, wide)
        for x in extras:
            scores = np.where(x, scores, -np.inf) if x.dtype == bool else scores + x.astype(wide)
        if self.is_causal:
            queries, keys = scores.shape[-2:]
            scores = np.where(np.tri(queries, keys, keys - queries, bool), scores, -np.inf)
        top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(top == -np.inf, 0, top))
        total = np.sum(powers, axis=-1, keepdims=True)
        return (powers / np.where(total == 0, 1, total) @ value).astype(self.dtype)

    @override
    def decompose(self, *args: TensorOp) -> TensorOp:
        return self.attended(self.causal_mask() if self.is_causal else None)

    @override
    def scan(self) -> TensorOp | None:
        return blocked_attention.attention(self) if blocked_attention.is_blocked(self) else None

    def attended(self, allowed: TensorOp | None) -> TensorOp:
        """Return the result by products and a softmax, with a mask or None for all keys."""
        query, key, value = self._wide(*self.args[:3])
        weights = self._grouped(self._weights(query, key, allowed))
        return cast(cast_axes(MatmulOp(weights, value), self.axes), self.dtype)

    def causal_mask(self, first: TensorOp | None = None) -> TensorOp:
        """Return whether each key is not after a query.

        `first` is the last key of the first query; by default the last query has the last key.
        """
        square = Axes(self.score_axes[-2:])
        row, column = (
            IotaOp(target_axes=square, target_dtype=dtypes.int32, position=place)
            for place in (0, 1)
        )
        excess = square[1].length - square[0].length
        if isinstance(excess, Length):
            queries, keys = (size_of(Axes((axis,)), dtypes.int32) for axis in square)
            excess = keys - queries
        # The gradient builds this mask too; in its simplest form both are merged by CSE.
        offset = excess if first is None else first
        last = row if isinstance(offset, int) and offset == 0 else row + offset
        dims = self.rank - 2, self.rank - 1
        return BroadcastOp(greater_equal(last, column), target_axes=self.score_axes, dims=dims)

    def _wide(self, *operands: TensorOp) -> list[TensorOp]:
        return [cast(x, accumulator_dtype(self.dtype)) for x in operands]

    def _grouped(self, x: TensorOp) -> TensorOp:
        """Return a tensor with the heads that share keys merged into the axis of queries."""
        *batch, groups = self.args[1].axes[:-2]
        repeats = x.axes[-3].length // groups.length if groups.length else 1
        rows = x.axes[-2].length * repeats
        return cast_axes(x, (*(axis.length for axis in batch), groups, rows, x.axes[-1]))

    def _weights(self, query: TensorOp, key: TensorOp, allowed: TensorOp | None) -> TensorOp:
        """Return the attention weights, for all heads of the query."""
        extras = self.args[3:]
        products = MatmulOp(self._grouped(query * self.scale), matrix_transpose(key))
        scores = cast_axes(products, self.score_axes)
        may_exclude_all = bool(extras)
        for x in extras:
            is_mask = dtypes.is_bool(x.dtype)
            scores = where(x, scores, -math.inf) if is_mask else add(scores, cast(x, scores.dtype))
        if allowed is not None:
            scores = where(allowed, scores, -math.inf)
        if self.is_causal:
            excess = self.score_axes[-1].length - self.score_axes[-2].length
            may_exclude_all = may_exclude_all or not (isinstance(excess, int) and excess >= 0)
        if scores.axes[-1].length == 0:
            return scores
        positions = (scores.rank - 1,)
        if not may_exclude_all:
            return SoftmaxOp(scores, positions=positions)
        top = MaxOp(scores, positions=positions)
        dims = tuple(range(scores.rank - 1))
        looks = BroadcastOp(greater(top, -math.inf), target_axes=scores.axes, dims=dims)
        return where(looks, SoftmaxOp(where(looks, scores, 0), positions=positions), 0)

    def generate_adjoints(self, delta: TensorOp, *args: TensorOp) -> list[TensorOp | None]:
        """Differentiate the products and the softmax, with recomputed weights."""
        shares = zip(args, self.all_adjoints(delta, self), strict=True)
        return [None if dtypes.is_bool(x.dtype) else cast(share, self.dtype) for x, share in shares]

    def all_adjoints(self, delta: TensorOp, result: TensorOp) -> list[TensorOp]:
        """Return wide contributions to all operands, given those to the result."""
        if blocked_attention.is_blocked(self):
            return blocked_attention.adjoints(self, delta, result)
        return self.adjoints(delta, result, self.causal_mask() if self.is_causal else None)

    def adjoints(
        self, delta: TensorOp, result: TensorOp, allowed: TensorOp | None
    ) -> list[TensorOp]:
        """Return these contributions from the weights of all keys, or of those in a mask."""
        query, key, value, slopes, result = self._wide(*self.args[:3], delta, result)
        weights = self._grouped(self._weights(query, key, allowed))
        slopes, result = self._grouped(slopes), self._grouped(result)
        by_value = MatmulOp(matrix_transpose(weights), slopes)
        share = SumOp(slopes * result, positions=(slopes.rank - 1,))
        spread = BroadcastOp(share, target_axes=weights.axes, dims=tuple(range(share.rank)))
        by_score = weights * (MatmulOp(slopes, matrix_transpose(value)) - spread)
        by_query = cast_axes(MatmulOp(by_score, key) * self.scale, query.axes)
        by_key = MatmulOp(matrix_transpose(by_score), self._grouped(query)) * self.scale
        by_extra = cast_axes(by_score, self.score_axes)
        return [by_query, by_key, by_value, *(by_extra for _ in self.args[3:])]


_SCORES = "batch... heads? time? keys"
_ATTENTION = RoleSignature(
    "batch... heads? time features",
    "batch... heads? keys features",
    "batch... heads? keys depth",
    _SCORES,
    _SCORES,
    results=["batch... heads? time depth"],
    same={"keys": "time", "depth": "features"},
)
_CACHED = RoleSignature(
    "batch... heads? time features",
    "batch... heads? time features",
    "batch... heads? time depth",
    "batch... heads? keys features",
    "batch... heads? keys depth",
    _SCORES,
    results=["batch... heads? time depth"],
    same={"keys": "time", "depth": "features"},
)
_PROJECTION = "projected features+"
_HEADS = RoleSignature(
    "batch... time features+",
    "batch... keys features+",
    "batch... keys features+",
    *[_PROJECTION] * 3,
    "out projected",
    *["projected"] * 3,
    "out",
    _SCORES,
    _SCORES,
    results=["batch... time out"],
    same={"keys": "time", "out": "features"},
)


def attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    **axes: Unpack[AttentionRoles],
) -> TensorOp:
    """Return scaled dot-product attention, ``softmax(scale query keyᵀ + bias) value``.

    (Vaswani et al.: Attention is all you need, 2017; Ainslie et al.: GQA, 2023.)

    Parameters
    ----------
    query
        Queries, (..., heads, sequence, depth), or (sequence, depth) for one head.
    key, value
        Keys and values, (..., heads, keys, depth); the depth of values may be another one. Leading
        axes of the three broadcast. The number of heads may be a divisor of that of the queries:
        consecutive heads of these then share keys.
    mask
        Bools, True for keys to attend to, or floats that are added like `bias`. It broadcasts to
        (..., heads, sequence, keys).
    bias
        Floats that are added to the scores; it broadcasts as the mask does.
    is_causal
        Whether later keys are masked. The last query is aligned with the last key, which suits a
        cache with more keys than queries.
    scale
        The factor of the products; by default ``1 / sqrt(depth)``.
    **axes
        Which named axes play a role, for operands whose axes have names; they may then be in any
        order: the ``time=`` of queries, by default ``REC``; the sequence of ``keys=``, by default
        of the same name; ``heads=``, if there is one; the ``features=``; and the ``depth=`` of
        values, by default of the same name. The others are the ``batch=``, by default ``N``,
        aligned by name.

    Returns
    -------
    TensorOp
        A weighted mean of the values for each query: the axes of the query, with the depth of
        values. A query with all keys masked gives 0. Integers count as float32; 16-bit floats are
        computed in float32.

    Raises
    ------
    AxesError
        If shapes do not fit.
    DTypeError
        If a mask or bias has another dtype.
    ArgumentError
        If `is_causal` is not a bool, `scale` is not a finite number, or a role does not exist.

    Examples
    --------
    >>> query, key = np.zeros((2, 4)), np.ones((2, 4))
    >>> value = np.array([[1.0], [3.0]])
    >>> weft.jit(weft.attention)(query, key, value)
    array([[2.],
           [2.]])
    >>> weft.jit(lambda *args: weft.attention(*args, is_causal=True))(query, key, value)
    array([[1.],
           [2.]])
    >>> weft.jit(weft.attention)(query, key, value, np.array([False, True]))
    array([[3.],
           [3.]])
    """

    def apply(query: Any, key: Any, value: Any, mask: Any, bias: Any) -> TensorOp:
        return _attention(query, key, value, mask, bias, is_causal, scale)

    return by_roles("attention", _ATTENTION, (query, key, value, mask, bias), axes, apply)


def _attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    mask: TensorLike | None,
    bias: TensorLike | None,
    is_causal: bool,
    scale: float | None,
) -> TensorOp:
    given = [as_op(x) for x in (query, key, value)]
    extras = [as_op(x) for x in (mask, bias) if x is not None]
    check_flags("attention", given, is_causal=is_causal)
    operands = explained("attention", given, _aligned, given, extras)
    factor = _scale(operands[0]) if scale is None else scale
    factor = checked_number("attention", "scale", factor, low=-math.inf)
    result = AttentionOp(*operands, is_causal=is_causal, scale=factor)
    return cast_axes(result, result.axes[1:]) if given[0].rank == 2 else result


def _aligned(given: Sequence[TensorOp], extras: Sequence[TensorOp]) -> list[TensorOp]:
    """Return the operands of an `AttentionOp`, in one dtype and with common leading axes."""
    masks = [x for x in extras if dtypes.is_bool(x.dtype)]
    biases = [x for x in extras if not dtypes.is_bool(x.dtype)]
    for x in biases:
        if not dtypes.is_float(x.dtype):
            raise DTypeError(f"a mask must be bool, or floats to add, not {x.dtype}")
    dtype = FloatOp.operand_dtype(common_dtype([*given, *biases]))
    ranks = {x.rank for x in given}
    if min(ranks) < 3 and ranks != {2}:
        listed = ", ".join(str(x.axes) for x in given)
        raise AxesError(f"query, key and value need ranks of 3 or more, or all of 2, not {listed}")
    ops = [cast(x, dtype) for x in given]
    if ranks == {2}:
        ops = [cast_axes(x, (1, *x.axes.lengths)) for x in ops]
    batch = reduce(broadcast_axes, (x.axes[:-3] for x in ops))
    ops = [broadcast(x, Axes((*batch, *x.axes[-3:]))) for x in ops]
    scores = Axes((*ops[0].axes[:-1], ops[1].axes[-2]))
    ops += [broadcast(reduce(logical_and, masks), scores)] if masks else []
    return ops + ([broadcast(cast(reduce(add, biases), dtype), scores)] if biases else [])


def _scale(query: TensorOp) -> float:
    depth = query.axes[-1].length
    if not isinstance(depth, int):
        problem = f"the depth of {query.axes} is unknown until a call: give a scale"
        raise AxesError(explain("attention", problem, (query,)))
    return 1 / math.sqrt(depth) if depth else 1.0


def update_cache(
    cache: TensorOp, new: TensorLike, position: TensorOp | SupportsIndex, axis: AxisKey = -2
) -> TensorOp:
    """Write new slices into a state along an axis, starting at a position, and return the state.

    The write happens in every computation that uses the result.

    Parameters
    ----------
    cache
        A state, such as a `persistent_tensor`, or a view of one that `assign` takes. An argument of
        a traced function may be one: what the function builds or returns of it afterwards is the
        new value, and the caller's array stays as it is.
    new
        The slices, with the axes of the cache, of which that one is as long or shorter.
    position
        Where the first of them goes: an integer, or an integer scalar, such as a state. If it is
        too close to the end it is moved back, as by `dynamic_update_slice`.
    axis
        The axis, by position or name; by default that of the sequence in (..., sequence, depth).

    Returns
    -------
    TensorOp
        The whole cache after the write.

    Raises
    ------
    StateError
        If the cache is not a state.
    AxesError
        If there is no such axis, the slices do not fit the cache, or the position is not a scalar.
    ArgumentError
        If the position is negative.

    Examples
    --------
    >>> cache = weft.persistent_tensor((3, 2), "float64", 0)
    >>> row = weft.update_cache(cache, np.array([[1.0, 2.0]]), 1)
    >>> weft.make_transformer().computation(row)()
    array([[0., 0.],
           [1., 2.],
           [0., 0.]])
    """
    new, at = as_op(new), _position("update_cache", position)
    held = WriteTarget("update_cache", cache).value
    starts = [0] * held.rank
    if held.rank:
        starts[place("update_cache", held, axis)] = at
    assign(cache, explained("update_cache", (held, new), dynamic_update_slice, held, new, starts))
    return value_of(WriteTarget("update_cache", cache).value)


def _position(function: str, position: TensorOp | SupportsIndex) -> Any:
    """Return a position in a sequence: an integer, or an integer scalar."""
    if not isinstance(position, TensorOp):
        return checked_integer(function, "position", position, low=0)
    if position.axes or not dtypes.is_integer(position.dtype):
        problem = f"position must be an integer scalar, not {position.dtype} {position.axes}"
        raise AxesError(explain(function, problem, (position,)))
    return position


def attention_with_cache(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    key_cache: TensorOp,
    value_cache: TensorOp,
    position: TensorOp | SupportsIndex,
    bias: TensorLike | None = None,
    scale: float | None = None,
    **axes: Unpack[AttentionRoles],
) -> TensorOp:
    """Return the causal `attention` of new queries, with keys and values cached in two states.

    The new keys and values are written into the caches by `update_cache`. A query attends to all
    earlier keys and its own. So one computation decodes token by token.

    Parameters
    ----------
    query, key, value
        The new ones, (..., heads, sequence, depth), as for `attention`; there are as many keys as
        queries.
    key_cache, value_cache
        States, (..., heads, longest sequence, depth).
    position
        How many keys are cached already, where the new ones go: an integer, or an integer scalar,
        such as a state that counts them.
    bias
        Floats that are added to the scores; it broadcasts to (..., heads, sequence, longest
        sequence).
    scale
        The factor of the products; by default ``1 / sqrt(depth)``.
    **axes
        The roles of named axes, as for `attention`: ``time=`` is the sequence of queries and new
        keys, ``keys=`` that of the caches.

    Returns
    -------
    TensorOp
        The results for the new queries, with the axes of the query and the depth of values.

    Raises
    ------
    AxesError, DTypeError, ArgumentError
        As by `attention`, and for a position that is not an integer scalar.
    StateError
        If a cache is not a state.

    Examples
    --------
    >>> keys, values = (weft.persistent_tensor((1, 8, 4), "float64", 0) for _ in range(2))
    >>> token = weft.placeholder((1, 1, 4), "float64")
    >>> position = weft.placeholder((), "int32")
    >>> y = weft.attention_with_cache(token, token, token, keys, values, position)
    >>> decode = weft.make_transformer().computation(y, token, position)
    >>> decode(np.full((1, 1, 4), 1.0), 0)
    array([[[1., 1., 1., 1.]]])
    >>> decode(np.full((1, 1, 4), 0.0), 1)
    array([[[0.5, 0.5, 0.5, 0.5]]])
    """

    def apply(query: Any, key: Any, value: Any, *rest: Any) -> TensorOp:
        return _with_cache(query, key, value, rest[0], rest[1], position, rest[2], scale)

    operands = (query, key, value, key_cache, value_cache, bias)
    return by_roles("attention_with_cache", _CACHED, operands, axes, apply)


def _with_cache(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    key_cache: TensorOp,
    value_cache: TensorOp,
    position: TensorOp | SupportsIndex,
    bias: TensorLike | None,
    scale: float | None,
) -> TensorOp:
    at = _position("attention_with_cache", position)
    keys = update_cache(key_cache, key, at)
    values = update_cache(value_cache, value, at)
    new, longest = as_op(query).axes[-2:-1], keys.axes[-2:-1]
    axes = Axes((*new, *longest))
    row, column = (
        IotaOp(target_axes=axes, target_dtype=dtypes.int64, position=number) for number in (0, 1)
    )
    last = row + (cast(at, dtypes.int64) if isinstance(at, TensorOp) else at)
    return attention(query, keys, values, greater_equal(last, column), bias, scale=scale)


def multi_head_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    weights: Sequence[Any],
    heads: int,
    biases: Sequence[Any] | None = None,
    key_heads: int | None = None,
    mask: TensorLike | None = None,
    bias: TensorLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    **axes: Unpack[ProjectionRoles],
) -> TensorOp:
    """Return multi-head attention, with linear projections of query, key, value and result.

    (Vaswani et al.: Attention is all you need, 2017.)

    Parameters
    ----------
    query
        Inputs (..., sequence, features) of the queries.
    key, value
        Inputs (..., keys, features) of keys and values.
    weights
        Four matrices (outputs, inputs), for queries, keys, values and the result, as in PyTorch.
        Queries have ``heads * depth`` outputs, keys and values ``key_heads * depth``.
    heads
        The number of heads, among which the projected queries are split evenly.
    biases
        Four vectors (outputs,) or Nones; by default none is added.
    key_heads
        The number of heads of keys and values, a divisor of `heads` and by default the same; each
        is shared by consecutive heads of queries.
    mask
        Bools, True for keys to attend to, or floats to add. It broadcasts to (..., heads, sequence,
        keys).
    bias
        Floats that are added to the scores; it broadcasts as the mask does.
    is_causal
        Whether later keys are masked; the last query is aligned with the last key.
    scale
        The factor of the products; by default ``1 / sqrt(depth)``.
    **axes
        The roles of named axes, as for `attention`: ``batch=``, ``time=``, ``keys=``, ``features=``
        and ``projected=``, the axis of weights beside the features, or of the result's inputs.
        Weights may also be positional.

    Returns
    -------
    TensorOp
        (..., sequence, outputs of the last matrix), in the promoted dtype.

    Raises
    ------
    AxesError
        If shapes do not fit, or outputs are not split evenly.
    DTypeError
        If a mask or bias has another dtype.
    ArgumentError
        If there are not four weights or biases, or an option is not what it should be.

    Examples
    --------
    >>> x, weights = np.ones((2, 5, 8)), [np.eye(8)] * 4
    >>> attend = weft.jit(lambda x, weights: weft.multi_head_attention(x, x, x, weights, heads=2))
    >>> attend(x, weights).shape
    (2, 5, 8)
    """
    count = checked_integer("multi_head_attention", "heads", heads, low=1)
    fewer = checked_integer("multi_head_attention", "key_heads", key_heads or heads, low=1)
    matrices, vectors = _four("weights", weights), _four("biases", biases or [None] * 4)

    def apply(*operands: Any) -> TensorOp:
        pairs = list(zip(operands[3:7], operands[7:11], strict=True))
        query, key, value = (
            _split_heads(_projected(as_op(x), *pair), number)
            for x, pair, number in zip(operands[:3], pairs, (count, fewer, fewer), strict=False)
        )
        mask, bias = operands[11:]
        result = _attention(query, key, value, mask, bias, is_causal, scale)
        order = (*range(result.rank - 3), result.rank - 2, result.rank - 3, result.rank - 1)
        rows = transpose(result, order)
        merged = cast_axes(rows, (*rows.axes[:-2], product(rows.axes[-2:].lengths)))
        return _projected(merged, *pairs[3])

    several = (query, key, value, *matrices, *vectors, mask, bias)
    return by_roles("multi_head_attention", _HEADS, several, axes, apply)


def _four(name: str, several: Sequence[Any]) -> list[Any]:
    if not isinstance(several, list | tuple) or len(several) != 4:
        problem = (
            f"{name} must be a list of four, for query, key, value and result, not {several!r}"
        )
        raise ArgumentError(explain("multi_head_attention", problem, ()))
    return list(several)


def _projected(x: TensorOp, weight: TensorLike, bias: TensorOp | None) -> TensorOp:
    """Return a linear projection of the last axis."""
    matrix = as_op(weight)
    require_positional("multi_head_attention", x, matrix)
    if x.rank < 2 or matrix.rank != 2 or x.axes[-1] != matrix.axes[-1]:
        problem = f"the weights {matrix.axes} do not fit the features of {x.axes}"
        raise AxesError(explain("multi_head_attention", problem, (x, matrix)))
    result = matmul(x, matrix_transpose(matrix))
    return result if bias is None else result + bias


def _split_heads(x: TensorOp, heads: int) -> TensorOp:
    *batch, sequence, features = x.axes.lengths
    if not isinstance(features, int) or features % heads:
        problem = f"{features} features cannot be split among {heads} heads"
        raise AxesError(explain("multi_head_attention", problem, (x,)))
    rows = cast_axes(x, (*batch, sequence, heads, features // heads))
    rank = rows.rank
    return transpose(rows, (*range(rank - 3), rank - 2, rank - 3, rank - 1))


def embedding(table: TensorLike, indices: TensorLike, padding_index: int | None = None) -> TensorOp:
    """Return the rows of a table at indices, whose axes replace the first axis of the table.

    It is `take` along that axis. The gradient is summed into the rows that were taken.

    Parameters
    ----------
    table
        The rows, (rows, features).
    indices
        Integers of any shape; negative ones count from the end.
    padding_index
        A row that gets no gradient; by default there is none.

    Returns
    -------
    TensorOp
        The rows: the axes of the indices, then those of a row, in the dtype of the table.

    Raises
    ------
    AxesError
        If the table is a scalar, or `padding_index` is out of range.
    DTypeError
        If indices are not integers.
    IndexOutOfRange
        In a call, for an index out of range.

    Examples
    --------
    >>> table = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> weft.jit(weft.embedding)(table, np.array([2, 0]))
    array([[4., 5.],
           [0., 1.]])
    """
    rows, places = as_op(table), as_indices(indices)
    if not rows.axes:
        problem = "the table needs an axis, but is a scalar"
        raise AxesError(explain("embedding", problem, (rows,)))
    result = take(rows, places, 0)
    if padding_index is None:
        return result
    is_padding = _is_padding("embedding", rows, places, padding_index)
    spread = BroadcastOp(is_padding, target_axes=result.axes, dims=tuple(range(places.rank)))
    return where(spread, stop_gradient(result), result)


def _is_padding(function: str, rows: TensorOp, places: TensorOp, padding_index: int) -> TensorOp:
    """Return a mask of the indices of the row that is padding."""
    padding = checked_integer(function, "padding_index", padding_index)
    length = rows.axes[0].length
    if not isinstance(length, int) or not -length <= padding < length:
        problem = f"padding_index {padding} is out of range for a table of {length} rows"
        raise AxesError(explain(function, problem, (rows,)))
    wide = cast(places, dtypes.int64)
    return logical_or(equal(wide, padding % length), equal(wide, padding % length - length))


_BAGS: dict[str, Callable[..., TensorOp]] = {
    "sum": segment_sum, "mean": segment_mean, "max": segment_max,
}  # fmt: skip


def embedding_bag(
    table: TensorLike,
    indices: TensorLike,
    offsets: TensorLike | None = None,
    mode: str = "mean",
    per_sample_weights: TensorLike | None = None,
    padding_index: int | None = None,
) -> TensorOp:
    """Return the sum, mean or maximum of the rows of a table for each bag of indices.

    An empty bag gives 0.

    Parameters
    ----------
    table
        The rows, (rows, features).
    indices
        Integers (bags, indices); or a vector of all bags, one after the other, with offsets.
        Negative ones count from the end.
    offsets
        The place in the vector where each bag begins, in ascending order.
    mode
        ``"sum"``, ``"mean"`` or ``"max"``.
    per_sample_weights
        Factors of the rows, with the axes of the indices, for sums; by default 1.
    padding_index
        A row that counts for nothing and gets no gradient; by default there is none.

    Returns
    -------
    TensorOp
        (bags, features), in the dtype of the table, float32 for a mean of integers.

    Raises
    ------
    AxesError
        If the table is a scalar, indices, offsets or weights have other axes, or `padding_index`
        is out of range.
    ArgumentError
        If there is no such mode, or weights come with another than ``"sum"``.
    DTypeError
        If indices or offsets are not integers.
    IndexOutOfRange
        In a call, for an index out of range.

    Examples
    --------
    >>> table = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> weft.jit(weft.embedding_bag)(table, np.array([[1, 2], [0, 0]]))
    array([[3., 4.],
           [0., 1.]])
    >>> indices, offsets = np.array([1, 2, 0]), np.array([0, 2, 3])
    >>> weft.jit(lambda x, i, at: weft.embedding_bag(x, i, at, "sum"))(table, indices, offsets)
    array([[6., 8.],
           [0., 1.],
           [0., 0.]])
    """
    function, rows, places = "embedding_bag", as_op(table), as_indices(indices)
    if mode not in _BAGS:
        problem = f"the mode must be one of {', '.join(_BAGS)}, not {mode!r}"
        raise ArgumentError(explain(function, problem, (places,)))
    if per_sample_weights is not None and mode != "sum":
        problem = f"per_sample_weights are factors in a 'sum', not in a {mode!r}"
        raise ArgumentError(explain(function, problem, (places,)))
    starts = None if offsets is None else as_indices(offsets)
    if places.rank != (2 if starts is None else 1) or (starts is not None and starts.rank != 1):
        problem = "takes a matrix of indices, or a vector with a vector of offsets, not"
        given = f"{places.axes}" if starts is None else f"{places.axes} and {starts.axes}"
        raise AxesError(explain(function, f"{problem} {given}", (places,)))
    taken = embedding(rows, places)
    bags = (places if starts is None else starts).axes[0]
    if starts is None:
        bag: TensorOp = IotaOp(target_axes=places.axes, target_dtype=dtypes.int64, position=0)
    else:
        number = IotaOp(target_axes=places.axes, target_dtype=dtypes.int64, position=0)
        bag = searchsorted(starts, number, "right") - 1
    if padding_index is not None:
        bag = where(_is_padding(function, rows, places, padding_index), -1, bag)
    if per_sample_weights is not None:
        weights = aligned_to(function, "per_sample_weights", per_sample_weights, places.axes)
        spread = broadcast_in_dim(weights, taken, tuple(range(places.rank)))
        taken = taken * cast(spread, taken.dtype)
    result = _BAGS[mode](taken, bag, bags)
    if mode != "max":
        return result
    ones = broadcast(constant(1, dtype=dtypes.int32), bag.axes)
    is_empty = equal(segment_sum(ones, bag, bags), 0)
    return where(broadcast_in_dim(is_empty, result, (0,)), 0, result)
