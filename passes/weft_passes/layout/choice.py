"""Chooses for each region the axis split that moves the fewest bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from weft.ir.axes import Axes, make_axes
from weft.ir.description import contiguous
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.ir.views import Layouts
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import ContractionOp, MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft_passes.axis_splitting import AxisSplit, flat, lengths, restricted, settled, translated
from weft_passes.layout.prices import Crossing, Reducing, Sharing
from weft_passes.layout.regions import Read, Region, Regions

CANDIDATES = 8
"""The number of axis splits that are compared for one region."""

SHORT = 8
"""An axis of fewer elements is tried as the outermost one, so that rows are longer."""

NEIGHBORS = 8
"""The most other readers of an operand whose axis splits are compared."""


def choose_splits(regions: Regions) -> None:
    """Choose the axis split of each region, those with most work first.

    The others, such as what is computed with the result of a reduction, follow their neighbors.
    """
    chooser = SplitChooser(regions)
    found = dict.fromkeys(regions.regions.values())
    for region in sorted(found, key=chooser.work, reverse=True):
        chooser.choose(region)


def candidates(
    crossings: Iterable[Crossing | Sharing], own: Iterable[AxisSplit]
) -> list[AxisSplit]:
    """Return the axis splits of a region's ops, then those of their neighbors."""
    outside = [settled(each.split) for each in crossings]
    splits = dict.fromkeys(map(settled, own))
    factors = set(flat(next(iter(splits))))
    splits.update(dict.fromkeys(split for split in outside if set(flat(split)) == factors))
    orders = dict.fromkeys(map(flat, splits))
    if len(orders) > 1:
        # Axes that are joined in one order may lie apart in another, where a copy would join them.
        splits.update(dict.fromkeys(tuple((factor,) for factor in row) for row in orders))
    first, *others = splits
    if len(first) > 1 and 1 < lengths(first)[-1] < SHORT:
        others.insert(0, (first[-1], *first[:-1]))
    return [first, *others][:CANDIDATES]


class SplitChooser:
    """Chooses axis splits; later regions see the choices for earlier ones."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.layouts = Layouts()
        self.readers: dict[Op, list[Read]] = {}

    def work(self, region: Region) -> int:
        """Return the number of elements that are computed in a region."""
        return len(region.ops) * prod(lengths(self.regions.splits[region.ops[0]]))

    def choose(self, region: Region) -> None:
        """Change a region's axis split if another one is cheaper."""
        if not self.is_plain(region):
            crossings = [*self.entering(region), *self.leaving(region)]
            own = self.own_splits(region)
            best = self.best_form(region, crossings, own)
            if list(own) != [best]:
                region.split, region.axes = best, own.get(best) or make_axes(lengths(best))
        for read in region.reads:
            self.readers.setdefault(read.root, []).append(read)

    def best_form(
        self, region: Region, crossings: Sequence[Crossing | Sharing], own: Iterable[AxisSplit]
    ) -> AxisSplit:
        """Return a region's cheapest axis split; of equal ones, the one with fewer views."""
        reductions = [
            Reducing(op, self.regions) for op in region.ops if isinstance(op, ReductionOp)
        ]

        def price(split: AxisSplit) -> tuple[int, int]:
            total = sum(each.price(split) for each in (*crossings, *reductions))
            return total, sum(settled(each.split) != split for each in crossings)

        splits = candidates(crossings, own)
        return min(splits, key=price) if len(splits) > 1 else splits[0]

    def is_plain(self, region: Region) -> bool:
        """Whether no view is near, and all neighbors are computed as they are."""
        regions = self.regions
        reads = [
            read
            for own in region.reads
            for read in (own, *self.readers.get(own.root, ())[:NEIGHBORS])
        ]
        uses = [(op, *use) for op in region.ops for use in regions.uses.get(op, ())]
        near = [read.op for read in reads] + [user for _, _, user in uses]
        return (
            len({id(regions.splits[op]) for op in region.ops}) == 1
            and all(read.root is read.arg for read in reads)
            and all(arg is op for op, arg, _ in uses)
            and all(regions.result_forms(read.root) is None for read in region.reads)
            and all(regions.regions[op].split is None for op in near if op in regions.regions)
        )

    def own_splits(self, region: Region) -> dict[AxisSplit, Axes]:
        """Return the axis splits of the ops with their axes, the most frequent first."""
        counts: Counter[AxisSplit] = Counter()
        axes: dict[AxisSplit, Axes] = {}
        for op in region.ops:
            split = settled(self.regions.splits[op])
            counts[split] += 1
            axes.setdefault(split, op.axes if isinstance(op, ElementwiseOp) else op.args[0].axes)
        return {split: axes[split] for split, _ in counts.most_common()}

    def entering(self, region: Region) -> Iterator[Crossing | Sharing]:
        """Yield the values that enter a region, and their other readers."""
        reads = {(read.root, settled(read.split)): read for read in region.reads}
        for read in reads.values():
            root = read.root
            is_fused = isinstance(root, ElementwiseOp | ReductionOp | ContractionOp)
            split, lies = read.split, self.layouts.of(root)
            chosen = self.regions.result_forms(root)
            if chosen is not None:
                known, now = chosen
                found = translated(now, known, split)
                if found is not None:
                    split, lies = found, contiguous(lengths(now), root.dtype)
            yield Crossing(split, lies, False, is_fused, isinstance(root, ParameterOp))
            for other in self.readers.get(root, ())[:NEIGHBORS]:
                shared = translated(self.read_form(other), other.split, read.split)
                if shared is not None:
                    yield Sharing(shared, lies.nbytes)

    def leaving(self, region: Region) -> Iterator[Crossing]:
        """Yield the values that leave a region."""
        for op in region.ops:
            lies = contiguous(op.axes.shape, op.dtype)
            for arg, user in self.regions.uses.get(op, ()):
                read = None if user is None else self.regions.reads.get((user, arg))
                split = self.wanted(op, arg, read)
                if split is not None:
                    is_factor = isinstance(user, MatmulOp)
                    yield Crossing(split, lies, True, read is not None, user is None, is_factor)

    def wanted(self, op: Op, arg: Op, read: Read | None) -> AxisSplit | None:
        """Return the axis split in which readers outside the region need a value, if known."""
        own = self.regions.splits[op]
        if read is not None and read.root is op:
            return translated(self.read_form(read), read.split, own)
        if arg is op:
            return own
        view = self.regions.views[arg]
        return translated(view.split, view.root_split, own)

    def read_form(self, read: Read) -> AxisSplit:
        """Return the axis split of an operand of a region, in the factors of the reader."""
        split = self.regions.regions[read.op].split or self.regions.splits[read.op]
        return restricted(split, read.split)
