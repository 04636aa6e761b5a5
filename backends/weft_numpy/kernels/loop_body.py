"""LoopBody: instructions of a kernel on one tile, and the scratch memory they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod
from typing import NamedTuple, Protocol

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ops.pointwise.math import PowerOp
from weft.plan.plan import Step
from weft_numpy.emitter import Emitter, How
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.reductions import (
    ReductionStrategy,
    choose_strategy,
    products,
    write_reduction,
)
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.pairwise_sum import accumulator_dtype
from weft_numpy.rules.reduction import REDUCTIONS
from weft_numpy.rules.table import rules

LINE = 64
"""The alignment of scratch arrays, in bytes."""


class ScratchArray(NamedTuple):
    """A block of scratch memory, as an array of a shape and dtype."""

    number: int
    varying: frozenset[int]
    dtype: DType


class Buffers(Protocol):
    """Returns the layouts of the arrays of a body."""

    def value(self, number: int) -> TensorDescription:
        """Return an operand, or another value that the body does not compute."""

    def result(self, index: int) -> TensorDescription:
        """Return a result of the kernel."""

    def scratch(self, array: ScratchArray) -> TensorDescription:
        """Return scratch memory."""


class LoopBody:
    """Instructions that run in sequence on a tile.

    Parameters
    ----------
    numbers
        The values to compute, each after its operands.
    results
        The results to write, by their index among the kernel's.
    partial
        The reductions among `numbers` whose value is a tile's contribution, in the accumulator's
        dtype.
    kept
        The values among `numbers` that are read after the body.

    Attributes
    ----------
    buffers
        Where each value is computed: in a scratch array, or in a result, by its index.
    strategies
        The strategy of each reduction.
    scratch_sizes
        The bytes of each block of scratch memory, for a whole tile.
    """

    def __init__(
        self,
        values: KernelValues,
        tiling: Tiling,
        numbers: Iterable[int],
        results: Collection[int],
        partial: Collection[int] = (),
        kept: Collection[int] = (),
    ) -> None:
        self.values = values
        self.tiling = tiling
        self.kernel = values.kernel
        self.partial = frozenset(partial)
        self.results = tuple(results)
        self.strategies: dict[int, ReductionStrategy] = {}
        self.numbers = self._fold_products(list(numbers))
        self.position = {number: position for position, number in enumerate(self.numbers)}
        self.last = self._last_uses() | dict.fromkeys(kept, len(self.numbers))
        self.buffers: dict[int, ScratchArray | int] = {}
        self.copies: list[tuple[int, int]] = []
        self.temporaries: dict[int, tuple[ScratchArray, ...]] = {}
        self._assign_results()
        self._chain_in_place()
        self.scratch_sizes = _ScratchAllocator(self).sizes

    def read(self, number: int) -> tuple[int, ...]:
        """Return the values that an instruction reads."""
        if number in self.strategies:
            return self.strategies[number].factors
        return tuple(self.values.sources[arg] for arg in self.kernel.instruction(number).args)

    def dtype(self, number: int) -> DType:
        """Return the dtype of a value in the body."""
        op = self.kernel.instruction(number).op
        return accumulator_dtype(op) if number in self.partial else op.dtype

    def _fold_products(self, numbers: list[int]) -> list[int]:
        """Choose strategies, and drop products of factors that BLAS sums without storing them."""
        sources = [self.values.sources[self.kernel.outputs[index]] for index in self.results]
        uses: dict[int, int] = dict.fromkeys(sources, 2)
        for number in numbers:
            for arg in set(self.kernel.instruction(number).args):
                source = self.values.sources[arg]
                uses[source] = uses.get(source, 0) + 1
        needless = set()
        for number in numbers:
            instruction = self.kernel.instruction(number)
            if not instruction.is_reduction:
                continue
            (source,) = (self.values.sources[arg] for arg in instruction.args)
            factors = products(self.values, self.tiling, number)
            if source not in numbers or uses[source] != 1:
                factors = ()
            if factors:
                needless.add(source)
            self.strategies[number] = choose_strategy(self.values, self.tiling, number, factors)
        return [number for number in numbers if number not in needless]

    def _last_uses(self) -> dict[int, int]:
        last: dict[int, int] = {}
        for position, number in enumerate(self.numbers):
            last.update(dict.fromkeys(self.read(number), position))
        return last

    def _assign_results(self) -> None:
        """Compute results in place where possible; else they are copied in the end."""
        assigned: set[int] = set()
        sources = {index: self.values.sources[self.kernel.outputs[index]] for index in self.results}
        known = [source for source in sources.values() if source not in self.position]
        self.last.update(dict.fromkeys(known, len(self.numbers)))
        for index, source in sources.items():
            full = self.values.results[index].shape
            own = tuple(
                length if axis in self.values.varying[source] else 1
                for axis, length in enumerate(self.values.lengths)
            )
            in_place = (
                source in self.position
                and source not in assigned
                and source not in self.partial
                and own == full
                and self._may_write(index, source)
            )
            if in_place:
                assigned.add(source)
                self.buffers[source] = index
            else:
                self.copies.append((index, source))
                self.last[source] = len(self.numbers)

    def _may_write(self, index: int, number: int) -> bool:
        """Whether a value can be written to a result's memory: no operand there is read later."""
        position = self.position[number]
        for under in self.values.shared[index]:
            last = self.last.get(under, -1)
            if last > position:
                return False
            reads = [i for i, arg in enumerate(self.read(number)) if arg == under]
            if last == position and not all(self.overwrites(number, i) for i in reads):
                return False
        return True

    def overwrites(self, number: int, index: int) -> bool:
        """Whether an instruction may overwrite one of its operands."""
        op = self.kernel.instruction(number).op
        return (
            number not in self.strategies
            and not isinstance(op, PowerOp)  # small powers need their base to the end
            and op.may_overwrite(index)
        )

    def _chain_in_place(self) -> None:
        """Compute chains of values in the memory of the result that they lead to."""
        for number in reversed(self.numbers):
            home = self.buffers.get(number)
            if not isinstance(home, int):
                continue
            arg = self._reusable_operand(number)
            if arg is not None and self._may_write(home, arg):
                self.buffers[arg] = home

    def _reusable_operand(self, number: int) -> int | None:
        """Return an operand that a value may overwrite, if there is one."""
        args = self.read(number)
        for arg in args:
            same = (
                arg in self.position
                and arg not in self.buffers
                and self.last[arg] == self.position[number]
                and self.values.varying[arg] == self.values.varying[number]
                and self.dtype(arg) == self.dtype(number)
            )
            indices = [i for i, other in enumerate(args) if other == arg]
            if same and all(self.overwrites(number, i) for i in indices):
                return arg
        return None

    def nbytes(self, array: ScratchArray) -> int:
        """Return the bytes of a scratch array for a whole tile."""
        return prod(self.tiling.shape(array.varying)) * array.dtype.itemsize

    def write(self, emit: Emitter, memory: Buffers) -> None:
        """Write the code of the body."""
        for number in self.numbers:
            self._write_one(emit, memory, number)
        for index, source in self.copies:
            emit.at(self.kernel.instruction(self.kernel.outputs[index]).op)
            target, layout = memory.result(index), self.home(memory, source)
            emit.line(f"{emit.name(target)}[...] = {emit.name(layout)}", How.ITEM)

    def home(self, memory: Buffers, number: int) -> TensorDescription:
        """Return the layout of a value."""
        home = self.buffers.get(number)
        if home is None:
            return memory.value(number)
        return memory.result(home) if isinstance(home, int) else memory.scratch(home)

    def _write_one(self, emit: Emitter, memory: Buffers, number: int) -> None:
        instruction = self.kernel.instruction(number)
        op = instruction.op
        emit.at(op)
        args = [self.home(memory, arg) for arg in self.read(number)]
        out = self.home(memory, number)
        if type(op) in REDUCTIONS:
            temporaries = [memory.scratch(array) for array in self.temporaries.get(number, ())]
            write_reduction(emit, op, self.strategies[number], args, out, temporaries)
            return
        constants = [self._constant(arg) for arg in self.read(number)]
        emit.emit_step(Step(op, (out,), tuple(args)), rules[type(op)], constants)

    def _constant(self, number: int) -> object:
        operands = self.kernel.operands
        return operands[number].constant if number < len(operands) else None


