"""Random convolutions and poolings give what their definitions say, with all ops around them."""

from __future__ import annotations

import pytest

import weft
from weft.testing.levels import RANDOM, level
from weft.testing.random_windows import KINDS, problems

FEW, PARTS, SIZE = 6, 20, 25
"""The cases of each backend in the first test; the parts of the second one, and their cases."""


@level(RANDOM)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_give_what_their_definitions_say(backend: str, kind: str) -> None:
    """A few of them."""
    assert _found(backend, kind, 1000, FEW) == []


@pytest.mark.long
@level(RANDOM)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_many_windows_give_what_their_definitions_say(backend: str, kind: str, part: int) -> None:
    """Many of them, each part in one computation."""
    assert _found(backend, kind, part, SIZE) == []


def _found(backend: str, kind: str, part: int, size: int) -> list[str]:
    with weft.make_transformer(backend) as transformer:
        dtypes = transformer.target.dtypes
        cases = [KINDS[kind]((part, number), dtypes) for number in range(size)]
        return list(problems(transformer, cases))
