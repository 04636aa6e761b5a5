"""Joined dimensions reach the same elements in the same order."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from weft.kernels.collapse import collapse

CASES = {
    "contiguous": ((2, 3, 4), "kkk", [(12, 4, 1)], [(0, 1, 2)]),
    "transposed": ((2, 3), "kk", [(1, 2)], [(0,), (1,)]),
    "one is transposed": ((2, 3), "kk", [(3, 1), (1, 2)], [(0,), (1,)]),
    "both transposed alike": ((2, 3, 4), "kkk", [(4, 8, 1), (4, 8, 1)], [(0,), (1,), (2,)]),
    "roles": ((2, 3, 4, 5), "kkrr", [(60, 20, 5, 1)], [(0, 1), (2, 3)]),
    "a row": ((2, 3), "kk", [(3, 1), (0, 1)], [(0,), (1,)]),
    "a row of two axes": ((5, 2, 3), "kkk", [(6, 3, 1), (0, 3, 1)], [(0,), (1, 2)]),
    "a number": ((2, 3), "kk", [(3, 1), (0, 0)], [(0, 1)]),
    "length 1 between": ((2, 1, 3), "krk", [(3, 99, 1)], [(0, 2)]),
    "gaps": ((2, 3), "kk", [(8, 2)], [(0,), (1,)]),
    "even gaps": ((2, 3), "kk", [(6, 2)], [(0, 1)]),
    "all of length 1": ((1, 1), "kk", [(1, 1)], []),
    "no dimensions": ((), "", [()], []),
}


@pytest.mark.parametrize("name", CASES)
def test_dimensions_join(name: str) -> None:
    domain, roles, strides, expected = CASES[name]
    assert collapse(domain, roles, strides) == tuple(expected)


@st.composite
def layouts(draw: Any) -> tuple[tuple[int, ...], str, list[tuple[int, ...]]]:
    domain = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    roles = "".join(draw(st.sampled_from("kr")) for _ in domain)
    strides = []
    for _ in range(draw(st.integers(1, 3))):
        memory = np.empty([n if draw(st.booleans()) else 1 for n in domain], np.int8)
        order = draw(st.permutations(range(len(domain)))) if draw(st.booleans()) else None
        if order is not None:
            inverse = np.argsort(order)
            memory = np.empty([memory.shape[i] for i in order], np.int8).transpose(inverse)
        strides.append(np.broadcast_to(memory, domain).strides)
    return domain, roles, strides


@given(layouts())
def test_joined_dimensions_visit_the_same_elements(
    layout: tuple[tuple[int, ...], str, list[tuple[int, ...]]],
) -> None:
    domain, roles, strides = layout
    groups = collapse(domain, roles, strides)
    assert sorted(place for group in groups for place in group) == [
        place for place, length in enumerate(domain) if length != 1
    ]
    for group in groups:
        assert len({roles[place] for place in group}) == 1
    lengths = [prod(domain[place] for place in group) for group in groups]
    for steps in strides:
        whole = [dot(index, steps) for index in product(*map(range, domain))]
        joined = [steps[group[-1]] for group in groups]
        assert [dot(index, joined) for index in product(*map(range, lengths))] == whole


def dot(index: tuple[int, ...], steps: Any) -> int:
    return sum(i * step for i, step in zip(index, steps, strict=True))
