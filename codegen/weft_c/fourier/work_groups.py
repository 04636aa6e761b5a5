"""Transforms on other devices: a work group for some rows, in local memory between stages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.guards import is_multiple, is_traced
from weft.support.backports import override
from weft_c.fourier.mixed_radix import MixedRadixOp, Stage
from weft_c.fourier.places import Elements, Parts, Place, Swapped
from weft_c.fourier.steps import Transform
from weft_c.fourier.vectors import Vectors
from weft_c.loops.parallel import unravel_index, work_group_loop, work_item_loop
from weft_c.lowering import Array, Lowering

POINTS_PER_ITEM = 4
"""The elements for each work item of a group that takes several rows."""


class GroupTransform(Transform):
    """Builds the kernel of a transform with work groups.

    Attributes
    ----------
    row_in_group
        While a loop is written, the number of the row within the group's.
    """

    row_in_group: str

    def __init__(
        self, op: MixedRadixOp, lowering: Lowering, x: TensorDescription, out: TensorDescription
    ) -> None:
        super().__init__(op, lowering, x, out)
        slots = self.n + 1 if op.is_real else self.n
        fitting = self.processor.local_bytes // (4 * op.dtype.itemsize * slots)
        self.rows = max(1, min(fitting, POINTS_PER_ITEM * self.processor.group // slots))
        if not is_traced(self.count):
            self.rows = min(self.rows, self.count)
        self.vectors = Vectors(self.code, op.dtype, 1)
        size = self.rows * slots
        for number in range(2):
            self.code.declare(f"LOCAL {self.vectors.type} shared{number}[{2 * size}];")
        self.slots = slots
        self.shared = [Parts(partial(self._address, name), size) for name in ("shared0", "shared1")]

    def _address(self, name: str, e: str) -> str:
        return f"{name} + {self.row_in_group} * {self.slots} + {e}"

    def write(self) -> None:
        """Write the loop over blocks of rows, and launch the kernel."""
        blocks = -(-self.count // self.rows)
        is_inverse, takes_pairs = self.op.sign > 0, not self.op.has_factors and not self.op.is_real
        with work_group_loop(self.builder, prod(self.outer) * blocks) as number:
            shape = (*self.outer, blocks)
            *outer, self.block = unravel_index(self.code, shape, number, self.kind)

            def at(e: str, lane: int) -> tuple[str, ...]:
                return (*outer, self.row, f"({e})")

            source: Place = Elements(self.x, at)
            target: Place = Elements(self.out, at)
            if is_inverse and takes_pairs:
                source = Swapped(source)
            self.source = source
            self.write_steps(source, Swapped(target) if is_inverse else target)

    @override
    def spare(self, place: Place) -> Parts:
        return self.shared[1] if place is self.shared[0] else self.shared[0]

    @contextmanager
    @override
    def elements(self, count: int, source: Place) -> Iterator[tuple[Vectors, str]]:
        code = self.code
        array: Array = self.x if source is self.source else self.out
        with code.block(work_item_loop(self.builder, "point", self.rows * count)):
            # Neighboring work items access neighboring elements, or rows, of the array.
            if array.strides[-2] == 2:
                self.row_in_group, e = unravel_index(code, (self.rows, count), "point", "i32")
            else:
                e, self.row_in_group = unravel_index(code, (count, self.rows), "point", "i32")
            self.row = self._row_number()
            yield self.vectors, e
        code.line("BARRIER();")

    def _row_number(self) -> str:
        """Return the number of a row; the last one may occur several times."""
        if self.rows == 1:
            return self.block
        number = f"{self.block} * {self.rows} + {self.row_in_group}"
        if is_multiple(self.count, self.rows):
            return f"({number})"
        last = f"{self.count} - 1"
        value = f"{number} < {last} ? {number} : {last}"
        return self.code.define(f"const {self.kind}", "row", value)

    @override
    def write_stage(self, stage: Stage, source: Place, target: Place) -> None:
        radix, rest, done, first_root = stage
        with self.elements(self.n // radix, source) as (vectors, point):
            butterfly = self.butterfly(vectors)
            p, q = unravel_index(self.code, (rest, done), point, "i32")
            loaded = [
                source.load(vectors, f"{q} + {done} * ({p} + {rest * j})") for j in range(radix)
            ]
            for k, value in enumerate(butterfly.transform(loaded)):
                e = f"{q} + {done} * ({radix} * {p} + {k})"
                if rest == 1:
                    value = self.finished(vectors, value, e)
                elif k:
                    root = self.root(vectors, first_root + 2 * (k - 1) * rest, rest, p)
                    value = butterfly.product(value, root)
                target.store(vectors, e, value)
