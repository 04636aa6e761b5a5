"""Prologues: the first operand of a matrix product, loaded or computed when it is read.

Kernels read the operand through an `OperandReader`: in scalars or, when rows are packed, in
vectors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.ir import dtypes
from weft.ir.description import TensorDescription, contiguous
from weft.kernels.kernel import Kernel
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import LoopNest, View, make_pointwise_nest
from weft_c.lowering import Array, KernelBuilder
from weft_c.matmul.accumulators import Accumulator
from weft_c.source.values import ValueEmitter


@dataclass(frozen=True)
class Prologue:
    """A fused kernel that computes the first operand of a product.

    Attributes
    ----------
    nest
        The loop nest of a kernel of elementwise ops whose only result is the operand.
    """

    nest: LoopNest

    @property
    def operand(self) -> TensorDescription:
        """A row-major layout of the operand, which is not in memory."""
        return self.nest.results[0]

    @property
    def title(self) -> str:
        """The prefix of the kernel's title."""
        return f"{self.nest.kernel.title}_"

    def viewed(self, view: View) -> Prologue | None:
        """Return the prologue with a view of every tensor; None if one has no such view."""
        nest = self.nest.viewed(view)
        return None if nest is None else Prologue(nest)


def prologue_of(kernel: Kernel, args: Sequence[TensorDescription]) -> Prologue | None:
    """Return the prologue of a kernel with a product, given its operands' layouts, if any."""
    if not kernel.prologue:
        return None
    first = len(kernel.operands)
    read = sorted({arg for each in kernel.prologue for arg in each.args if arg < first})
    number = {old: new for new, old in enumerate(read)}
    number |= {first + index: len(read) + index for index in range(len(kernel.prologue))}
    last = kernel.prologue[-1].axes
    everywhere = tuple(range(len(last)))
    operands = [kernel.operands[old] for old in read]
    alone = Kernel(
        domain=last.shape,
        reduced=(),
        operands=tuple(replace(each, places=everywhere if each.axes else ()) for each in operands),
        body=tuple(
            replace(each, args=tuple(number[arg] for arg in each.args), places=everywhere)
            for each in kernel.prologue
        ),
        outputs=(len(number) - 1,),
    )
    result = contiguous(last.shape, kernel.prologue[-1].dtype)
    return Prologue(make_pointwise_nest(alone, [args[old] for old in read], [result]))


class OperandReader(ABC):
    """Reads the first operand of a product in a kernel.

    Attributes
    ----------
    is_by_rows
        Whether neighbors along the last dimension are contiguous in memory, or computed together.
    lanes
        The most lanes of a vector that it can read.
    """

    is_by_rows: bool
    lanes: int

    @abstractmethod
    def load(self, *indices: str, lanes: int = 1) -> str:
        """Return an element, or a vector of `lanes` elements, in the accumulator's type.

        Writes the statements that this needs.
        """


class MemoryReader(OperandReader):
    """Reads the operand from an array."""

    def __init__(self, acc: Accumulator, array: Array) -> None:
        self.acc = acc
        self.array = array
        self.is_by_rows = array.strides[-1] == 1
        self.lanes = acc.lanes if acc.lanes > 1 and acc.is_plain and self.is_by_rows else 1

    def load(self, *indices: str, lanes: int = 1) -> str:
        """Return an element or a vector of the array."""
        if lanes == 1:
            return self.acc.load(self.array, *indices)
        return self.acc.load_vector(
            self.array.code, lanes, self.array.at(*indices), self.array.dtype
        )


class PrologueReader(OperandReader):
    """Computes the elements of the operand by a prologue."""

    is_by_rows = True

    def __init__(self, acc: Accumulator, builder: KernelBuilder, prologue: Prologue) -> None:
        self.acc = acc
        self.prologue = prologue
        self.kernel = ElementWiseKernel(builder.lowering, prologue.nest, within=builder)
        (self.number,) = prologue.nest.kernel.outputs
        last = len(prologue.nest.shape) - 1
        has_vectors = acc.lanes > 1 and acc.is_plain and dtypes.is_float(acc.dtype)
        self.lanes = self.kernel.lanes_along(last, [self.number]) if has_vectors else 1

    def load(self, *indices: str, lanes: int = 1) -> str:
        """Write the computation of an element or a vector, and return its name."""
        name = self.kernel.compute(
            [self.number], ValueEmitter(self.kernel.code, lanes), indices, {}
        )[self.number]
        return name if lanes > 1 else self.acc.widened(self.acc.dtype, name)


def reader(
    acc: Accumulator, builder: KernelBuilder, x: TensorDescription, prologue: Prologue | None
) -> OperandReader:
    """Return the reader of the first operand of a product."""
    if prologue is None:
        return MemoryReader(acc, builder.array("x", x))
    return PrologueReader(acc, builder, prologue)
