"""Epilogues: what becomes of the sums of a product, once they are complete.

Sums go to memory as they are, or the results of a kernel are computed from each while it is in a
register. Kernels that make products begin as an epilogue says, and hand each sum to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from weft.ir.description import TensorDescription
from weft.kernels.kernel import title_of
from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.loop_nest import LoopNest, View
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.source.values import Emitter


class Epilogue(ABC):
    """What becomes of the sums of a product, whose dimensions are a batch, rows and columns.

    Attributes
    ----------
    acc
        What sums are kept in.
    """

    acc: Accumulator

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The lengths of the product's dimensions."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[TensorDescription, ...]:
        """What is read and written along these dimensions."""

    @property
    @abstractmethod
    def target(self) -> TensorDescription | None:
        """Where sums go as they are; None if results are computed from them."""

    @abstractmethod
    def begin(self, lowering: Lowering, title: str) -> KernelBuilder:
        """Begin a kernel that makes sums."""

    @abstractmethod
    def write(
        self, builder: KernelBuilder, emitter: Emitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Write what becomes of a sum, or of a vector of them along the last dimension."""

    @abstractmethod
    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether it takes vectors of sums."""

    @abstractmethod
    def viewed(self, view: View) -> Epilogue | None:
        """Return the same with every tensor seen in another way, if that can be."""


@dataclass(frozen=True)
class StoreEpilogue(Epilogue):
    """Sums go to a tensor as they are."""

    out: TensorDescription
    acc: Accumulator

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the tensor."""
        return self.out.shape

    @property
    def tensors(self) -> tuple[TensorDescription, ...]:
        """The tensor."""
        return (self.out,)

    @property
    def target(self) -> TensorDescription:
        """The tensor."""
        return self.out

    def begin(self, lowering: Lowering, title: str) -> KernelBuilder:
        """Begin a kernel."""
        return lowering.kernel(title)

    def write(
        self, builder: KernelBuilder, emitter: Emitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Store it."""
        place = builder.array("out", self.out, written=True).at(*indices)
        builder.code.line(
            self.acc.store_vector(builder.code, emitter.lanes, place, total, self.out.dtype)
        )

    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether neighbours lie together and need no conversion."""
        return self.acc.is_plain and self.out.strides[-1] == self.out.dtype.itemsize

    def viewed(self, view: View) -> StoreEpilogue | None:
        """Return the same with the tensor seen in another way."""
        out = view(self.out)
        return None if out is None else StoreEpilogue(out, self.acc)


@dataclass(frozen=True)
class FusedEpilogue(Epilogue):
    """The results of a kernel are computed from its product.

    Attributes
    ----------
    frame
        The kernel, with a loop for each dimension of its domain.
    """

    nest: LoopNest
    acc: Accumulator

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the loops."""
        return self.nest.shape

    @property
    def tensors(self) -> tuple[TensorDescription, ...]:
        """What the kernel reads and writes."""
        return self.nest.tensors

    @property
    def target(self) -> TensorDescription | None:
        """Nowhere: a result may be the product itself, but as a value of its dtype."""
        return None

    @property
    def _product(self) -> int:
        kernel = self.nest.kernel
        return len(kernel.operands) + len(kernel.prologue)

    def begin(self, lowering: Lowering, title: str) -> ElementWiseKernel:
        """Begin a kernel of elementwise ops."""
        rest = title_of(self.nest.kernel.epilogue)
        return ElementWiseKernel(lowering, self.nest, f"{title}_{rest}" if rest else title)

    def write(
        self, builder: KernelBuilder, emitter: Emitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Compute everything from the sum as a number of the product's dtype, then store it."""
        assert isinstance(builder, ElementWiseKernel), "the kernel began as `begin` said"
        kernel = self.nest.kernel
        kind = f"const {emitter.type(self.acc.dtype)}"
        product = builder.code.define(kind, "product", self.acc.value(emitter, total))
        names = builder.compute(kernel.outputs, emitter, indices, {}, {self._product: product})
        for result, number in enumerate(kernel.outputs):
            builder.store(result, names[number], emitter, indices)

    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether all that is read, computed and written can be in vectors."""
        assert isinstance(builder, ElementWiseKernel), "the kernel began as `begin` said"
        last = len(self.shape) - 1
        results = range(len(self.nest.results))
        lanes = builder.lanes_along(last, self.nest.kernel.outputs, [self._product])
        return self.acc.is_plain and lanes > 1 and are_contiguous(self.nest, results, last)

    def viewed(self, view: View) -> FusedEpilogue | None:
        """Return the same with all that is read and written seen in another way."""
        found = self.nest.viewed(view)
        return None if found is None else FusedEpilogue(found, self.acc)
