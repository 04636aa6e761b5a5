"""Body: the instructions of a kernel on a tile, in order, and where each value is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ops.elementwise import ElementwiseOp
from weft.ops.math import PowerOp
from weft.plan.plan import Step
from weft_numpy.codegen import Emitter
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.rules.reduction import COUNTING, REDUCTIONS, write_reduction
from weft_numpy.rules.table import rules


class Slot(NamedTuple):
    """Scratch memory for one value at a time: its number, dimensions and dtype."""

    number: int
    varying: frozenset[int]
    dtype: DType


class Memory(NamedTuple):
    """The layouts of the arrays of a body: operands, results and slots, by their number."""

    operands: Sequence[TensorDescription]
    results: Sequence[TensorDescription]
    slots: Sequence[TensorDescription]


class Body:
    """Instructions that run in sequence.

    Attributes
    ----------
    numbers
        The values that they compute.
    homes
        Where each is computed: in a slot, or in a result, by its index.
    copies
        The results that are copied in the end, by their index, and the values that they have.
    slots
        The scratch memory.
    whole
        For a reduction of a repeated value, the slot with all of its elements.
    """

    def __init__(self, values: KernelValues) -> None:
        self.values, self.kernel = values, values.kernel
        self.numbers = values.computed
        self.place = {number: place for place, number in enumerate(self.numbers)}
        self.last: dict[int, int] = {}
        for number, place in self.place.items():
            self.last |= dict.fromkeys(self.read(number), place)
        self.homes: dict[int, Slot | int] = {}
        self.copies: list[tuple[int, int]] = []
        self.slots: list[Slot] = []
        self.free: list[Slot] = []
        self.whole: dict[int, Slot] = {}
        self._assign_results()
        for number in self.numbers:
            self._assign_slot(number)

    def read(self, number: int) -> tuple[int, ...]:
        """Return the values that an instruction reads."""
        return tuple(self.values.sources[arg] for arg in self.kernel.instruction(number).args)

    def _assign_results(self) -> None:
        """Compute results in place where possible; else they are copied in the end."""
        for index, output in enumerate(self.kernel.outputs):
            source = self.values.sources[output]
            in_place = (
                source in self.place
                and source not in self.homes
                and self.values.shape(source) == self.values.results[index].shape
                and self._may_write(index, source)
            )
            if in_place:
                self.homes[source] = index
            else:
                self.copies.append((index, source))
                self.last[source] = len(self.numbers)

    def _may_write(self, index: int, number: int) -> bool:
        """Whether a value can be written to a result's memory: no operand there is read later."""
        place = self.place[number]
        return all(
            self.last.get(under, -1) < place
            or (self.last[under] == place and self._overwrites(number, under))
            for under in self.values.shared[index]
        )

    def _overwrites(self, number: int, arg: int) -> bool:
        """Whether an instruction may overwrite one of its operands."""
        op = self.kernel.instruction(number).op
        if not isinstance(op, ElementwiseOp) or isinstance(op, PowerOp):
            return False  # small powers need their base to the end
        return all(op.may_overwrite(i) for i, other in enumerate(self.read(number)) if other == arg)

    def _assign_slot(self, number: int) -> None:
        """Assign scratch memory, over an operand that is not read again if possible."""
        known = {arg: self.homes.get(arg) for arg in self.read(number)}
        dying = {
            arg: home
            for arg, home in known.items()
            if self.last[arg] == self.place[number] and isinstance(home, Slot)
        }
        over = [home for arg, home in dying.items() if self._overwrites(number, arg)]
        self.free += over
        varying = self.values.varying
        if number not in self.homes:
            self.homes[number] = self._slot(varying[number], self.values.dtype(number))
        if self._is_repeated(number):
            everywhere = frozenset(range(len(self.values.lengths)))
            slot = self._slot(everywhere, self.values.dtype(*self.read(number)))
            self.whole[number] = slot
            self.free.append(slot)
        self.free += [home for home in dying.values() if home not in over]
        home = self.homes[number]
        if number not in self.last and isinstance(home, Slot):
            self.free.append(home)

    def _is_repeated(self, number: int) -> bool:
        """Whether the operand of a reduction must be broadcast first."""
        op = self.kernel.instruction(number).op
        if type(op) not in REDUCTIONS:
            return False
        counted = {axis for axis, length in enumerate(self.values.lengths) if length != 1}
        if not isinstance(op, COUNTING):
            counted -= self.values.reduced
        return not counted <= self.values.varying[self.read(number)[0]]

    def _slot(self, varying: frozenset[int], dtype: DType) -> Slot:
        """Return free scratch memory, or more of it."""
        for slot in self.free:
            if slot[1:] == (varying, dtype):
                self.free.remove(slot)
                return slot
        self.slots.append(Slot(len(self.slots), varying, dtype))
        return self.slots[-1]

    def write(self, emit: Emitter, memory: Memory) -> None:
        """Write the code of the body."""
        for number in self.numbers:
            self._write_one(emit, memory, number)
        for index, source in self.copies:
            emit.at(self.kernel.instruction(self.kernel.outputs[index]).op)
            target, layout = memory.results[index], self.home(memory, source)
            emit.line(f"{emit.name(target)}[...] = {emit.name(layout)}")

    def home(self, memory: Memory, number: int) -> TensorDescription:
        """Return the layout of a value."""
        home = self.homes.get(number)
        if home is None:
            return memory.operands[number]
        return memory.slots[home.number] if isinstance(home, Slot) else memory.results[home]

    def _write_one(self, emit: Emitter, memory: Memory, number: int) -> None:
        op = self.kernel.instruction(number).op
        emit.at(op)
        args = [self.home(memory, arg) for arg in self.read(number)]
        out = self.home(memory, number)
        if type(op) in REDUCTIONS:
            if number in self.whole:
                whole = memory.slots[self.whole[number].number]
                emit.line(f"copyto({emit.name(whole)}, {emit.name(args[0])})")
                args = [whole]
            write_reduction(emit, op, args[0], sorted(self.values.reduced), out, keepdims=True)
            return
        operands = self.kernel.operands
        known = [operands[n].constant if n < len(operands) else None for n in self.read(number)]
        emit.emit_step(Step(op, (out,), tuple(args)), rules[type(op)], known)
