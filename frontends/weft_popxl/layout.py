"""How the tensors that pass through a stream in one run lie in an array on the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft_popxl.errors import refuse_value
from weft_popxl.streams import Load, Store, Stream, totals

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """The slices of a stream in one run.

    Attributes
    ----------
    stream
        Whose slices they are.
    uses
        How often the ops load or store the stream.
    count
        The slices that the host gives or gets: one for each use, or fewer where the stream wraps.
    most
        How many an array may have at most, as PopXL's arrays have `num_host_transfers` for all.
    """

    stream: Stream
    uses: int
    count: int
    most: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array; a single slice has no axis in front."""
        return (self.count, *self.stream.shape) if self.count > 1 else self.stream.shape

    def slices_of(self, what: str, array: Array) -> int:
        """Return how many slices an array has; raises ValueError if it does not fit.

        Where a slice is one element, axes of length 1 do not matter.
        """
        own = self.stream.shape
        if math.prod(own) == 1:
            found = array.size
        elif array.shape == own:
            found = 1
        else:
            found = len(array) if array.ndim and array.shape[1:] == own else 0
        if found not in (self.count, self.uses) and not self.count < found <= self.most:
            more = f", or up to {self.most} slices" if self.most > self.count else ""
            refuse_value(
                f"the {what} of {self.stream!r} must have the shape {self.shape}{more}: the ops of "
                f"a run use it {self.uses} times; not {array.shape}"
            )
        return found

    def gathered(self, parts: Sequence[Array]) -> Array:
        """Return what the ops stored in one array: the last slices where the stream wraps."""
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(whole) > self.count:
            whole = np.roll(whole[-self.count :], len(whole), axis=0)
        return whole.reshape(self.shape)


def layouts(slices: Iterable[Load | Store], transfers: int) -> dict[Any, Layout]:
    """Return the layout of each stream that ops use, for a number of host transfers."""
    found = {}
    for stream, uses in totals(slices).items():
        count = min(uses, transfers) if stream.wrap else uses
        found[stream] = Layout(stream, uses, count, max(count, transfers))
    return found
