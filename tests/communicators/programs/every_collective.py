"""Every collective on the named backends, compared with NumPy on the arrays of all ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.communicators import connected
from weft.ranks.collectives import started, waited

ranks = connected()
SHAPE = (4, 3)  # each rank has as many rows as MPI gives all of them parts, with 1, 2 or 4 ranks


def given(rank: int, dtype: Any) -> Any:
    """Return what a rank has: whole numbers, so that sums are exact in any order."""
    values = np.arange(12).reshape(SHAPE) * (-1) ** np.arange(3) + 5 * rank
    return values.astype(dtype)


def shifted(arrays: list[Any], offset: int, wraps: bool) -> Any:
    """Return what this rank gets if all send theirs up by an offset."""
    source = ranks.rank - offset
    if wraps:
        return arrays[source % ranks.size]
    return arrays[source] if 0 <= source < ranks.size else np.zeros_like(arrays[0])


mine, size = ranks.rank, ranks.size
Expected = Callable[[list[Any]], Any]
CASES: dict[str, tuple[Callable[[Any], Any], Expected]] = {
    "sum": (weft.all_reduce, lambda a: sum(a)),
    "max": (lambda x: weft.all_reduce(x, "max"), lambda a: np.max(a, axis=0)),
    "min": (lambda x: weft.all_reduce(x, "min"), lambda a: np.min(a, axis=0)),
    "gather": (weft.all_gather, np.concatenate),
    "gather columns": (lambda x: weft.all_gather(x, axis=1), lambda a: np.concatenate(a, axis=1)),
    "scatter": (weft.reduce_scatter, lambda a: np.split(sum(a), size)[mine]),
    "broadcast": (lambda x: weft.broadcast_from(x, size - 1), lambda a: a[-1]),
    "all to all": (
        weft.all_to_all,
        lambda a: np.concatenate([np.split(each, size)[mine] for each in a]),
    ),
    "shift": (weft.send_receive, lambda a: shifted(a, 1, True)),
    "shift down": (
        lambda x: weft.send_receive(x, -1, wraps=False),
        lambda a: shifted(a, -1, False),
    ),
    "later": (lambda x: weft.all_reduce_later(x)[1], lambda a: sum(a)),
    "gather later": (lambda x: waited(started("all_gather", x)), np.concatenate),
    "scatter later": (
        lambda x: waited(started("reduce_scatter", x)),
        lambda a: np.split(sum(a), size)[mine],
    ),
    "rank": (lambda x: weft.rank_index(), lambda a: np.array(mine, np.int32)),
}


def check_values(backend: str, dtype: Any) -> None:
    """Compute all collectives in one graph."""
    x = weft.placeholder(SHAPE, dtype)
    built = [build(x) for build, _ in CASES.values()]
    results = weft.make_transformer(backend).computation(built, x)(given(mine, dtype))
    arrays = [given(rank, dtype) for rank in range(size)]
    for name, result, (_, expected) in zip(CASES, results, CASES.values(), strict=True):
        np.testing.assert_array_equal(result, expected(arrays), err_msg=f"{backend} {name}")


def check_gradients(backend: str) -> None:
    """Compare with differences of the sum of all ranks' results, one element of one rank moved."""
    for name, (build, _) in CASES.items():
        if name == "rank":
            continue
        x = weft.placeholder(SHAPE, "float64")
        y = build(x * x)
        # What differs between ranks is an argument: constants are the same on all of them.
        factors = weft.placeholder(y.axes, "float64")
        weights = np.cos(np.arange(y.axes.size).reshape(y.axes.lengths) + mine)
        of_one = weft.sum(y * factors)
        transformer = weft.make_transformer(backend)
        gradient = transformer.computation(weft.deriv(of_one, x), x, factors)
        total = transformer.computation(weft.all_reduce(of_one), x, factors)
        array = np.sin(np.arange(12.0).reshape(SHAPE) + 3 * mine)
        found = gradient(array, weights)
        for rank in range(size):
            moved = np.zeros(SHAPE)
            moved[1, 2] = 1e-6 if rank == mine else 0
            slope = (total(array + moved, weights) - total(array - moved, weights)) / 2e-6
            if rank == mine:
                np.testing.assert_allclose(found[1, 2], slope, atol=1e-6, err_msg=name)


def check_random_numbers(backend: str) -> None:
    """Dropout drops the same on all ranks, or, by rank, other elements on each and in each call."""
    ones = np.ones((64,), "float32")
    x = weft.placeholder((64,))
    dropped = [weft.dropout(x, 0.5, seed=3), weft.dropout(x, 0.5, seed=3, by_rank=True)]
    compute = weft.make_transformer(backend).computation([weft.all_gather(y) for y in dropped], x)
    calls = [compute(ones) for _ in range(3)]
    same = {bytes(row) for each, _ in calls for row in each.reshape(size, 64)}
    others = {bytes(row) for _, each in calls for row in each.reshape(size, 64)}
    assert (len(same), len(others)) == (3, 3 * size)


for chosen in sys.argv[1:]:
    for each in ("float32", "float64", "int32", "int8", "bfloat16", "float16"):
        check_values(chosen, each)
    check_gradients(chosen)
    check_random_numbers(chosen)
    print(f"rank {mine} of {size}: {chosen} is right", flush=True)
