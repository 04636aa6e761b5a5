"""The workspace pool: memory that the programs of a transformer use in turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft_c.runtime.device import DeviceMemory, OpenDevice
from weft_c.runtime.errors import DeviceMemoryError
from weft_c.runtime.workspace_pool import WorkspacePool

ROOM = 100


class Device(OpenDevice):
    """A device with little memory."""

    processor: Any = None

    def __init__(self) -> None:
        super().__init__("a device", ())

    def failed(self, error: Exception, doing: str) -> Any:
        raise AssertionError

    def memory(self, nbytes: int, what: str) -> DeviceMemory:
        if self.live_bytes + nbytes > ROOM:
            raise DeviceMemoryError(f"no memory left for {what}")
        return DeviceMemory(self, nbytes)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 2 * ROOM)), max_size=30))
def test_a_block_is_as_large_as_the_largest_request(
    asked: list[tuple[str, int]],
) -> None:
    device = Device()
    workspace_pool = WorkspacePool(device.memory)
    held: dict[str, DeviceMemory] = {}
    for name, nbytes in asked:
        before, others = workspace_pool.version, {k: v for k, v in held.items() if k != name}
        fits = name in held and held[name].nbytes >= nbytes
        if fits or sum(each.nbytes for each in others.values()) + nbytes <= ROOM:
            found = workspace_pool.reserve(name, nbytes, "this")
            assert found.nbytes == (held[name].nbytes if fits else nbytes)
            assert (found is held.get(name)) is fits
            held[name] = found
        else:
            with pytest.raises(DeviceMemoryError, match="for this"):
                workspace_pool.reserve(name, nbytes, "this")
        is_gone = name not in others and name in dict(asked) and not fits
        assert (workspace_pool.version == before) or is_gone
        if workspace_pool.version != before and name in held and held[name].nbytes < nbytes:
            del held[name]
        assert device.live_bytes == sum(each.nbytes for each in held.values())
    workspace_pool.release()
    assert device.live_bytes == 0
