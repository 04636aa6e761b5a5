from __future__ import annotations

from itertools import pairwise
from time import thread_time
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
import weft_array_api
from weft.plan.repeated_blocks import PIECE, WORTH, cuts

LONGEST = 1000


def pieces(kinds: list[int], longest: int = LONGEST) -> list[tuple[int, ...]]:
    ends = cuts(kinds, longest)
    return [tuple(kinds[start:end]) for start, end in pairwise([0, *ends])]


def layers(*parts: tuple[int, int]) -> list[int]:
    """Return stretches in a row: each of a number of different kinds, repeated."""
    found: list[int] = []
    for length, repeats in parts:
        first = max(found, default=-1) + 1
        found += list(range(first, first + length)) * repeats
    return found


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(
    parts=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), max_size=6),
    longest=st.integers(5, 50),
)
@example(parts=[], longest=5)
def test_pieces_are_all_of_it_and_none_is_too_long(
    parts: list[tuple[int, int]], longest: int
) -> None:
    kinds = layers(*parts)
    found = pieces(kinds, longest)
    assert [kind for piece in found for kind in piece] == kinds
    assert all(0 < len(piece) <= longest for piece in found)


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(
    before=st.integers(0, 30),
    period=st.integers(1, 200),
    repeats=st.integers(3, 40),
    after=st.integers(0, 30),
)
def test_a_repeated_stretch_costs_little_more_than_once(
    before: int, period: int, repeats: int, after: int
) -> None:
    kinds = layers((before, 1), (period, repeats), (after, 1))
    distinct = sum(map(len, set(pieces(kinds))))
    saved = period * (repeats - 1)
    if saved < WORTH:
        return
    # What is left of a stretch after whole pieces is a piece of its own.
    assert distinct <= before + after + 2 * max(period, PIECE) + period


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], []),
        (layers((20, 1)), [20]),
        (layers((10, 2)), [10 * 2]),
        (layers((40, 2)), [40, 40]),
        (layers((5, 1), (20, 4), (3, 1)), [5, 20, 20, 20, 20, 3]),
        (layers((5, 1), (20, 4), (7, 1), (30, 3)), [5, *[20] * 4, 7, *[30] * 3]),
        # Not one right after the other.
        ([*range(40), 98, *range(40), 99, *range(40)], [40, 1, 40, 1, 40]),
        # Longer than a piece may be: cut alike in each repeat.
        (layers((1500, 2)), [1000, 500, 1000, 500]),
        (layers((1, 1), (1, 100)), [1, *[8] * 12, 4]),
    ],
    ids=["nothing", "none", "not worth it", "two", "layers", "there and back", "apart", "long",
         "short"],
)  # fmt: skip
def test_where_it_is_cut(kinds: list[int], expected: list[int]) -> None:
    assert [len(piece) for piece in pieces(kinds)] == expected