class _ScratchAllocator:
    """Allocates scratch memory of values and temporaries, reusing it when it is free."""

    def __init__(self, body: LoopBody) -> None:
        self.body = body
        self.sizes: list[int] = []
        self.free: list[int] = []
        for position, number in enumerate(body.numbers):
            self._place(position, number)

    def _place(self, position: int, number: int) -> None:
        body = self.body
        how = body.strategies.get(number)
        meanwhile = [self._new(*each) for each in (how.temporaries if how else ())]
        if meanwhile:
            body.temporaries[number] = tuple(meanwhile)
        over = None
        if number not in body.buffers:
            over = self._over(number)
            body.buffers[number] = over or self._new(
                body.values.varying[number], body.dtype(number)
            )
        self.free.extend(array.number for array in meanwhile)
        for arg in dict.fromkeys(body.read(number)):
            home = body.buffers.get(arg)
            if isinstance(home, ScratchArray) and body.last[arg] == position and home is not over:
                self.free.append(home.number)
        if body.last.get(number, -1) < 0:
            home = body.buffers[number]
            if isinstance(home, ScratchArray):
                self.free.append(home.number)

    def _over(self, number: int) -> ScratchArray | None:
        """Return the scratch array of an operand that the value may overwrite."""
        body = self.body
        for arg in body.read(number):
            home = body.buffers.get(arg)
            if not isinstance(home, ScratchArray) or body.last[arg] != body.position[number]:
                continue
            same = (home.varying, home.dtype) == (body.values.varying[number], body.dtype(number))
            indices = [i for i, other in enumerate(body.read(number)) if other == arg]
            if same and all(body.overwrites(number, i) for i in indices):
                return home
        return None

    def _new(self, varying: frozenset[int], dtype: DType) -> ScratchArray:
        """Return a scratch array, in free memory if a block is large enough."""
        wanted = self.body.nbytes(ScratchArray(0, varying, dtype))
        fitting = [number for number in self.free if self.sizes[number] >= wanted]
        if fitting:
            number = min(fitting, key=self.sizes.__getitem__)
            self.free.remove(number)
        else:
            number = len(self.sizes)
            self.sizes.append(-(-max(wanted, 1) // LINE) * LINE)
        return ScratchArray(number, varying, dtype)
