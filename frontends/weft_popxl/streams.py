"""Makes streams between host and device, and counts the slices that graphs load and store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from weft_popxl import dtypes
from weft_popxl.arguments import flag, text
from weft_popxl.context import get_ir
from weft_popxl.program import DeviceToHostStream, HostToDeviceStream, Load, Store, Stream
from weft_popxl.tensor_spec import checked_shape

__all__ = [
    "DeviceToHostStream", "HostToDeviceStream", "S", "Stream", "by_stream", "d2h_stream",
    "h2d_stream", "offsets", "totals",
]  # fmt: skip

R = TypeVar("R")
S = TypeVar("S", bound=Stream)


def _stream(kind: type[S], shape: Iterable[int], dtype: Any, name: str | None, wrap: bool) -> S:
    ir = get_ir()
    lengths, wanted = checked_shape(shape), dtypes.dtype.as_dtype(dtype)
    label = "" if name is None else text("the name of a stream", name)
    unique = ir._unique(label or kind.__name__.lower())
    return kind(ir, unique, lengths, wanted, flag("wrap", wrap))


def h2d_stream(
    shape: Iterable[int],
    dtype: Any,
    name: str | None = None,
    *,
    wrap: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> HostToDeviceStream:
    """Return a new stream from host to device, which belongs to the main graph.

    A run takes as many tensors as the ops load. With `wrap` it takes `num_host_transfers` at most,
    and loads wrap around. `meta_shape` has no effect.
    """
    return _stream(HostToDeviceStream, shape, dtype, name, wrap)


def d2h_stream(
    shape: Iterable[int],
    dtype: Any,
    name: str | None = None,
    *,
    wrap: bool = False,
    meta_shape: Iterable[int] | None = None,
) -> DeviceToHostStream:
    """Return a new stream from device to host, which belongs to the main graph.

    A run yields as many tensors as the ops store. With `wrap` it yields `num_host_transfers` at
    most, and stores wrap around, overwriting earlier ones. `meta_shape` has no effect.
    """
    return _stream(DeviceToHostStream, shape, dtype, name, wrap)


def totals(slices: Iterable[Load | Store]) -> dict[Any, int]:
    """Return the number of slices of each stream."""
    found: dict[Any, int] = {}
    for each in slices:
        found[each.stream] = found.get(each.stream, 0) + each.count
    return found


def offsets(loads: Iterable[Load]) -> Iterator[tuple[Load, int]]:
    """Yield each load with the number of slices that earlier loads take from its stream."""
    first: dict[Stream, int] = {}
    for load in loads:
        begin = first.get(load.stream, 0)
        first[load.stream] = begin + load.count
        yield load, begin


def by_stream(stores: Iterable[Store], results: Iterable[R]) -> dict[DeviceToHostStream, list[R]]:
    """Return the results of stores, in their order, by stream."""
    found: dict[DeviceToHostStream, list[R]] = {}
    for store, result in zip(stores, results, strict=True):
        found.setdefault(store.stream, []).append(result)
    return found
