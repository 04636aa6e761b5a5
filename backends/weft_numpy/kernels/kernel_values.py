"""The values of a kernel as arrays with one axis for each dimension of its iteration domain."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.kernels import VIEWS, IndexingMap, Kernel, Operand
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.movement import BroadcastOp

CONTRACTED = -1
"""The contracted dimension of a matrix product, which is not in the iteration domain.

Values of a prologue vary along it, and have an axis for it instead of the last one.
"""


class KernelValues:
    """The values of a kernel; along dimensions where one is invariant, its array has length 1.

    For each value `sources` has the one that holds its elements, itself unless it is a view, and
    `varying` the dimensions along which it varies; for each result `shared` has the operands whose
    memory it may reuse. What is broadcast and then reduced is copied, unless it is an operand: the
    value itself is a result or a reduction, which have no axis to repeat it along.
    """

    def __init__(
        self, kernel: Kernel, args: Sequence[TensorDescription], preserved: Collection[int] = ()
    ) -> None:
        """Take the operands' layouts; those in `preserved` are never overwritten."""
        self.kernel, self.lengths = kernel, kernel.domain
        self.reduced = frozenset(kernel.reduced)
        product = kernel.product
        self.contracted = 0 if product is None else product.op.args[0].axes.shape[-1]
        factors = () if product is None else product.args
        read = {arg for each in kernel.prologue for arg in each.args}
        before = {number for number in read if kernel.values[number].places}
        self._matrices = {number for number in before.union(factors) if number < len(args)}
        self._repeated: dict[int, frozenset[int]] = {}
        outs = [contiguous(axes.shape, dtype) for axes, dtype in kernel.result_types]
        self.set_layouts(args, outs)
        self.sources: list[int] = list(range(len(args)))
        reduced = {each.args[0] for each in kernel.body if each.is_reduction}
        for number, each in enumerate(kernel.body, len(args)):
            source = self.sources[each.args[0]] if isinstance(each.op, VIEWS) else number
            is_copied = number in reduced and isinstance(each.op, BroadcastOp)
            self.sources.append(number if is_copied and source >= len(args) else source)
        self.varying = list(map(varying, self.operands))
        last = len(self.lengths) - 1
        for number in before.intersection(self._matrices):
            if last in self.varying[number]:
                self.varying[number] ^= {last, CONTRACTED}
        for number, dimension in zip(factors, (last, last - 1), strict=False):
            if number < len(args):
                self.varying[number] -= {dimension}
        self._add_values()
        self.set_layouts(args, outs)
        self.shared = [
            {n for n in range(len(args)) if n not in preserved and kernel.may_overwrite(index, n)}
            for index in range(len(outs))
        ]

    def set_layouts(
        self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
    ) -> None:
        """Set the addresses of operands and results; their strides are known from the start."""
        kernel = self.kernel
        places = [each.places for each in kernel.operands]
        self.operands = list(map(self._array, args, places, range(len(args))))
        places = [kernel.instruction(number).places for number in kernel.outputs]
        self.results = list(map(self._array, outs, places))

    def _array(
        self, layout: TensorDescription, places: IndexingMap, number: int = -1
    ) -> TensorDescription:
        """Return a layout with an axis per dimension.

        The matrices of a product, and of its prologue, keep their rows and columns.
        """
        shape, strides = [1] * len(self.lengths), [0] * len(self.lengths)
        for place, length, step in zip(places, layout.shape, layout.strides, strict=True):
            # An operand that is broadcast in memory is one without that dimension.
            if place is not None and (step or not length):
                shape[place], strides[place] = length, step
        for place in self._repeated.get(number, ()):
            shape[place] = self.lengths[place]
        if number in self._matrices:
            shape[-2:], strides[-2:] = layout.shape[-2:], layout.strides[-2:]
        return TensorDescription(
            tuple(shape), layout.dtype, tuple(strides), layout.offset, layout.base
        )

    def _add_values(self) -> None:
        """Find where values vary: what is reduced does along all reduced dimensions.

        So tiles count each of its elements as often as a reduction does.
        """
        first, body = len(self.operands), self.kernel.body
        reduced = frozenset(axis for axis in self.reduced if self.lengths[axis] != 1)
        counted = {self.sources[each.args[0]] for each in body if each.is_reduction}
        for number in counted.intersection(range(first)):
            self._repeated[number] = reduced - self.varying[number]
            self.varying[number] |= reduced
        for number, each in enumerate(body, first):
            found = frozenset().union(*(self.varying[self.sources[arg]] for arg in each.args))
            if each.is_reduction:
                found -= self.reduced
            elif isinstance(each.op, MatmulOp):
                matrix = range(len(self.lengths) - 2, len(self.lengths))
                found = found - {CONTRACTED} | {axis for axis in matrix if self.lengths[axis] != 1}
            self.varying.append(found | reduced if number in counted else found)

    @property
    def computed(self) -> list[int]:
        """The values that need code: all but operands and views."""
        first = len(self.kernel.operands)
        return [number for number, source in enumerate(self.sources) if first <= number == source]

    def dtype(self, number: int) -> DType:
        """Return the dtype of a value."""
        value = self.kernel.values[number]
        return value.dtype if isinstance(value, Operand) else value.op.dtype

    def shape(self, along: Collection[int], lengths: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a value that varies along some dimensions of a domain or a tile."""
        shape = [length if axis in along else 1 for axis, length in enumerate(lengths)]
        return (*shape[:-1], self.contracted) if CONTRACTED in along else tuple(shape)


def varying(array: TensorDescription) -> frozenset[int]:
    """Return the axes of an array with more or less than one element."""
    return frozenset(axis for axis, length in enumerate(array.shape) if length != 1)
