"""The geometry of convolutions: sizes, padded copies of images, and taps of filters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from weft.nn.spatial.geometry import Numbers
from weft.support.locks import cached_property
from weft_tiling.spatial import Geometry


@dataclass(frozen=True)
class Planes:
    """The layout of a zero-padded copy of images, split into the phases of the stride.

    Along each axis, element q of phase f is element ``q * step + f - before`` of the image, so
    neighboring windows read neighboring elements.

    Attributes
    ----------
    lengths
        The spatial sizes of an image.
    step, before
        The stride and the leading padding of each axis.
    phases
        The phases of each axis that filters read.
    sizes
        The elements of a phase along each axis.
    """

    lengths: Numbers
    step: Numbers
    before: Numbers
    phases: tuple[Numbers, ...]
    sizes: Numbers

    @cached_property
    def pitches(self) -> Numbers:
        """The strides of a phase in elements."""
        return tuple(prod(self.sizes[dim + 1 :]) for dim in range(len(self.sizes)))

    @property
    def size(self) -> int:
        """The elements of a channel."""
        return prod(map(len, self.phases)) * prod(self.sizes)

    def place(self, phases: Numbers, elements: Numbers) -> int:
        """Return the offset of an element of a phase in a channel."""
        number = 0
        for several, phase in zip(self.phases, phases, strict=True):
            number = number * len(several) + several.index(phase)
        steps = zip(elements, self.pitches, strict=True)
        return number * prod(self.sizes) + sum(q * pitch for q, pitch in steps)


@dataclass(frozen=True)
class OutputPhase:
    """The results with the same phase of the stride, which have the same taps.

    Attributes
    ----------
    counts
        The number of results along each axis.
    first, step
        The index of the first result along each axis, and their step.
    taps
        For each tap the index of the filter's element, and the offset in the planes of the image
        element that the first result reads.
    """

    counts: Numbers
    first: Numbers
    step: Numbers
    taps: tuple[tuple[int, int], ...]


def forward(geometry: Geometry) -> tuple[Planes, tuple[OutputPhase, ...]]:
    """Return the planes of the images and the single phase of the outputs."""
    kernel, stride, padding, dilation = geometry.sliding
    axes = list(zip(kernel, stride, dilation, geometry.counts, strict=True))
    planes = Planes(
        geometry.lengths,
        stride,
        tuple(before for before, _ in padding),
        tuple(tuple(sorted({k * gap % step for k in range(size)})) for size, step, gap, _ in axes),
        tuple(count + (size - 1) * gap // step for size, step, gap, count in axes),
    )
    taps = []
    for number, tap in enumerate(product(*map(range, kernel))):
        offsets = [k * gap for k, gap in zip(tap, dilation, strict=True)]
        parts = [divmod(offset, step) for offset, step in zip(offsets, stride, strict=True)]
        elements, phases = zip(*parts, strict=True)
        taps.append((number, planes.place(phases, elements)))
    rank = len(kernel)
    return planes, (OutputPhase(geometry.counts, (0,) * rank, (1,) * rank, tuple(taps)),)


@dataclass(frozen=True)
class _AxisPhase:
    """A phase of results along one axis: their number, the first index, and the taps."""

    count: int
    first: int
    taps: tuple[tuple[int, int], ...]


def transposed(geometry: Geometry) -> tuple[Planes, tuple[OutputPhase, ...]]:
    """Return the planes of the outputs and the phases of the images, for the input gradient."""
    phases_by_axis = [_axis_phases(geometry, axis) for axis in range(len(geometry.lengths))]
    offsets_by_axis = [
        [at for phase in several for _, at in phase.taps] for several in phases_by_axis
    ]
    before = tuple(max(0, -min(several, default=0)) for several in offsets_by_axis)
    ends = [
        max((phase.count - 1 + at for phase in several for _, at in phase.taps), default=0)
        for several in phases_by_axis
    ]
    rank = len(phases_by_axis)
    planes = Planes(
        geometry.counts,
        (1,) * rank,
        before,
        ((0,),) * rank,
        tuple(max(end + more + 1, 1) for end, more in zip(ends, before, strict=True)),
    )
    output_phases = []
    kernel, stride, *_ = geometry.sliding
    for chosen in product(*phases_by_axis):
        taps = []
        for tap in product(*(phase.taps for phase in chosen)):
            number = 0
            for (k, _), size in zip(tap, kernel, strict=True):
                number = number * size + k
            elements = tuple(at + more for (_, at), more in zip(tap, before, strict=True))
            taps.append((number, planes.place((0,) * rank, elements)))
        counts = tuple(phase.count for phase in chosen)
        if all(counts):
            first = tuple(phase.first for phase in chosen)
            output_phases.append(OutputPhase(counts, first, stride, tuple(taps)))
    return planes, tuple(output_phases)


def _axis_phases(geometry: Geometry, axis: int) -> list[_AxisPhase]:
    kernel, stride, padding, dilation = geometry.sliding
    size, step, before, gap = kernel[axis], stride[axis], padding[axis][0], dilation[axis]
    phases = []
    for phase in range(step):
        lowest = -(-(before - phase) // step)
        highest = (before + geometry.lengths[axis] - 1 - phase) // step
        taps = [(k, lowest - (k * gap - phase) // step)
                for k in range(size) if (k * gap - phase) % step == 0]  # fmt: skip
        first = lowest * step + phase - before
        phases.append(_AxisPhase(max(highest - lowest + 1, 0), first, tuple(taps)))
    return phases
