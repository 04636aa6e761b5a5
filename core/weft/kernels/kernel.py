"""Kernels: instructions over an iteration domain, independent of any device."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from weft.ir.axes import Axes
from weft.ir.dtypes import DType, name_of
from weft.ir.op import Op
from weft.kernels.indexing_maps import VIEWS, IndexingMap
from weft.ops.products.linalg import ContractionOp
from weft.ops.reductions.reduction import ReductionOp
from weft.support.locks import cached_property
from weft.support.source import Location


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a kernel, in memory.

    Attributes
    ----------
    axes, dtype
        Its type.
    places
        Its indexing map; see `weft.kernels.indexing_maps`.
    constant
        The array of a scalar constant, which code may contain as a literal; else None.
    """

    axes: Axes
    dtype: DType
    places: IndexingMap
    constant: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return self.axes.shape


@dataclass(frozen=True, slots=True)
class Instruction:
    """One op in a kernel.

    Attributes
    ----------
    op
        The op, with its attributes, axes, dtype and the user's line. Its operands are those of the
        graph before fusion; the kernel's are in `args`.
    args
        The value numbers of its operands.
    places
        The indexing map of its result.
    stage
        The length of the longest chain of reductions before it. Instructions of one stage can share
        a loop nest.
    """

    op: Op
    args: tuple[int, ...]
    places: IndexingMap
    stage: int

    @property
    def axes(self) -> Axes:
        """The axes of the result."""
        return self.op.axes

    @property
    def dtype(self) -> DType:
        """The dtype of the result."""
        dtype: DType = self.op.dtype
        return dtype

    @property
    def is_reduction(self) -> bool:
        """Whether it is a reduction, whose result is complete after the loops of its stage."""
        return isinstance(self.op, ReductionOp)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel: an iteration domain, operands, instructions in order, and results.

    Values are numbered: operands from 0, then instructions. In a kernel without reductions, points
    of the domain are independent. With reductions, which all run over the dimensions in
    `reduced`, values either vary along these or are invariant, one for each point of the kept
    dimensions.

    Attributes
    ----------
    domain
        The lengths of the iteration domain.
    reduced
        The dimensions that its reductions run over; empty without reductions.
    operands, body
        The operands, and the instructions in topological order.
    outputs
        The value numbers of the results.
    count
        How often the body is repeated at each point; 1 with reductions or a contraction.
    carried
        Pairs of an operand and an instruction: the value that the operand has in the next
        repetition. Every point of the domain has an element of the operand.
    """

    domain: tuple[int, ...]
    reduced: tuple[int, ...]
    operands: tuple[Operand, ...]
    body: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    count: int = 1
    carried: tuple[tuple[int, int], ...] = ()

    @cached_property
    def values(self) -> tuple[Operand | Instruction, ...]:
        """Operands and instructions by their number."""
        return (*self.operands, *self.body)

    @property
    def size(self) -> int:
        """The number of points of the domain."""
        return prod(self.domain)

    @cached_property
    def result_types(self) -> tuple[tuple[Axes, DType], ...]:
        """The axes and dtype of each result."""
        made = [self.instruction(number).op for number in self.outputs]
        return tuple((op.axes, op.dtype) for op in made)

    @property
    def locations(self) -> tuple[Location, ...]:
        """The distinct source lines of its ops, in order."""
        return tuple(dict.fromkeys(each.op.location for each in self.body))

    @cached_property
    def _before_product(self) -> int:
        """The number of instructions before the contraction; all if there is none."""
        kinds = (isinstance(each.op, ContractionOp) for each in self.body)
        return next((place for place, is_product in enumerate(kinds) if is_product), len(self.body))

    @property
    def product(self) -> Instruction | None:
        """The contraction, such as a matrix product, whose elements later instructions read."""
        before = self._before_product
        return self.body[before] if before < len(self.body) else None

    @property
    def prologue(self) -> tuple[Instruction, ...]:
        """The instructions before a matrix product, which compute its first operand."""
        return () if self.product is None else self.body[: self._before_product]

    @property
    def epilogue(self) -> tuple[Instruction, ...]:
        """The instructions after the contraction."""
        return self.body[self._before_product + 1 :]

    def instruction(self, number: int) -> Instruction:
        """Return the instruction that computes a value."""
        return self.body[number - len(self.operands)]

    def varies(self, number: int) -> bool:
        """Whether a value varies along the reduced dimensions.

        In a kernel without reductions, every value with axes varies.
        """
        places = self.values[number].places
        if not self.reduced:
            return any(each is not None for each in places)
        return any(each in self.reduced for each in places)

    @cached_property
    def stages(self) -> int:
        """The number of loop nests for rows that exceed the cache."""
        return 1 + max((each.stage for each in self.body), default=0)

    def reductions_of(self, stage: int) -> list[int]:
        """Return the reductions that the loops of a stage accumulate."""
        return [
            number
            for number, each in enumerate(self.body, len(self.operands))
            if each.is_reduction and each.stage == stage
        ]

    def results_of(self, stage: int) -> list[int]:
        """Return the results that the loops of a stage store at each point, by their index.

        Results that are invariant along the reduced dimensions are stored after the loops.
        """
        return [
            result
            for result, number in enumerate(self.outputs)
            if self.varies(number) and self.instruction(number).stage == stage
        ]

    def required_values(
        self, targets: Iterable[int], known: Container[int] = (), loaded: Container[int] = ()
    ) -> list[int]:
        """Return the values to load or compute for `targets`, in order.

        Values in `known` need neither. Values in `loaded` are read from memory, as operands are.
        """
        found = set[int]()
        waiting = list(targets)
        while waiting:
            number = waiting.pop()
            if number in found or number in known:
                continue
            found.add(number)
            if number >= len(self.operands) and number not in loaded:
                waiting.extend(self.instruction(number).args)
        return sorted(found)

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for kernels that differ in operands, names and lines only."""
        return (
            self.domain,
            self.reduced,
            tuple(_operand_key(each) for each in self.operands),
            tuple(_instruction_key(each) for each in self.body),
            self.outputs,
            self.count,
            self.carried,
        )

    @property
    def title(self) -> str:
        """The kinds of its ops, shortened to a name for listings and generated code."""
        return title_of(self.body)

    def operand_uses(self, number: int) -> Iterator[Instruction]:
        """Yield the instructions that read a value."""
        return (each for each in self.body if number in each.args)

    def last_stage(self, number: int) -> int:
        """Return the last stage whose loops need a value, directly or to recompute others."""
        if self.stages == 1:
            return 0
        needed = {number}
        last = 0
        for place, each in enumerate(self.body, len(self.operands)):
            if needed.isdisjoint(each.args):
                continue
            last = max(last, each.stage)
            if not each.is_reduction and self.varies(place):
                needed.add(place)
        return last

    def may_overwrite(self, result: int, operand: int) -> bool:
        """Whether a result may overwrite an operand.

        Each point must read the operand at its own index only, and no later stage may read it. An
        invariant result may overwrite an operand with the same indexing map, unless some result
        varies: code may compute invariants again for that.
        """
        if any(operand in each.args for each in self.prologue):
            return False
        made, read = self.instruction(self.outputs[result]), self.operands[operand]
        if (made.axes.shape, made.dtype) != (read.shape, read.dtype) or made.places != read.places:
            return False
        points = {n for n, length in enumerate(self.domain) if length != 1 or n in self.reduced}
        if points <= {*made.places}:
            return self.last_stage(operand) <= made.stage
        once = {*range(len(self.domain))} - {*self.reduced}
        if any(map(self.varies, self.outputs)):
            return False
        return once <= {*made.places} and all(
            each.places == made.places and each.stage <= made.stage
            for each in self.operand_uses(operand)
        )


def stage_of(op: Op, args: Sequence[int], values: Sequence[Operand | Instruction]) -> int:
    """Return the stage of an op on operands of a kernel."""
    stage = 0
    for number in args:
        value = values[number]
        if isinstance(value, Instruction):
            stage = max(stage, value.stage + value.is_reduction)
    return stage


def title_of(instructions: Iterable[Instruction]) -> str:
    """Return the kinds of some instructions' ops, views aside, as a short name."""
    kinds = dict.fromkeys(
        type(each.op).__name__.removesuffix("Op").lower() for each in instructions
    )
    views = {"broadcast", "reshape"}
    return "_".join([kind for kind in kinds if kind not in views][:6])


def _operand_key(operand: Operand) -> Hashable:
    constant = None if operand.constant is None else operand.constant.tobytes()
    return (operand.shape, name_of(operand.dtype), operand.places, constant)


def _instruction_key(instruction: Instruction) -> Hashable:
    op = instruction.op
    fields = () if isinstance(op, VIEWS) else op.attribute_key
    return (
        type(op),
        fields,
        op.axes.shape,
        name_of(op.dtype),
        instruction.args,
        instruction.places,
    )
