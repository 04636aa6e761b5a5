"""The layout of a stream's slices in a host array, for one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.ir.dtypes import Array
from weft_popxl.errors import refuse_value
from weft_popxl.program import Load, Store, Stream
from weft_popxl.streams import totals


@dataclass(frozen=True)
class Layout:
    """The slices of a stream in one run.

    Attributes
    ----------
    stream
        The stream.
    uses
        The number of loads or stores of the stream.
    count
        The number of slices on the host: one for each use, or fewer if the stream wraps around.
    most
        The maximum number of slices in an array; PopXL's arrays always have `num_host_transfers`.
    """

    stream: Stream
    uses: int
    count: int
    most: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array; a single slice has no leading axis."""
        return (self.count, *self.stream.shape) if self.count > 1 else self.stream.shape

    def slices_of(self, what: str, array: Array) -> int:
        """Return the number of slices in an array; raises ValueError for an invalid shape.

        For slices of one element, axes of length 1 are ignored.
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
        """Return all stored slices in one array; the last ones if the stream wraps around."""
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if len(whole) > self.count:
            whole = np.roll(whole[-self.count :], len(whole), axis=0)
        return whole.reshape(self.shape)


def layouts(slices: Iterable[Load | Store], transfers: int) -> dict[Any, Layout]:
    """Return the layout of each stream in use, for a number of host transfers."""
    found = {}
    for stream, uses in totals(slices).items():
        count = min(uses, transfers) if stream.wrap else uses
        found[stream] = Layout(stream, uses, count, max(count, transfers))
    return found
