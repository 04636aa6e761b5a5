"""Rows of the op table: attention and embeddings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, IndexOutOfRange, StateError
from weft.ir.dtypes import Array
from weft.ir.tensor import TensorOp
from weft.testing.table.rows import FIXED, NUMBERS, Operand, Refusal, Row, Shapes, operands


def _attention(
    query: Array,
    key: Array,
    value: Array,
    allowed: Array | None = None,
    bias: Array | float = 0.0,
    scale: float | None = None,
) -> Any:
    """Return attention computed query by query, over the unmasked keys."""
    batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    query, key, value = (
        np.broadcast_to(x, (*batch, *x.shape[-3:])).astype(np.float64) for x in (query, key, value)
    )
    *_, heads, queries, depth = query.shape
    scores = (*batch, heads, queries, key.shape[-2])
    allowed = np.broadcast_to(True if allowed is None else allowed, scores)
    bias = np.broadcast_to(bias, scores)
    scale = 1 / np.sqrt(depth) if scale is None else scale
    result = np.zeros((*batch, heads, queries, value.shape[-1]))
    for place in np.ndindex(*batch, heads, queries):
        shared = (*place[:-2], place[-2] * key.shape[-3] // heads)
        chosen = allowed[place] & (bias[place] > -np.inf)
        if chosen.any():
            fits = key[shared][chosen] @ query[place] * scale + bias[place][chosen]
            weights = np.exp(fits - fits.max())
            result[place] = weights / weights.sum() @ value[shared][chosen]
    return result


def _causal(query: Array, key: Array) -> Any:
    queries, keys = query.shape[-2], key.shape[-2]
    return np.arange(keys) <= np.arange(queries)[:, None] + keys - queries


def _causal_attention(query: Array, key: Array, value: Array) -> Any:
    return _attention(query, key, value, _causal(query, key))


_MASK = np.array([[True, False, True, True], [False] * 4, [False, False, True, False]])
_BIAS = np.where(_MASK, 0.5, -np.inf).astype(np.float32)

_TRIPLES: Shapes = (
    ((2, 3, 2), (2, 4, 2), (2, 4, 3)),
    ((3, 2), (4, 2), (4, 1)),
    ((2, 2, 1, 2), (2, 3, 2), (2, 3, 1)),
    ((1, 1, 1), (1, 5, 1), (1, 5, 2)),
    ((4, 3, 2), (2, 4, 2), (2, 4, 3)),
    ((2, 3, 2), (1, 4, 2), (1, 4, 3)),
    ((0, 2, 3, 2), (2, 4, 2), (2, 4, 3)),
    ((2, 0, 2), (2, 4, 2), (2, 4, 3)),
    ((2, 3, 2), (2, 0, 2), (2, 0, 3)),
)
"""Shapes with batches, single heads, heads that share keys, and empty axes."""

_CAUSAL_TRIPLES: Shapes = (
    ((2, 3, 2), (2, 4, 2), (2, 4, 3)),
    ((1, 3, 2), (1, 3, 2), (1, 3, 2)),
    ((2, 4, 2), (1, 2, 2), (1, 2, 3)),
    ((3, 2), (3, 2), (3, 1)),
)
"""More, as many, and fewer keys than queries, so that the first queries are fully masked."""

_THREE = operands("any", "any", "any")


def _decoded(query: TensorOp, key: TensorOp, value: TensorOp) -> Any:
    """Return causal attention computed token by token, with a cache longer than the sequence."""
    keys, values = (
        weft.persistent_tensor(
            (*x.shape[:-2], x.shape[-2] + 2, x.shape[-1]), x.dtype, initial_value=0
        )
        for x in (key, value)
    )
    results = []
    with weft.saved_user_deps():
        for place in range(query.shape[-2]):
            now = slice(place, place + 1)
            given = [x[..., now, :] for x in (query, key, value)]
            at = weft.constant(place, dtype="int32")
            results.append(weft.attention_with_cache(*given, keys, values, at))
    return weft.concat(results, -2)


def _prefilled(query: TensorOp, key: TensorOp, value: TensorOp) -> Any:
    """Return causal attention of the whole sequence, through a cache."""
    caches = [weft.persistent_tensor(x.axes, x.dtype, initial_value=0) for x in (key, value)]
    with weft.saved_user_deps():
        return weft.attention_with_cache(query, key, value, *caches, 0)


def _cached(x: TensorOp) -> Any:
    cache = weft.persistent_tensor((4, 2), x.dtype, 1.0)
    with weft.saved_user_deps():
        first = weft.update_cache(cache, x, 3)
        return first + weft.update_cache(cache, x[:1], weft.constant(1, dtype="int64"))


def _cached_arrays(x: Array) -> Any:
    first = np.concatenate([np.ones((2, 2)), x])
    second = first.copy()
    second[1] = x[0]
    return first + second


_EIGHT = operands(*["any"] * 8)
_PROJECTIONS: Shapes = (((3, 2), (4, 2), (2, 2), (2, 2), (3, 4), (4,), (2,), (3,)),)


def _projected(x: TensorOp, *rest: TensorOp) -> Any:
    weights, (query, key, result) = rest[:4], rest[4:]
    biases = (query, key, None, result)
    return weft.multi_head_attention(x, x, x, weights, 2, biases, key_heads=1, is_causal=True)


def _projected_arrays(x: Array, *rest: Any) -> Any:
    (wq, wk, wv, wo), (bq, bk, bo) = rest[:4], rest[4:]
    query = np.stack(np.split(x @ wq.T + bq, 2, axis=-1))
    key, value = (x @ wk.T + bk)[None], (x @ wv.T)[None]
    heads = _attention(query, key, value, _causal(query, key))
    return np.concatenate(list(heads), axis=-1) @ wo.T + bo


def _plainly_projected(
    x: TensorOp, y: TensorOp, wq: TensorOp, wk: TensorOp, wv: TensorOp, wo: TensorOp
) -> Any:
    return weft.multi_head_attention(x, y, y, (wq, wk, wv, wo), 2)


def _plainly_projected_arrays(
    x: Array, y: Array, wq: Array, wk: Array, wv: Array, wo: Array
) -> Any:
    query, key, value = (
        np.stack(np.split(z, 2, axis=-1), axis=-3) for z in (x @ wq.T, y @ wk.T, y @ wv.T)
    )
    heads = _attention(query, key, value)
    return np.concatenate([heads[..., 0, :, :], heads[..., 1, :, :]], axis=-1) @ wo.T


def _rotated(x: Array, places: Any = None, interleaved: bool = False, base: float = 1e4) -> Any:
    """Return pairs rotated by complex multiplication."""
    depth = x.shape[-1]
    places = np.arange(x.shape[-2]) if places is None else places
    turns = np.exp(1j * np.asarray(places)[..., None] / base ** (np.arange(0, depth, 2) / depth))
    if interleaved:
        pairs = (x[..., ::2] + 1j * x[..., 1::2]) * turns
        return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)
    pairs = (x[..., : depth // 2] + 1j * x[..., depth // 2 :]) * turns
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def _waves(places: Any, depth: int, base: float = 1e4) -> Any:
    result = np.zeros((*np.shape(places), depth))
    for i in range(depth):
        angle = np.asarray(places, np.float64) / base ** ((i - i % 2) / depth)
        result[..., i] = np.cos(angle) if i % 2 else np.sin(angle)
    return result


def _distances(slopes: Any, queries: int, keys: int) -> Any:
    last = np.arange(queries)[:, None] + keys - queries
    return -np.array(slopes)[:, None, None] * np.abs(last - np.arange(keys))


_SEQUENCES: Shapes = (((2, 3, 4),), ((3, 2),), ((1, 2, 1, 6),), ((2, 0, 4),), ((3, 0),))
_NOTHING: Shapes = ((),)

_PLACE = Operand("place", dtype="int32", differentiable=False)
_V, _F, _T = weft.Axis(3, "V"), weft.Axis(2, "F"), weft.Axis(4, "T")
_BAGGED: Shapes = (
    ((3, 2), (2, 3)), ((3, 2), (2, 0)), ((3, 2), (0, 3)), ((3, 2), (1, 1)),
    ((_V, _F), (weft.Axis(2, "N"), _T)),
)  # fmt: skip

_OFFSETS = weft.constant(np.array([0, 2, 2, 5]))


def _bags(x: Array, indices: Array, over: Any) -> Any:
    """Return what is over the rows of each bag but the last row of the table."""
    starts = [*_OFFSETS.const, len(indices)]
    bags = [indices[first:end] for first, end in itertools.pairwise(starts)]
    rows = [x[bag[bag % len(x) != len(x) - 1]] for bag in bags]
    return np.stack([over(each, axis=0) if len(each) else np.zeros(x.shape[1:]) for each in rows])


_TABLES: Shapes = (
    ((3, 2), (2, 3)), ((3, 2), ()), ((4, 2, 2), (5,)), ((3,), (2, 2)), ((3, 0), (2,)),
    ((3, 2), (0,)), ((_V, _F), (_T,)), ((_V, _F), (weft.Axis(2, "N"), _T)),
)  # fmt: skip

_ATTENTION: tuple[Row, ...] = (
    Row("attention", weft.attention, _THREE, _TRIPLES, expected=_attention, twice=True),
    Row("attention", lambda q, k, v: weft.attention(q, k, v, is_causal=True), _THREE,
        _CAUSAL_TRIPLES, expected=_causal_attention, case="causal", twice=True),
    Row("attention", lambda q, k, v: weft.attention(q, k, v, is_causal=True), _THREE,
        (((1, 4, 2), (1, 2, 2), (1, 2, 3)),), expected=_causal_attention, case="causal-nowhere",
        twice=True),
    Row("attention", lambda q, k, v: weft.attention(q, k, v, weft.constant(_MASK), scale=0.3),
        _THREE, _TRIPLES[:1], case="mask", twice=True,
        expected=lambda q, k, v: _attention(q, k, v, _MASK, scale=0.3)),
    Row("attention", lambda q, k, v: weft.attention(q, k, v, weft.constant(_BIAS)), _THREE,
        (_TRIPLES[0], _TRIPLES[4]), case="additive-mask",
        expected=lambda q, k, v: _attention(q, k, v, _MASK, 0.5), twice=True),
    Row("attention", lambda q, k, v, m, b: weft.attention(q, k, v, m, b, is_causal=True),
        (*_THREE, Operand(dtype="bool", differentiable=False), Operand()),
        (((2, 3, 2), (1, 4, 2), (1, 4, 2), (2, 3, 4), (2, 1, 4)),
         ((2, 3, 2), (2, 4, 2), (2, 4, 2), (4,), ())),
        expected=lambda q, k, v, m, b: _attention(q, k, v, m & _causal(q, k), b),
        case="mask-and-bias", twice=True),
    Row("attention", weft.attention, (FIXED,) * 3, _TRIPLES[:1], ("int32",), _attention,
        case="integers", is_generic=False),
    Row("attention", lambda q, k, v: weft.attention(q * 500, k * 500, v), (FIXED,) * 3,
        _TRIPLES[:1], case="large", is_generic=False,
        expected=lambda q, k, v: _attention(q * 500, k * 500, v)),
    Row("attention_with_cache", _decoded, (FIXED,) * 3,
        (((2, 3, 2), (2, 3, 2), (2, 3, 1)), ((2, 2, 2), (1, 2, 2), (1, 2, 2)),
         ((2, 2), (2, 2), (2, 2))), expected=_causal_attention),
    Row("attention_with_cache", _prefilled, (FIXED,) * 3, (((2, 3, 2), (2, 3, 2), (2, 3, 1)),),
        expected=_causal_attention, case="whole"),
    Row("update_cache", _cached, (FIXED,), (((2, 2),),), expected=_cached_arrays),
    Row("multi_head_attention", _projected, _EIGHT, _PROJECTIONS, expected=_projected_arrays,
        twice=True),
    Row("multi_head_attention", _plainly_projected, operands(*["any"] * 6),
        (((2, 1, 2), (2, 3, 1), (2, 2), (2, 1), (4, 1), (1, 4)),), case="no-biases",
        expected=_plainly_projected_arrays),
    Row("embedding", weft.embedding, (Operand(), _PLACE), _TABLES, expected=lambda x, i: x[i]),
    Row("embedding", lambda x, i: weft.square(weft.embedding(x, i, 1)), (FIXED, _PLACE), _TABLES,
        expected=lambda x, i: x[i] ** 2, case="padding"),
    *(
        Row("embedding_bag", lambda x, i, m=mode: weft.square(weft.embedding_bag(x, i, None, m)),
            (Operand(domain), _PLACE), _BAGGED, expected=lambda x, i, f=over: f(x[i], axis=1) ** 2,
            case=mode, twice=True)
        for mode, over, domain in (("sum", np.sum, "any"), ("mean", np.mean, "any"),
                                   ("max", np.max, "distinct"))
    ),
    *(
        Row("embedding_bag",
            lambda x, i, m=mode: weft.embedding_bag(x, i, _OFFSETS, m, padding_index=-1),
            (Operand("distinct"), _PLACE), (((3, 2), (6,)),), NUMBERS,
            lambda x, i, f=over: _bags(x, i, f), f"{mode}-offsets")
        for mode, over in (("sum", np.sum), ("mean", np.mean), ("max", np.max))
    ),
    Row("embedding_bag", lambda x, i, w: weft.embedding_bag(x, i, mode="sum", per_sample_weights=w),
        (Operand(), _PLACE, Operand()), (((3, 2), (2, 4), (2, 4)),),
        expected=lambda x, i, w: np.sum(x[i] * w[..., None], axis=1), case="weights", twice=True),
)  # fmt: skip

_POSITIONS: tuple[Row, ...] = (
    Row("rotary_embedding", weft.rotary_embedding, operands("any"), _SEQUENCES, expected=_rotated,
        twice=True),
    Row("rotary_embedding", lambda x: weft.rotary_embedding(x, base=100, interleaved=True),
        operands("any"), _SEQUENCES, expected=lambda x: _rotated(x, None, True, 100),
        case="interleaved", twice=True),
    Row("rotary_embedding", weft.rotary_embedding, operands("any", "any"),
        (((2, 3, 4), (3,)), ((2, 2, 4), (2, 1)), ((2, 3, 2), ())), expected=_rotated,
        case="positions", twice=True),
    Row("rotary_embedding", weft.rotary_embedding,
        (Operand(), Operand("index", dtype="int32", differentiable=False)),
        (((2, 3, 4), (3,)), ((2, 3, 4), ())), expected=_rotated, case="integers"),
    Row("rotary_embedding",
        lambda x, c, s: weft.rotary_embedding(x, cos=c, sin=s, interleaved=True),
        operands("any", "any", "any"), (((2, 3, 4), (3, 2), (2, 1, 2)),), case="tables", twice=True,
        expected=lambda x, c, s: np.stack(
            [x[..., ::2] * c - x[..., 1::2] * s, x[..., 1::2] * c + x[..., ::2] * s], axis=-1
        ).reshape(x.shape)),
    Row("sinusoidal_positions", lambda: weft.sinusoidal_positions(5, 6), (), _NOTHING,
        ("float32",), lambda: _waves(np.arange(5), 6), is_generic=False),
    Row("sinusoidal_positions", lambda x: weft.sinusoidal_positions(x, 4, 100, x.dtype),
        operands("any"), (((2, 3),), ((),), ((0,),)), expected=lambda x: _waves(x, 4, 100),
        case="positions", twice=True),
    *(
        Row("alibi_bias", lambda h=heads, o=options: weft.alibi_bias(h, *o), (), _NOTHING,
            ("float32",), lambda s=slopes, o=options: _distances(s, o[0], o[-1]), case,
            is_generic=False)
        for case, heads, options, slopes in (
            ("square", 2, (3,), [2**-4, 2**-8]),
            ("longer-keys", 4, (2, 5), [2**-2, 2**-4, 2**-6, 2**-8]),
            ("three-heads", 3, (4, 2), [2**-4, 2**-8, 2**-2]),
            ("six-heads", 6, (1, 3), [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        )
    ),
)  # fmt: skip

ROWS: tuple[Row, ...] = (*_ATTENTION, *_POSITIONS)

_Q, _NAMED = weft.placeholder((2, 3, 2)), weft.placeholder((_V, _F))
_INTEGERS = weft.placeholder((2,), "int32")
_UNKNOWN = weft.placeholder((3, weft.symbol("d")))
_STATE = weft.persistent_tensor((2, 3, 2))

REFUSALS: tuple[Refusal, ...] = (
    *(
        Refusal("attention", case, build, error, words)
        for case, build, error, words in (
            ("depth", lambda: weft.attention(_Q, weft.placeholder((2, 3, 4)),
             weft.placeholder((2, 3, 4))), AxesError, "differ in depth"),
            ("keys", lambda: weft.attention(_Q, _Q, weft.placeholder((2, 4, 2))), AxesError,
             "may differ in depth only"),
            ("heads", lambda: weft.attention(weft.placeholder((3, 3, 2)), _Q, _Q), AxesError,
             "3, is not a multiple of the key's, 2"),
            ("ranks", lambda: weft.attention(_Q, _Q[0], _Q), AxesError,
             "ranks of 3 or more, or all of 2"),
            ("rank", lambda: weft.attention(_Q[0, 0], _Q[0, 0], _Q[0, 0]), AxesError,
             "ranks of 3 or more"),
            ("roles", lambda: weft.attention(_NAMED, _NAMED, _NAMED), AxesError,
             "axes .* have no role in .*: pass .*time= or features="),
            ("mask-dtype", lambda: weft.attention(_Q, _Q, _Q, _INTEGERS), DTypeError,
             "must be bool, or floats to add, not int32"),
            ("mask-shape", lambda: weft.attention(_Q, _Q, _Q, weft.placeholder((5, 3), "bool")),
             AxesError, "cannot be broadcast|does not broadcast"),
            ("complex", lambda: weft.attention(weft.cast(_Q, "complex64"), _Q, _Q), DTypeError,
             "complex"),
            ("causal", lambda: weft.attention(_Q, _Q, _Q, is_causal="yes"), ArgumentError,
             "must be True or False, not 'yes'"),
            ("scale", lambda: weft.attention(_Q, _Q, _Q, scale="a"), ArgumentError,
             "scale must be a finite number"),
            ("text", lambda: weft.attention("query", _Q, _Q), DTypeError, "not made of numbers"),
            ("unknown-depth", lambda: weft.attention(_UNKNOWN, _UNKNOWN, _UNKNOWN),
             AxesError, "give a scale"),
        )
    ),
    Refusal("attention_with_cache", "state", lambda: weft.attention_with_cache(
        _Q, _Q, _Q, _Q + 1, _STATE, 0), StateError, "is not assignable"),
    Refusal("attention_with_cache", "position", lambda: weft.attention_with_cache(
        _Q, _Q, _Q, _STATE, _STATE, weft.placeholder(())), AxesError, "integer scalar"),
    Refusal("update_cache", "shape", lambda: weft.update_cache(
        _STATE, weft.placeholder((2, 3, 5)), 0), AxesError, "does not lie inside"),
    Refusal("update_cache", "position", lambda: weft.update_cache(_STATE, _Q, "x"), ArgumentError,
            "position must be a whole number"),
    Refusal("update_cache", "axis", lambda: weft.update_cache(_STATE, _Q, 0, axis=3), AxesError,
            "dimension 3 is out of range"),
    Refusal("multi_head_attention", "weights", lambda: weft.multi_head_attention(
        _Q, _Q, _Q, [_Q[0]] * 3, 1), ArgumentError, "for query, key, value and result"),
    Refusal("multi_head_attention", "heads", lambda: weft.multi_head_attention(
        _Q, _Q, _Q, [_Q[0]] * 4, 2), AxesError, "3 features cannot be split among 2 heads"),
    Refusal("multi_head_attention", "no-heads", lambda: weft.multi_head_attention(
        _Q, _Q, _Q, [_Q[0]] * 4, 0), ArgumentError, "heads must be a whole number, at least 1"),
    Refusal("multi_head_attention", "features", lambda: weft.multi_head_attention(
        _Q, _Q, _Q, [weft.placeholder((4, 3))] * 4, 2), AxesError, "do not fit"),
    Refusal("embedding", "scalar", lambda: weft.embedding(1.0, 0), AxesError, "needs an axis"),
    Refusal("embedding", "floats", lambda: weft.embedding(_Q, _Q), DTypeError,
            "indices must be integers"),
    Refusal("embedding", "range", lambda: weft.embedding(_Q, [0, 2]), IndexOutOfRange,
            "index 2 .*is out of range"),
    Refusal("embedding", "padding", lambda: weft.embedding(_Q, _INTEGERS, 2), AxesError,
            "padding_index 2 is out of range"),
    Refusal("embedding_bag", "mode", lambda: weft.embedding_bag(_Q, [[0]], mode="min"),
            ArgumentError, "sum, mean, max"),
    Refusal("embedding_bag", "weights",
            lambda: weft.embedding_bag(_Q, [[0]], per_sample_weights=[[1.0]]), ArgumentError,
            "factors in a 'sum'"),
    Refusal("embedding_bag", "vector", lambda: weft.embedding_bag(_Q, [0]), AxesError,
            "vector of offsets"),
    Refusal("embedding_bag", "matrix", lambda: weft.embedding_bag(_Q, [[0]], [0]), AxesError,
            "vector of offsets"),
    Refusal("embedding_bag", "range", lambda: weft.embedding_bag(_Q, [[2]]), IndexOutOfRange,
            "index 2 .*is out of range"),
    Refusal("embedding_bag", "padding", lambda: weft.embedding_bag(_Q, [[0]], padding_index=2),
            AxesError, "padding_index 2 is out of range"),
    Refusal("rotary_embedding", "odd", lambda: weft.rotary_embedding(weft.placeholder((2, 3))),
            AxesError, "even number that is known now, not 3"),
    Refusal("rotary_embedding", "rank", lambda: weft.rotary_embedding(weft.placeholder((2,))),
            AxesError, "even number"),
    Refusal("rotary_embedding", "names", lambda: weft.rotary_embedding(_NAMED), AxesError,
            "cast_axes"),
    Refusal("rotary_embedding", "positions", lambda: weft.rotary_embedding(
        _Q, weft.placeholder((5,))), AxesError, "does not broadcast"),
    Refusal("rotary_embedding", "one-table", lambda: weft.rotary_embedding(_Q, cos=_Q),
            ArgumentError, "both cos and sin"),
    Refusal("rotary_embedding", "pairs", lambda: weft.rotary_embedding(_Q, interleaved=1),
            ArgumentError, "must be True or False, not 1"),
    Refusal("rotary_embedding", "base", lambda: weft.rotary_embedding(_Q, base=0), ArgumentError,
            "base must be a finite number"),
    Refusal("sinusoidal_positions", "odd", lambda: weft.sinusoidal_positions(4, 3), AxesError,
            "even number"),
    Refusal("sinusoidal_positions", "dtype", lambda: weft.sinusoidal_positions(4, 2, dtype="int8"),
            DTypeError, "must be floats, not int8"),
    Refusal("alibi_bias", "heads", lambda: weft.alibi_bias(0, 3), ArgumentError, "at least 1"),
    Refusal("alibi_bias", "length", lambda: weft.alibi_bias(2, -3), AxesError, "not be negative"),
    Refusal("alibi_bias", "dtype", lambda: weft.alibi_bias(2, 3, dtype="bool"), DTypeError,
            "must be floats, not bool"),
)  # fmt: skip
