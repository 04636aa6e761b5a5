"""Streams between host and device, and the slices of them that a graph loads and stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from weft_popxl import dtypes
from weft_popxl.arguments import flag, text
from weft_popxl.context import get_ir
from weft_popxl.tensor import TensorSpec, checked_shape

if TYPE_CHECKING:
    from weft import TensorOp
    from weft_popxl.ir import Ir


@dataclass(eq=False, repr=False)
class Stream:
    """A sequence of tensors of one shape and dtype between host and device.

    Attributes
    ----------
    ir
        The Ir of the stream.
    name
        Unique in the Ir.
    shape, dtype
        Of each tensor.
    wrap
        Whether the ops of a run wrap around to the first slice after `num_host_transfers` slices.
    """

    ir: Ir
    name: str
    shape: tuple[int, ...]
    dtype: dtypes.dtype
    wrap: bool = False

    @property
    def tensor_id(self) -> str:
        """The name."""
        return self.name

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype."""
        return TensorSpec(self.shape, self.dtype)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}[name={self.name} shape={self.shape} dtype={self.dtype.name}]"


class HostToDeviceStream(Stream):
    """A stream to the device; each `ops.host_load` takes the next tensor."""


class DeviceToHostStream(Stream):
    """A stream to the host; each `ops.host_store` appends a tensor."""


@dataclass(frozen=True)
class Load:
    """Slices of a stream that a graph loads, in one placeholder of shape (count, …)."""

    stream: HostToDeviceStream
    count: int
    op: TensorOp


@dataclass(frozen=True)
class Store:
    """Slices of a stream that a graph stores, in one op of shape (count, …)."""

    stream: DeviceToHostStream
    count: int
    op: TensorOp


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
