"""Where Linux has no room for the kernels of another program there is an error, and no crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import weft
from weft_c.runtime.errors import DeviceMemoryError
from weft_opencl import mappings
from weft_opencl.mappings import FOR_KERNEL, SPARE, Mappings
from weft_opencl.transformer import OpenCLTransformer

pytestmark = pytest.mark.slow

LIMIT = 65530


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A machine with a usual limit: the last number is that of the mappings it has."""
    found = [2000]

    def look() -> int:
        found.append(found[-1])
        return found[-1]

    monkeypatch.setattr(mappings, "_limit", lambda: LIMIT)
    monkeypatch.setattr(mappings, "_mapped", look)
    return found


def test_mappings_are_counted_only_where_they_may_be_too_many(looks: list[int]) -> None:
    kept = Mappings()
    for _ in range((LIMIT - SPARE) // FOR_KERNEL):
        kept.make_room(1, "PoCL")
    assert len(looks) == 1
    kept.make_room(1, "PoCL")
    assert len(looks) == 2, "many of the kernels were not new: there is room"
    kept.make_room(1000, "PoCL")
    assert len(looks) == 2


def test_without_room_there_is_an_error_until_there_is_some(looks: list[int]) -> None:
    kept = Mappings()
    looks.append(LIMIT - SPARE - 10 * FOR_KERNEL)
    kept.make_room(20_000 // FOR_KERNEL, "PoCL")
    for _ in range(3):
        with pytest.raises(DeviceMemoryError, match=r"sysctl vm\.max_map_count"):
            kept.make_room(LIMIT // FOR_KERNEL, "PoCL")
    kept.make_room(10, "PoCL")
    with pytest.raises(DeviceMemoryError, match=r"room for 11 more kernels of PoCL.* 61384 are"):
        kept.make_room(11, "PoCL")
    looks.append(2000)
    kept.make_room(11, "PoCL")


def test_systems_without_that_limit_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings, "_limit", lambda: None)
    Mappings().make_room(10**9, "PoCL")


def test_a_computation_that_found_no_room_runs_later(
    transformer: OpenCLTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.placeholder((3,))
    computation = transformer.computation(weft.sin(x) + 1, x)
    with monkeypatch.context() as patch:
        patch.setattr(mappings, "_limit", lambda: SPARE)
        with pytest.raises(DeviceMemoryError, match="room for 1 more kernels"):
            computation([0, 0, 0])
    assert computation([0, 0, 0]).tolist() == [1, 1, 1]
