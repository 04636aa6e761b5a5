"""Chooses for each region the form that moves the fewest bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from weft.ir.axes import Axes, make_axes
from weft.ir.description import contiguous
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.ir.views import Layouts
from weft.ops.elementwise import ElementwiseOp
from weft.ops.linalg import MatmulOp
from weft.ops.reduction import ReductionOp
from weft_passes.factors import Form, flat, lengths, restricted, settled, translated
from weft_passes.layout.prices import Crossing, Reducing, Sharing
from weft_passes.layout.regions import Read, Region, Regions

CANDIDATES = 8
"""The number of forms that are compared for one region."""

NEIGHBOURS = 8
"""The number of other readers of an operand that are asked in which form they read it."""


def choose_forms(regions: Regions) -> None:
    """Set the form of each region that gains by another than its own, those with most work first.

    The others, such as what is computed with the result of a reduction, follow their neighbours.
    """
    choice = Choice(regions)
    found = dict.fromkeys(regions.regions.values())
    for region in sorted(found, key=choice.work, reverse=True):
        choice.choose(region)


def candidates(crossings: Iterable[Crossing | Sharing], own: Iterable[Form]) -> list[Form]:
    """Return the forms that ops of a region or their neighbours have, those of the ops first."""
    outside = [settled(each.form) for each in crossings]
    forms = dict.fromkeys(map(settled, own))
    factors = set(flat(next(iter(forms))))
    forms.update(dict.fromkeys(form for form in outside if set(flat(form)) == factors))
    orders = dict.fromkeys(map(flat, forms))
    if len(orders) > 1:
        # Axes that are joined in one order may lie apart in another, where a copy would join them.
        forms.update(dict.fromkeys(tuple((factor,) for factor in row) for row in orders))
    return list(forms)[:CANDIDATES]


class Choice:
    """Chooses forms; regions that come later see what was chosen for those before."""

    def __init__(self, regions: Regions) -> None:
        self.regions = regions
        self.layouts = Layouts()
        self.readers: dict[Op, list[Read]] = {}

    def work(self, region: Region) -> int:
        """Return the number of elements that are computed in a region."""
        return len(region.ops) * prod(lengths(self.regions.forms[region.ops[0]]))

    def choose(self, region: Region) -> None:
        """Set a region's form if another than its own is cheaper."""
        if not self.is_plain(region):
            crossings = [*self.entering(region), *self.leaving(region)]
            own = self.own_forms(region)
            best = self.best_form(region, crossings, own)
            if list(own) != [best]:
                region.form, region.axes = best, own.get(best) or make_axes(lengths(best))
        for read in region.reads:
            self.readers.setdefault(read.root, []).append(read)

    def best_form(
        self, region: Region, crossings: Sequence[Crossing | Sharing], own: Iterable[Form]
    ) -> Form:
        """Return the cheapest form for a region, of equal ones that which needs fewer views."""
        reductions = [
            Reducing(op, self.regions) for op in region.ops if isinstance(op, ReductionOp)
        ]

        def price(form: Form) -> tuple[int, int]:
            total = sum(each.price(form) for each in (*crossings, *reductions))
            return total, sum(settled(each.form) != form for each in crossings)

        forms = candidates(crossings, own)
        return min(forms, key=price) if len(forms) > 1 else forms[0]

    def is_plain(self, region: Region) -> bool:
        """Whether no view is near, and all neighbours are computed as they are."""
        regions = self.regions
        reads = [
            read
            for own in region.reads
            for read in (own, *self.readers.get(own.root, ())[:NEIGHBOURS])
        ]
        uses = [(op, *use) for op in region.ops for use in regions.uses.get(op, ())]
        near = [read.op for read in reads] + [user for _, _, user in uses]
        return (
            len({id(regions.forms[op]) for op in region.ops}) == 1
            and all(read.root is read.arg for read in reads)
            and all(arg is op for op, arg, _ in uses)
            and all(regions.result_forms(read.root) is None for read in region.reads)
            and all(regions.regions[op].form is None for op in near if op in regions.regions)
        )

    def own_forms(self, region: Region) -> dict[Form, Axes]:
        """Return the forms that the ops have, the most frequent first, each with their axes."""
        counts: Counter[Form] = Counter()
        axes: dict[Form, Axes] = {}
        for op in region.ops:
            form = settled(self.regions.forms[op])
            counts[form] += 1
            axes.setdefault(form, op.axes if isinstance(op, ElementwiseOp) else op.args[0].axes)
        return {form: axes[form] for form, _ in counts.most_common()}

    def entering(self, region: Region) -> Iterator[Crossing | Sharing]:
        """Yield what enters a region, and who else reads it."""
        reads = {(read.root, settled(read.form)): read for read in region.reads}
        for read in reads.values():
            root = read.root
            is_fused = isinstance(root, ElementwiseOp | ReductionOp | MatmulOp)
            form, lies = read.form, self.layouts.of(root)
            chosen = self.regions.result_forms(root)
            if chosen is not None:
                known, now = chosen
                found = translated(now, known, form)
                if found is not None:
                    form, lies = found, contiguous(lengths(now), root.dtype)
            yield Crossing(form, lies, False, is_fused, isinstance(root, ParameterOp))
            for other in self.readers.get(root, ())[:NEIGHBOURS]:
                shared = translated(self.read_form(other), other.form, read.form)
                if shared is not None:
                    yield Sharing(shared, lies.nbytes)

    def leaving(self, region: Region) -> Iterator[Crossing]:
        """Yield what leaves a region."""
        for op in region.ops:
            lies = contiguous(op.axes.shape, op.dtype)
            for arg, user in self.regions.uses.get(op, ()):
                read = None if user is None else self.regions.reads.get((user, arg))
                form = self.wanted(op, arg, read)
                if form is not None:
                    is_factor = isinstance(user, MatmulOp)
                    yield Crossing(form, lies, True, read is not None, user is None, is_factor)

    def wanted(self, op: Op, arg: Op, read: Read | None) -> Form | None:
        """Return in which form a value is wanted outside its region, if that can be said."""
        own = self.regions.forms[op]
        if read is not None and read.root is op:
            return translated(self.read_form(read), read.form, own)
        if arg is op:
            return own
        view = self.regions.views[arg]
        return translated(view.form, view.root_form, own)

    def read_form(self, read: Read) -> Form:
        """Return in which form, in the factors of the reader, a region reads an operand."""
        form = self.regions.regions[read.op].form or self.regions.forms[read.op]
        return restricted(form, read.form)
