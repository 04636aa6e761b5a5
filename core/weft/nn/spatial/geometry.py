"""The geometry of sliding windows, shared by convolution, pooling and unfolding.

Along each axis, windows of `kernel` elements, `dilation` apart, start at every `stride`-th element
of the padded operand. The spatial axes are the last ones.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex

from weft.errors import ArgumentError, AxesError, WeftError
from weft.ir.lengths import floor_divide
from weft.ir.op import explain
from weft.ir.tensor import TensorOp

Numbers = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
PerAxis = SupportsIndex | Sequence[SupportsIndex]
"""An integer for each spatial axis, or one for all."""

Padding = PerAxis | Sequence[SupportsIndex | Sequence[SupportsIndex]] | str
"""Numbers of zeros around an image, or a word for them; see `conv`."""

Span = tuple[Any, int, int, int]
Tap = tuple[Any, Any, Any]

SPATIAL = (1, 2, 3)
"""The supported numbers of spatial axes."""


class Sliding(NamedTuple):
    """The geometry of sliding windows.

    Attributes
    ----------
    kernel, stride, dilation
        For each axis the number of elements of a window, the step between windows, and the step
        between elements of a window.
    padding
        For each axis the number of elements around the operand, before and after; a negative number
        leaves out elements of the operand.
    """

    kernel: Numbers
    stride: Numbers
    padding: Pairs
    dilation: Numbers

    @property
    def extents(self) -> Numbers:
        """The dilated lengths of a window, from its first to its last element."""
        return tuple((n - 1) * gap + 1 for n, gap in zip(self.kernel, self.dilation, strict=True))

    def along(self, place: int) -> Sliding:
        """Return the windows along one of the axes."""
        return Sliding(*(each[place : place + 1] for each in self))  # type: ignore[arg-type]

    def padded(self, lengths: Iterable[Any]) -> tuple[Any, ...]:
        """Return lengths with the padding added."""
        return tuple(
            before + n + after for n, (before, after) in zip(lengths, self.padding, strict=True)
        )

    def counts(self, lengths: Iterable[Any]) -> tuple[Any, ...]:
        """Return the number of windows along each axis; raises AxesError if none fits."""
        found = []
        padded = self.padded(lengths)
        for size, extent, step in zip(padded, self.extents, self.stride, strict=True):
            if isinstance(size, int) and size < extent:
                raise AxesError(
                    f"no window of {self.extents} elements (kernel {self.kernel}, dilation "
                    f"{self.dilation}) fits {padded} elements (padding {self.padding} included)"
                )
            found.append(floor_divide(size - extent, step) + 1)
        return tuple(found)

    def spans(self, lengths: Iterable[Any]) -> tuple[Span, ...]:
        """Return the spans of a `WindowsOp` over the padded axes."""
        counts = self.counts(lengths)
        return tuple(zip(counts, self.stride, self.kernel, self.dilation, strict=True))

    def lengths(self, counts: Iterable[Any]) -> tuple[Any, ...]:
        """Return the least lengths with these numbers of windows."""
        return tuple(
            (count - 1) * step + extent - before - after
            for count, step, extent, (before, after) in zip(
                counts, self.stride, self.extents, self.padding, strict=True
            )
        )

    def taps(self, lengths: Sequence[int]) -> Iterator[Tap]:
        """Yield for each tap of the window the indices of windows, of elements, and of the tap.

        They index the last axes of an output, of the operand, and of a kernel. Windows whose tap
        falls on the padding are left out.
        """
        along = []
        for n, count, *rest in zip(lengths, self.counts(lengths), *self, strict=True):
            size, step, (before, _), gap = rest
            taps = []
            for place in range(size):
                offset = place * gap - before
                first, last = max(-(offset // step), 0), min((n - 1 - offset) // step, count - 1)
                if first <= last:
                    start = first * step + offset
                    elements = slice(start, start + (last - first) * step + 1, step)
                    taps.append((slice(first, last + 1), elements, place))
            along.append(taps)
        for tap in itertools.product(*along):
            windows, elements, places = zip(*tap, strict=True)
            yield (..., *windows), (..., *elements), (..., *places)


class Use(NamedTuple):
    """A call of a function with spatial operands; checks its arguments."""

    function: str
    operands: tuple[TensorOp, ...]

    def refusal(self, problem: str, kind: type[WeftError] = ArgumentError) -> WeftError:
        """Return an error with the function, the operands and their lines."""
        return kind(explain(self.function, problem, self.operands))

    def spatial_lengths(self, ranks: tuple[int, ...] = SPATIAL) -> tuple[Any, ...]:
        """Return the lengths of the first operand's axes after batch and channel."""
        axes = self.operands[0].axes
        if axes.is_named:
            problem = f"the axes must be positional, not {axes}: drop the names with cast_axes(x, "
            raise self.refusal(f"{problem}x.axes.lengths)", AxesError)
        if len(axes) - 2 not in ranks:
            several = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"
            problem = f"the axes must be (N, C, {several} spatial), not {axes}"
            raise self.refusal(problem, AxesError)
        return axes.lengths[2:]

    def numbers(self, what: str, value: Any, count: int, least: int = 1) -> Numbers:
        """Return an integer for each of `count` axes, from a single one or a list."""
        several = [value] * count if is_count(value, least) else value
        if _lists(several, count) and all(is_count(each, least) for each in several):
            return tuple(operator.index(each) for each in several)
        problem = f"{what} must be an integer >= {least}, or a list of {count}, not {value!r}"
        raise self.refusal(problem)

    def sliding(
        self, lengths: Sequence[Any], kernel: Any, stride: Any, padding: Any, dilation: Any
    ) -> Sliding:
        """Return the windows over axes of these lengths, from the user's arguments."""
        count = len(lengths)
        sizes = self.numbers("kernel", kernel, count)
        steps = self.numbers("stride", stride, count)
        gaps = self.numbers("dilation", dilation, count)
        bare = Sliding(sizes, steps, ((0, 0),) * count, gaps)
        return bare._replace(padding=self._pairs(padding, bare, lengths))

    def fitting(self, sliding: Sliding, lengths: Sequence[Any]) -> Sliding:
        """Return the windows unchanged; raises AxesError if none fits."""
        try:
            sliding.counts(lengths)
        except AxesError as error:
            raise self.refusal(error.problem, AxesError) from None
        return sliding

    def _pairs(self, padding: Any, bare: Sliding, lengths: Sequence[Any]) -> Pairs:
        if isinstance(padding, str) and padding in ("same", "same_lower"):
            evened = map(self._same, lengths, bare.extents, bare.stride)
            return tuple((b, a) if padding == "same_lower" else (a, b) for a, b in evened)
        count = len(lengths)
        value = 0 if isinstance(padding, str) and padding == "valid" else padding
        several: Any = [value] * count if is_count(value) else value
        if _lists(several, count):
            pairs: list[Any] = [(each, each) if is_count(each) else each for each in several]
            if all(_lists(pair, 2) and all(map(is_count, pair)) for pair in pairs):
                return tuple((operator.index(a), operator.index(b)) for a, b in pairs)
        raise self.refusal(
            f"padding must be a number, or a list with a number or a pair (before, after) for each "
            f"of {count} spatial axes, or 'valid', 'same' or 'same_lower', not {padding!r}"
        )

    def _same(self, length: Any, extent: int, step: int) -> tuple[int, int]:
        total = extent - 1
        if step > 1:
            if not isinstance(length, int):
                problem = f"padding 'same' with stride {step} needs a known length, not {length}"
                raise self.refusal(f"{problem}: give numbers", AxesError)
            total = max((-(-length // step) - 1) * step + extent - length, 0)
        return total // 2, total - total // 2


def is_count(value: Any, least: int = 0) -> bool:
    """Whether a value is an integer of at least `least`."""
    try:
        return not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        return False


def _lists(value: Any, count: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == count
