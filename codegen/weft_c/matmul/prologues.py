"""Prologues: the first operand of a product, which lies in memory or is computed as it is read.

Kernels that multiply read it by a `Reader`, element by element or, where rows are packed, vector by
vector.
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
from weft_c.matmul.accumulators import VECTOR, Accumulator
from weft_c.source.values import Emitter


@dataclass(frozen=True)
class Prologue:
    """What computes the first operand of a product, with a loop for each dimension of that.

    Attributes
    ----------
    frame
        A kernel of elementwise ops, whose only result is the operand.
    """

    nest: LoopNest

    @property
    def operand(self) -> TensorDescription:
        """The operand as if it lay in memory, row by row; it is in none."""
        return self.nest.results[0]

    @property
    def title(self) -> str:
        """A short name, which that of the product follows."""
        return f"{self.nest.kernel.title}_"

    def viewed(self, view: View) -> Prologue | None:
        """Return the same with all that is read and computed seen in another way, if it can be."""
        found = self.nest.viewed(view)
        return None if found is None else Prologue(found)


def prologue_of(kernel: Kernel, args: Sequence[TensorDescription]) -> Prologue | None:
    """Return the prologue of a kernel with a product, whose operands lie as described."""
    if not kernel.prologue:
        return None
    first = len(kernel.operands)
    read = sorted({arg for each in kernel.prologue for arg in each.args if arg < first})
    number = {old: new for new, old in enumerate(read)}
    number |= {first + place: len(read) + place for place in range(len(kernel.prologue))}
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


class Reader(ABC):
    """Reads the first operand of a product where a kernel is being written.

    Attributes
    ----------
    is_by_rows
        Whether neighbours along the last dimension lie together, or are computed together.
    lanes
        How many of them it gives at a time at most.
    """

    is_by_rows: bool
    lanes: int

    @abstractmethod
    def load(self, *indices: str, lanes: int = 1) -> str:
        """Write what is needed, and return an element as a number to multiply, or `lanes` of them.

        A vector has the type that sums have in memory.
        """


class MemoryReader(Reader):
    """Reads an array."""

    def __init__(self, acc: Accumulator, array: Array) -> None:
        self.acc = acc
        self.array = array
        self.is_by_rows = array.strides[-1] == 1
        self.lanes = VECTOR if acc.lanes > 1 and acc.is_plain and self.is_by_rows else 1

    def load(self, *indices: str, lanes: int = 1) -> str:
        """Return what is read."""
        if lanes == 1:
            return self.acc.load(self.array, *indices)
        return self.acc.load_vector(
            self.array.code, lanes, self.array.at(*indices), self.array.dtype
        )


class PrologueReader(Reader):
    """Computes elements with a prologue."""

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
        """Write what computes an element or several, and return its name."""
        name = self.kernel.compute([self.number], Emitter(self.kernel.code, lanes), indices, {})[
            self.number
        ]
        return name if lanes > 1 else self.acc.widened(self.acc.dtype, name)


def reader(
    acc: Accumulator, builder: KernelBuilder, x: TensorDescription, prologue: Prologue | None
) -> Reader:
    """Return what reads the first operand of a product."""
    if prologue is None:
        return MemoryReader(acc, builder.array("x", x))
    return PrologueReader(acc, builder, prologue)
