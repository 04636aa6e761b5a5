"""Body: instructions of a kernel on a tile, in order, and where each value is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import accumulate
from math import prod
from typing import NamedTuple

import numpy as np

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.kernels import VIEWS
from weft.ops.pointwise.elementwise import MultiplyOp, SquareOp
from weft.ops.pointwise.math import PowerOp
from weft.ops.reductions.reduction import SumOp
from weft.plan.plan import Step
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.rules.reduction import REDUCTIONS, write_reduction
from weft_numpy.rules.table import rules

LINE = 64  # the alignment of scratch arrays, in bytes
BLAS_ROW = 1024  # the longest row that BLAS sums, since it may do so sequentially


def aligned(nbytes: int) -> int:
    """Return the bytes of memory that an array takes up."""
    return -(-max(nbytes, 1) // LINE) * LINE


class Slot(NamedTuple):
    """An array in scratch memory."""

    block: int  # of memory, by its number
    varying: frozenset[int]
    dtype: DType


class Arrays(NamedTuple):
    """Functions that return the layouts of the arrays of a body."""

    value: Callable[[int], TensorDescription]  # of one that is not computed in the body
    result: Callable[[int], TensorDescription]  # by its index
    slot: Callable[[Slot], TensorDescription]


class Body:
    """Instructions that run in sequence on a tile.

    They compute `numbers`, each after its operands, and write `results`, by their index among the
    kernel's. The arrays of values in `outside` come from outside.
    """

    def __init__(
        self,
        values: KernelValues,
        tiling: Tiling,
        numbers: Iterable[int],
        results: Collection[int],
        outside: Collection[int] = (),
    ) -> None:
        self.values, self.kernel, self.tiling = values, values.kernel, tiling
        self.outside = frozenset(outside)
        self.dots: dict[int, tuple[int, ...]] = {}  # sums of products, and their two factors
        self.numbers = self._without_products(list(numbers), results)
        self.place = {number: place for place, number in enumerate(self.numbers)}
        self.last: dict[int, int] = {}
        for number, place in self.place.items():
            self.last |= dict.fromkeys(self.read(number), place)
        # Where each value is computed: in a slot, or in a result, by its index.
        self.homes: dict[int, Slot | int] = {}
        self.copies: list[tuple[int, int]] = []  # results that are copied in the end, and values
        self.sizes: list[int] = []  # the bytes of each block of scratch memory
        self._free: list[int] = []
        self._assign_results(results)
        for number in reversed(self.numbers):
            self._assign_operands(number)

    def read(self, number: int) -> tuple[int, ...]:
        """Return the values that an instruction reads."""
        args = tuple(self.values.sources[arg] for arg in self.kernel.instruction(number).args)
        return self.dots.get(number, args)

    def _without_products(self, numbers: list[int], results: Collection[int]) -> list[int]:
        """Find rows of products that are only summed: BLAS needs no memory for the products."""
        values, last = self.values, len(self.values.lengths) - 1
        readers = Counter(arg for number in numbers for arg in {*self.read(number)})
        readers.update(values.sources[self.kernel.outputs[index]] for index in results)
        is_row = values.reduced == {last} and self.tiling.tile[last] <= BLAS_ROW
        products: set[int] = set()
        for number in numbers if is_row else ():
            source, *_ = self.read(number)
            if type(self.kernel.instruction(number).op) is not SumOp or source not in numbers:
                continue
            product = self.kernel.instruction(source).op
            factors = (self.read(source) * 2)[:2]
            is_product = isinstance(product, MultiplyOp | SquareOp) and readers[source] == 1
            is_float = product.dtype.name in ("float32", "float64")
            if is_product and is_float and all(last in values.varying[each] for each in factors):
                self.dots[number], products = factors, {*products, source}
        return [number for number in numbers if number not in products]

    def _assign_results(self, results: Collection[int]) -> None:
        """Compute results in place where possible; else they are copied in the end."""
        sources = {self.values.sources[self.kernel.outputs[index]] for index in results}
        self.last |= dict.fromkeys(sources.difference(self.place), len(self.numbers))
        for index in results:
            source = self.values.sources[self.kernel.outputs[index]]
            shape = self.values.shape(self.values.varying[source], self.values.lengths)
            in_place = self._has_no_home(source) and shape == self.values.results[index].shape
            # A result that tiles have in common is not for the steps of a chain in each of them.
            is_own = self.tiling.axis in (None, *self.values.varying[source])
            if in_place and is_own and self._may_write(index, source):
                self.homes[source] = index
            else:
                self.copies.append((index, source))
        for _, source in self.copies:
            if self._has_no_home(source):
                self.homes[source] = self._slot(source)

    def _has_no_home(self, number: int) -> bool:
        """Whether a value is computed here and has no memory yet."""
        return number in self.place and number not in self.homes and number not in self.outside

    def _may_write(self, index: int, number: int) -> bool:
        """Whether a value can be written to a result's memory: no operand there is read later."""
        return all(
            self.last.get(under, -1) < self.place[number]
            or (self.last[under] == self.place[number] and self._overwrites(number, under))
            for under in self.values.shared[index]
        )

    def _overwrites(self, number: int, arg: int) -> bool:
        """Whether an instruction may overwrite one of its operands."""
        op = self.kernel.instruction(number).op
        if type(op) in REDUCTIONS or isinstance(op, PowerOp):
            return False  # small powers need their base to the end
        return all(op.may_overwrite(i) for i, other in enumerate(self.read(number)) if other == arg)

    def _assign_operands(self, number: int) -> None:
        """Give memory to the operands that are read here last: that of the value if possible.

        Instructions are visited from the last to the first, so that a chain of values is computed
        in the memory of the result that it leads to.
        """
        if self._has_no_home(number):
            self.homes[number] = self._slot(number)
        home: Slot | int | None = self.homes.get(number)
        for arg in dict.fromkeys(self.read(number)):
            if not self._has_no_home(arg):
                continue
            if home is not None and self._may_hold(home, number, arg):
                self.homes[arg], home = home, None
            else:
                self.homes[arg] = self._slot(arg)
        if isinstance(home, Slot):
            self._free.append(home.block)

    def _may_hold(self, home: Slot | int, number: int, arg: int) -> bool:
        """Whether an operand may be in the memory that its instruction writes."""
        same = self._form(arg) == self._form(number) and self._overwrites(number, arg)
        return same and (isinstance(home, Slot) or self._may_write(home, arg))

    def _form(self, number: int) -> tuple[frozenset[int], DType]:
        return self.values.varying[number], self.values.dtype(number)

    def _slot(self, number: int) -> Slot:
        """Return scratch memory for a value: the smallest free block that fits, or a larger one."""
        slot = Slot(0, *self._form(number))
        wanted = aligned(prod(self.shape(slot)) * slot.dtype.itemsize)
        if not self._free:
            self._free.append(len(self.sizes))
            self.sizes.append(0)
        rest = {block: self.sizes[block] - wanted for block in self._free}
        block = min(rest, key=lambda block: (rest[block] < 0, abs(rest[block])))
        self._free.remove(block)
        self.sizes[block] = max(self.sizes[block], wanted)
        return slot._replace(block=block)

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """Return the shape of a slot in a tile."""
        return self.values.shape(slot.varying, self.tiling.tile)

    @property
    def slots(self) -> dict[Slot, int]:
        """The slots, and their offsets in scratch memory."""
        offsets = list(accumulate(self.sizes, initial=0))
        return {slot: offsets[slot.block] for slot in self.homes.values() if isinstance(slot, Slot)}

    def write(self, emit: Emitter, arrays: Arrays) -> None:
        """Write the code of the body."""
        for number in self.numbers:
            self._write_one(emit, arrays, number)
        for index, source in self.copies:
            emit.at(self.kernel.instruction(self.kernel.outputs[index]).op)
            target, layout = arrays.result(index), self.array(arrays, source)
            emit.line(f"{emit.name(target)}[...] = {emit.name(layout)}")

    def array(self, arrays: Arrays, number: int) -> TensorDescription:
        """Return the layout of a value."""
        home = self.homes.get(number)
        if home is None:
            return arrays.value(number)
        return arrays.slot(home) if isinstance(home, Slot) else arrays.result(home)

    def _write_one(self, emit: Emitter, arrays: Arrays, number: int) -> None:
        op = self.kernel.instruction(number).op
        emit.at(op)
        args = [self.array(arrays, arg) for arg in self.read(number)]
        out = self.array(arrays, number)
        if number in self.dots:
            x, y = map(emit.name, args)
            sums = emit.part(emit.name(out), out, "[..., 0]")
            emit.line(f"{emit.bind(np.vecdot, 'vecdot')}({x}, {y}, {sums})")
            return
        if isinstance(op, VIEWS):
            emit.line(f"{emit.name(out)}[...] = {emit.name(args[0])}")
            return
        if type(op) in REDUCTIONS:
            write_reduction(emit, op, args[0], sorted(self.values.reduced), out, keepdims=True)
            return
        operands = self.kernel.operands
        known = [operands[n].constant if n < len(operands) else None for n in self.read(number)]
        emit.emit_step(Step(op, (out,), tuple(args)), rules[type(op)], known)
