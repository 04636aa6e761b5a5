"""Epilogues: the processing of a matrix product's sums when they are complete.

Sums are stored, or a fused kernel computes its results from each sum in a register. The epilogue
begins the kernel of a product, and receives each of its sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from weft.ir.description import TensorDescription
from weft.kernels.kernel import title_of
from weft.support.backports import override
from weft_c.loops.elementwise import ElementWiseKernel, are_contiguous
from weft_c.loops.loop_nest import LoopNest, View
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.source.values import ValueEmitter


class Epilogue(ABC):
    """Processes the sums of a product with the dimensions (batch..., rows, columns).

    Attributes
    ----------
    acc
        The accumulator of the sums.
    """

    acc: Accumulator

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the product."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[TensorDescription, ...]:
        """The layouts of all tensors that the epilogue accesses."""

    @property
    @abstractmethod
    def target(self) -> TensorDescription | None:
        """The tensor that the sums are stored in; None for a fused epilogue."""

    @abstractmethod
    def begin(self, lowering: Lowering, title: str) -> KernelBuilder:
        """Begin the kernel of the product."""

    @abstractmethod
    def write(
        self, builder: KernelBuilder, emitter: ValueEmitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Write the processing of a sum, or of a vector of sums along the last dimension."""

    @abstractmethod
    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether `write` accepts vectors of sums."""

    @abstractmethod
    def viewed(self, view: View) -> Epilogue | None:
        """Return the epilogue with a view of every tensor; None if one has no such view."""


@dataclass(frozen=True)
class StoreEpilogue(Epilogue):
    """Stores the sums in a tensor."""

    out: TensorDescription
    acc: Accumulator

    @property
    @override
    def shape(self) -> tuple[int, ...]:
        return self.out.shape

    @property
    @override
    def tensors(self) -> tuple[TensorDescription, ...]:
        return (self.out,)

    @property
    @override
    def target(self) -> TensorDescription:
        return self.out

    def begin(self, lowering: Lowering, title: str) -> KernelBuilder:
        """Begin a kernel."""
        return lowering.kernel(title)

    def write(
        self, builder: KernelBuilder, emitter: ValueEmitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Store the sum."""
        address = builder.array("out", self.out, written=True).at(*indices)
        builder.code.line(
            self.acc.store_vector(builder.code, emitter.lanes, address, total, self.out.dtype)
        )

    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether rows are contiguous and need no conversion."""
        return self.acc.is_plain and self.out.strides[-1] == self.out.dtype.itemsize

    def viewed(self, view: View) -> StoreEpilogue | None:
        """Return the epilogue with a view of the tensor; None if it has none."""
        out = view(self.out)
        return None if out is None else StoreEpilogue(out, self.acc)


@dataclass(frozen=True)
class FusedEpilogue(Epilogue):
    """Computes the results of a fused kernel from its product.

    Attributes
    ----------
    nest
        The loop nest of the kernel, with one loop for each dimension of its domain.
    """

    nest: LoopNest
    acc: Accumulator

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the loops."""
        return self.nest.shape

    @property
    def tensors(self) -> tuple[TensorDescription, ...]:
        """The layouts of the kernel's operands and results."""
        return self.nest.tensors

    @property
    def target(self) -> TensorDescription | None:
        """None: even a result that is the product itself is converted to its dtype."""
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
        self, builder: KernelBuilder, emitter: ValueEmitter, indices: tuple[str, ...], total: str
    ) -> None:
        """Compute the results from the sum in the product's dtype, and store them."""
        assert isinstance(builder, ElementWiseKernel), "the kernel was begun by `begin`"
        kernel = self.nest.kernel
        kind = f"const {emitter.type(self.acc.dtype)}"
        product = builder.code.define(kind, "product", self.acc.value(emitter, total))
        names = builder.compute(kernel.outputs, emitter, indices, {}, {self._product: product})
        for result, number in enumerate(kernel.outputs):
            builder.store(result, names[number], emitter, indices)

    def takes_vectors(self, builder: KernelBuilder) -> bool:
        """Whether all loads, ops and stores can be vectors."""
        assert isinstance(builder, ElementWiseKernel), "the kernel was begun by `begin`"
        last = len(self.shape) - 1
        results = range(len(self.nest.results))
        lanes = builder.lanes_along(last, self.nest.kernel.outputs, [self._product])
        return self.acc.is_plain and lanes > 1 and are_contiguous(self.nest, results, last)

    def viewed(self, view: View) -> FusedEpilogue | None:
        """Return the epilogue with a view of every tensor; None if one has no such view."""
        nest = self.nest.viewed(view)
        return None if nest is None else FusedEpilogue(nest, self.acc)