def test_cutting_takes_linear_time() -> None:
    def seconds(kinds: list[int]) -> float:
        best = float("inf")
        for _ in range(3):
            start = thread_time()
            cuts(kinds, LONGEST)
            best = min(best, thread_time() - start)
        return best

    random = np.random.default_rng(0)
    for make in (
        lambda n: [0] * n,
        lambda n: layers((13, n // 13)),
        lambda n: layers((n // 2, 2)),
        lambda n: list(random.integers(0, 2, n)),
        lambda n: [0] * 7 + [each for k in range(n // 8) for each in (k + 1, *[0] * 7)],
    ):
        assert seconds(make(40_000)) < 12 * seconds(make(10_000)) + 0.01


D, LENGTH = 16, 8


def layer(x: Any) -> Any:
    """Return a transformer block of one head."""
    wq, wk, wv, wo = (weft.variable((D, D), initial_value=0.1) for _ in range(4))
    w1 = weft.variable((D, 2 * D), initial_value=0.1)
    w2 = weft.variable((2 * D, D), initial_value=0.1)
    y = weft.layer_norm(x, weft.constant(np.ones(D)), weft.constant(np.zeros(D)))
    scores = weft.softmax((y @ wq) @ weft.transpose(y @ wk) * D**-0.5, -1)
    x = x + scores @ (y @ wv) @ wo
    return x + weft.relu(x @ w1) @ w2


def encoder(depth: int, is_training: bool) -> tuple[Any, Any]:
    x = y = weft.placeholder((LENGTH, D))
    for _ in range(depth):
        y = layer(y)
    if not is_training:
        return x, [y]
    loss = weft.sum(weft.square(y))
    return x, [loss, *(weft.assign(w, w - 0.001 * weft.deriv(loss, w)) for w in loss.variables())]


@pytest.mark.parametrize("is_training", [False, True], ids=["forward", "training"])
def test_layers_are_compiled_once(is_training: bool) -> None:
    def compiled(depth: int) -> tuple[int, int, Any]:
        x, results = encoder(depth, is_training)
        made = weft.make_transformer("numpy", cache=False).computation(results, x)
        statements = made.source.count("\n") - len(made.program.code.calls)
        return statements, len(made.program.code.blocks), made

    three, blocks, _ = compiled(3)
    twelve, more_blocks, deep = compiled(12)
    assert twelve <= 1.4 * three
    assert more_blocks <= blocks + 12
    assert len(deep.program.code.calls) >= 10
    deep.plan.verify()
    ones = np.ones((LENGTH, D), np.float32)
    x, results = encoder(12, is_training)
    one_by_one = weft_array_api.ArrayTransformer(np).computation(results, x)
    for _ in range(3):
        assert np.allclose(deep(ones)[0], one_by_one(ones)[0], rtol=1e-4)


def test_the_source_shows_a_block_once_and_every_call() -> None:
    x, results = encoder(12, is_training=False)
    made = weft.make_transformer("numpy", cache=False).computation(results, x)
    source, code = made.source, made.program.code
    used = [call.block for call in code.calls]
    often = max(map(used.count, used))
    assert often >= 8
    assert f"called {often} times" in source
    assert source.count("def bind") == len(code.blocks)
    program = source[source.index("# the program") :]
    assert program.count("block") == len(code.calls)
    assert "arena[" in program
    assert f"test_repeated_blocks.py:{layer.__code__.co_firstlineno + 6}" in source
    compile(source, "generated", "exec")


def picked(y: Any, index: Any) -> Any:
    y = weft.cumsum(weft.sort(weft.tanh(y)), 0)
    y = weft.sort(weft.cumsum(weft.exp(-y), 0))
    return weft.sort(weft.take(y, index, 0))


def picked_elsewhere(y: Any, index: Any) -> Any:
    y = weft.cumsum(weft.sort(weft.tanh(y)), 0)
    y = weft.sort(weft.cumsum(weft.exp(-y), 0))
    return weft.sort(weft.take(y, index, 0))


@pytest.mark.parametrize("layer", [3, 7])
def test_an_error_in_a_shared_block_names_the_line_of_its_own_layer(layer: int) -> None:
    x = y = weft.placeholder((4,))
    indices = [weft.placeholder((4,), dtype="int32") for _ in range(12)]
    for number, index in enumerate(indices):
        y = (picked_elsewhere if number == 7 else picked)(y, index)
    made = weft.make_transformer("numpy", cache=False).computation(y, x, *indices)
    good = np.zeros(4, np.int32)
    made(np.ones(4), *[good] * 12)
    assert len(made.program.code.blocks) <= 5 < len(made.program.code.calls)
    given = [good] * 12
    given[layer] = good + 4
    with pytest.raises(IndexError) as caught:
        made(np.ones(4), *given)
    function = picked_elsewhere if layer == 7 else picked
    line = function.__code__.co_firstlineno + 3
    assert f"test_repeated_blocks.py:{line} " in "".join(caught.value.__notes__)
    assert "take" in "".join(caught.value.__notes__)
