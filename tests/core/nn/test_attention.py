"""Attention as models use it: token by token with a cache, with unknown lengths, with numbers
that leave no room for care."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import StateError
from weft.nn import blocked_attention

RANDOM = np.random.default_rng(0)


def normal(*shape: Any):
    return RANDOM.normal(size=shape).astype("f4")


def test_one_compiled_step_decodes_token_by_token(transformer: weft.Transformer):
    heads, groups, longest, depth = 4, 2, 6, 4
    query = weft.placeholder((heads, 1, depth))
    key, value = (weft.placeholder((groups, 1, depth)) for _ in range(2))
    caches = [weft.persistent_tensor((groups, longest, depth), initial_value=0) for _ in range(2)]
    position = weft.persistent_tensor((), "int32", 0)
    with weft.saved_user_deps():
        places = weft.reshape(position, (1,))
        turned = [weft.rotary_embedding(x, places) for x in (query, key)]
        result = weft.attention_with_cache(*turned, value, *caches, position)
        count = weft.accumulate(position, 1)
        step = transformer.computation([result, count], query, key, value)

    length = 5
    q, k, v = (weft.placeholder((n, length, depth)) for n in (heads, groups, groups))
    whole = weft.attention(weft.rotary_embedding(q), weft.rotary_embedding(k), v, is_causal=True)
    arrays = [normal(n, length, depth) for n in (heads, groups, groups)]
    expected = transformer.computation(whole, q, k, v)(*arrays)
    for place in range(length):
        found, _ = step(*(array[:, place : place + 1] for array in arrays))
        np.testing.assert_allclose(found[:, 0], expected[:, place], rtol=1e-5, atol=1e-6)
    keys, at = transformer.computation([caches[1], position])()
    np.testing.assert_array_equal(keys[:, :length], arrays[2])
    assert at == length


def test_a_cache_belongs_to_one_scope(transformer: weft.Transformer):
    cache = weft.persistent_tensor((2, 1))
    with weft.saved_user_deps():
        first = weft.update_cache(cache, [[1.0]], 0)
    with weft.saved_user_deps():
        second = weft.update_cache(cache, [[2.0]], 1)
    with pytest.raises(StateError, match="written twice"):
        transformer.computation([first, second])


def test_a_position_beyond_the_end_is_moved_before_it(transformer: weft.Transformer):
    cache = weft.persistent_tensor((3, 1), initial_value=0)
    position = weft.placeholder((), "int32")
    with weft.saved_user_deps():
        run = transformer.computation(weft.update_cache(cache, [[1.0], [2.0]], position), position)
    assert run(7).reshape(-1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("is_causal", [False, True])
def test_batch_and_sequences_may_be_unknown(transformer: weft.Transformer, is_causal: bool):
    n, queries, keys = (weft.symbol(name) for name in ("n", "queries", "keys"))
    q = weft.placeholder((n, 4, queries, 3))
    k, v = (weft.placeholder((n, 2, keys, 3)) for _ in range(2))
    y = weft.attention(q, k, v, is_causal=is_causal)
    results = [y, *(weft.deriv(y, x, error=weft.cos(y)) for x in (q, k, v))]
    run = transformer.computation(results, q, k, v)
    for shape in ((2, 3, 5), (1, 4, 2), (3, 1, 1)):
        batch, rows, columns = shape
        fixed = [weft.placeholder(s) for s in (
            (batch, 4, rows, 3), (batch, 2, columns, 3), (batch, 2, columns, 3))]  # fmt: skip
        z = weft.attention(*fixed, is_causal=is_causal)
        wanted = [z, *(weft.deriv(z, x, error=weft.cos(z)) for x in fixed)]
        arrays = [normal(*x.shape) for x in fixed]
        expected = transformer.computation(wanted, *fixed)(*arrays)
        for got, want in zip(run(*arrays), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_what_may_look_nowhere_gives_0_and_has_no_slope(transformer: weft.Transformer):
    q, k, v = (weft.placeholder((1, 3, 2)) for _ in range(3))
    for mask in (np.zeros((3, 3), bool), np.full((3, 3), -np.inf, "f4")):
        y = weft.attention(q, k, v, mask)
        results = [y, *(weft.deriv(weft.sum(y * y + y), x) for x in (q, k, v))]
        for value in transformer.computation(results, q, k, v)(*[normal(1, 3, 2)] * 3):
            np.testing.assert_array_equal(value, np.zeros((1, 3, 2)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_do_not_overflow(transformer: weft.Transformer, dtype: str):
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"no {dtype}")
    q, k, v = (weft.placeholder((1, 2, 64), dtype) for _ in range(3))
    y = weft.attention(q, k, v)
    results = [y, *(weft.deriv(weft.sum(y), x) for x in (q, k, v))]
    big = np.full((1, 2, 64), 200.0).astype(y.dtype)
    found = transformer.computation(results, q, k, v)(big, big, big)
    np.testing.assert_array_equal(found[0], big)
    assert all(np.isfinite(value.astype("f8")).all() for value in found)


def test_repeated_indices_add_up_in_the_gradient_but_not_those_of_padding(
    transformer: weft.Transformer,
):
    table = weft.variable((4, 2), initial_value=1.0)
    indices = weft.placeholder((5,), "int32")
    slopes = [
        weft.deriv(weft.sum(weft.embedding(table, indices, padding)), table)
        for padding in (None, 3, -1)
    ]
    found = transformer.computation(slopes, indices)([0, 3, 0, -1, 2])
    assert found[0][:, 0].tolist() == [2, 0, 1, 2]
    assert found[1][:, 0].tolist() == found[2][:, 0].tolist() == [2, 0, 1, 0]


def test_an_index_out_of_range_ends_the_call(transformer: weft.Transformer):
    table, indices = weft.variable((4, 2), initial_value=0), weft.placeholder((1,), "int32")
    run = transformer.computation(weft.embedding(table, indices), indices)
    with pytest.raises(weft.errors.IndexOutOfRange, match="index 4"):
        run([4])


def test_caches_may_have_named_axes_in_any_order(transformer: weft.Transformer):
    n, rec, c, longest = (
        weft.Axis(length, name) for length, name in ((2, "N"), (1, "REC"), (3, "C"), (4, "T"))
    )
    x = weft.placeholder((c, n, rec))
    caches = [
        weft.persistent_tensor((n, c, longest), initial_value=0),
        weft.persistent_tensor((longest, n, c), initial_value=0),
    ]
    position = weft.persistent_tensor((), "int32", initial_value=0)
    with weft.saved_user_deps():
        result = weft.attention_with_cache(x, x, x, *caches, position)
        step = transformer.computation([result, weft.accumulate(position, 1)], x)
    assert result.axes == x.axes
    values = normal(2, 4, 3)
    whole = weft.attention(*[weft.constant(values[:, None])] * 3, is_causal=True)
    expected = transformer.computation(whole)()[:, 0]
    for place in range(4):
        found, _ = step(values[:, place].T[:, :, None])
        np.testing.assert_allclose(found[:, :, 0].T, expected[:, place], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(transformer.get_value(caches[1]), values.transpose(1, 0, 2))


def test_a_cache_may_be_a_part_of_a_state(transformer: weft.Transformer):
    both = weft.persistent_tensor((2, 3, 1), initial_value=0)
    with weft.saved_user_deps():
        run = transformer.computation(weft.update_cache(both[1], [[5.0]], 2))
    assert run().reshape(-1).tolist() == [0, 0, 5]
    assert transformer.get_value(both).reshape(-1).tolist() == [0, 0, 0, 0, 0, 5]


@pytest.mark.parametrize(
    ("queries", "keys", "is_causal", "dtype"),
    [
        (70, 64, False, "float32"), (67, 67, True, "float32"),
        (70, 90, True, "float32"), (67, 67, True, "float16"),
    ],
)  # fmt: skip
def test_blocks_of_queries_give_what_all_at_once_give(
    transformer: weft.Transformer, monkeypatch: pytest.MonkeyPatch,
    queries: int, keys: int, is_causal: bool, dtype: str,
) -> None:  # fmt: skip
    if dtype not in transformer.target.dtypes:
        pytest.skip(f"no {dtype}")
    query, slopes = (weft.placeholder((2, 4, queries, 3), dtype) for _ in range(2))
    key, value = (weft.placeholder((2, 2, keys, 3), dtype) for _ in range(2))
    given = query, key, value, slopes

    def results() -> list[weft.TensorOp]:
        result = weft.attention(*given[:3], is_causal=is_causal)
        loss = weft.sum(result * slopes)
        shares = [weft.deriv(loss, x) for x in given[:3]]
        again = weft.deriv(weft.sum(shares[0] * query), value)
        return [result, *shares, again]

    arrays = [RANDOM.normal(size=x.axes.shape).astype(dtype) for x in given]
    wanted = transformer.computation(results(), *given)(*arrays)
    monkeypatch.setattr(blocked_attention, "MOST_BYTES", 4096)
    monkeypatch.setattr(blocked_attention, "BLOCK_BYTES", 2048)
    blocked = transformer.computation(results(), *given, name="blocked")
    found = blocked(*arrays)
    tolerance = 1e-4 if dtype == "float32" else 2e-2
    for got, want in zip(found, wanted, strict=True):
        wide = np.asarray(want, "f8")
        np.testing.assert_allclose(
            np.asarray(got, "f8"), wide, rtol=tolerance, atol=tolerance * np.abs(wide).max()
        )


def test_memory_of_attention_is_linear_in_the_sequence() -> None:
    arenas = []
    for length in (8192, 16384):
        x = weft.placeholder((4, length, 16))
        result = weft.attention(x, x, x, is_causal=True)
        slope = weft.deriv(weft.sum(result), x)
        plan = weft.make_transformer("numpy").computation([result, slope], x).plan
        arenas.append(plan.arena_size)
    assert arenas[0] < 4 * 8192**2
    assert arenas[1] < 2.2 * arenas[0]
