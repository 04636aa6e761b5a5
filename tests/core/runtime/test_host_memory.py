"""What the host has no memory for is refused with the bytes, the op and its line."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import HostMemoryError

MUCH = 2**50
"""Elements: more bytes than a process can address, so that no setting of a system lets them be."""
HERE = inspect.getsourcefile(lambda: None)


def result(x: Any) -> Any:
    return weft.tanh(weft.broadcast_to(x, (MUCH,)))


def impossible_result(x: Any) -> Any:
    return weft.broadcast_to(x, (2**62,))


def value_on_the_way(x: Any) -> Any:
    return weft.sum(weft.sort(weft.broadcast_to(x, (MUCH,))))


def state(x: Any) -> Any:
    return weft.variable((MUCH,), name="huge", initial_value=0) + x


CASES = [
    (result, ["result of large, TanhOp_", f"of float32 ({MUCH},)", "return less"]),
    (impossible_result, ["BroadcastOp_", "more than can be addressed", "smaller axes"]),
    (value_on_the_way, ["the arena of large_", "memory_limit=", "result of SortOp_"]),
    (state, ["bytes for huge: use smaller arrays"]),
]


@pytest.mark.parametrize(("build", "words"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_it_says_what_is_too_large_and_where(build: Any, words: list[str]) -> None:
    x = weft.placeholder((1,))
    computation = weft.make_transformer("numpy").computation(build(x), x, name="large")
    for _ in range(2):
        with pytest.raises(HostMemoryError) as caught:
            computation(np.ones(1, np.float32))
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        assert f'File "{HERE}", line ' in said
        assert [each for each in words if each not in said] == []
