"""Every collective on the named backends, compared with NumPy on the arrays of all ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.communicators import connected

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
        weights = np.cos(np.arange(y.axes.size).reshape(y.axes.lengths) + mine)
        value = weft.all_reduce(weft.sum(y * weights))
        of_one = weft.sum(y * weights)
        gradient = weft.make_transformer(backend).computation(weft.deriv(of_one, x), x)
        total = weft.make_transformer(backend).computation(value, x)
        array = np.sin(np.arange(12.0).reshape(SHAPE) + 3 * mine)
        found = gradient(array)
        for rank in range(size):
            moved = np.zeros(SHAPE)
            moved[1, 2] = 1e-6 if rank == mine else 0
            slope = (total(array + moved) - total(array - moved)) / 2e-6
            if rank == mine:
                np.testing.assert_allclose(found[1, 2], slope, atol=1e-6, err_msg=name)


for chosen in sys.argv[1:]:
    for each in ("float32", "float64", "int32", "int8", "bfloat16", "float16"):
        check_values(chosen, each)
    check_gradients(chosen)
    print(f"rank {mine} of {size}: {chosen} is right", flush=True)
