"""Random programs on a batch: what a loop over examples gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loops_over_examples import is_assigned, on_a_batch, require_what_a_loop_gives

import weft
from weft.errors import StateError
from weft.testing.random_graphs import RandomProgram, programs


def changed(array: Any, random: np.random.Generator) -> Any:
    """Return an array with its elements in another order, and changed by a whole number."""
    order = random.permutation(array.ravel()).reshape(array.shape)
    return (order + random.integers(-1, 2)).astype(array.dtype)


@pytest.mark.long
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(program=programs(), data=st.data())
def test_a_random_program_on_a_batch_gives_what_a_loop_gives(
    program: RandomProgram, data: st.DataObject
):
    """Any of the parameters may be batched; a write of a batched value is refused."""
    numbers = st.integers(0, len(program.placeholders) - 1)
    chosen = sorted(data.draw(st.sets(numbers, min_size=1)))
    random = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    examples = [
        [changed(array, random) for array in program.arrays]
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    size = weft.symbol("n") if data.draw(st.booleans()) else None
    arguments = (program.results, program.placeholders, examples, chosen, size)
    if is_assigned(program.results, [program.placeholders[number] for number in chosen]):
        with pytest.raises(StateError, match="the value is batched"):
            on_a_batch(*arguments)
    else:
        require_what_a_loop_gives(*arguments)
