"""Random smooth programs under compositions of transformations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from transformed import TRANSFORMATIONS, require

import weft
from weft.ir import dtypes
from weft.testing.random_graphs import SMOOTH, RandomProgram, programs
from weft.testing.samples import sample


@pytest.mark.long
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(
    program=programs(),
    words=st.lists(st.sampled_from(TRANSFORMATIONS), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, 2**16),
)
def test_a_random_program_is_transformed(
    program: RandomProgram, words: tuple[str, ...], seed: int
) -> None:
    """By loops over examples and central differences, through a call of its graph."""
    assume(program.kind == SMOOTH and not program.states)
    results = [op for op in program.results if op.is_tensor]
    graph = weft.capture(results, program.placeholders)

    def function(*args: Any) -> Any:
        named = zip(args, program.placeholders, strict=True)
        return weft.call(graph, *(weft.cast_axes(x, each.axes) for x, each in named))

    random = np.random.default_rng(seed)
    sizes = (2,) * words.count("vmap")
    arrays = [
        sample("any", (*sizes, *x.axes.shape), dtypes.float64, random) for x in program.placeholders
    ]
    with weft.backend("numpy"):
        require(words, function, range(len(arrays)), arrays)
