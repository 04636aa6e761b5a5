"""The values of a kernel as arrays over a collapsed iteration domain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.kernels import VIEWS, IndexingMap, Kernel, Operand
from weft.kernels.collapse import collapse
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft_numpy.kernels.tiling import CONTRACTED

BLAS_ROW = 1024
"""The longest row, in elements, that BLAS sums at once; longer rows are split.
"""


class Dimension(NamedTuple):
    """One dimension of the collapsed domain.

    Attributes
    ----------
    axes
        The dimensions of the kernel's domain that it collapses, contiguous with each other.
    length
        Its length.
    stride
        How many steps along the last of `axes` one step along it is.
    """

    axes: tuple[int, ...]
    length: int
    stride: int = 1


class KernelValues:
    """The values of a kernel over dimensions that are collapsed where strides allow.

    Each value is an array with one axis per dimension, of length 1 where it is invariant.

    Attributes
    ----------
    dimensions
        The collapsed iteration domain.
    reduced
        The dimensions that reductions run over.
    operands, results
        The layouts of the arrays that are read and written, with an axis per dimension.
    sources
        For each value the value that holds its elements: itself, unless it is a view.
    varying
        For each value the dimensions along which it varies; along the others it is invariant.
    product, contracted
        The matrix product over the last two dimensions, if any, and its contracted length.
    before_product
        The prologue of the product: its instructions, and the operands they read by row.
    shared
        For each result the operands whose memory it may reuse.
    """

    def __init__(
        self,
        kernel: Kernel,
        args: Sequence[TensorDescription],
        preserved: Collection[int] = (),
        collapses: bool = False,
    ) -> None:
        """Take the operands' layouts; those in `preserved` are never overwritten."""
        self.kernel = kernel
        outs = [contiguous(axes.shape, dtype) for axes, dtype in kernel.result_types]
        self.dimensions = _dimensions(kernel, self._mapped(args, outs), collapses)
        self.lengths = tuple(each.length for each in self.dimensions)
        self.product = kernel.product
        self.contracted = 0 if self.product is None else self.product.op.args[0].axes.shape[-1]
        self.before_product = _before_product(kernel)
        factors = () if self.product is None else self.product.args
        self._matrices = self.before_product.union(factors) & {*range(len(args))}
        self.reduced = frozenset(
            number
            for number, each in enumerate(self.dimensions)
            if not set(each.axes).isdisjoint(kernel.reduced)
        )
        self.set_layouts(args, outs)
        self.sources: list[int] = list(range(len(args)))
        self.varying: list[frozenset[int]] = [_varying(array) for array in self.operands]
        if self.product is not None:
            for number, gap in zip(factors, (-1, -2), strict=True):
                if number in self._matrices:
                    self.varying[number] -= {len(self.lengths) + gap}
        for number in self.before_product & self._matrices:
            along = self.varying[number] - {len(self.lengths) - 1}
            self.varying[number] = along | {CONTRACTED}
        for each in kernel.body:
            self._add(each.op, each.args)
        self.shared = [
            {n for n in range(len(args)) if n not in preserved and kernel.may_overwrite(index, n)}
            for index in range(len(outs))
        ]

    def _mapped(
        self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
    ) -> list[tuple[TensorDescription, IndexingMap]]:
        """Return the layout and the indexing map of each operand and result."""
        kernel = self.kernel
        computed = [kernel.instruction(number).places for number in kernel.outputs]
        places = [*(each.places for each in kernel.operands), *computed]
        return list(zip((*args, *outs), places, strict=True))

    def set_layouts(
        self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
    ) -> None:
        """Set the addresses of operands and results; their strides are known from the start."""
        arrays = [self._array(n, *each) for n, each in enumerate(self._mapped(args, outs))]
        self.operands, self.results = arrays[: len(args)], arrays[len(args) :]

    def _add(self, op: Op, args: tuple[int, ...]) -> None:
        number = len(self.sources)
        sources = [self.sources[arg] for arg in args]
        varying = frozenset().union(*(self.varying[arg] for arg in sources))
        if isinstance(op, ReductionOp):
            # Also where the operand is broadcast: tiles must not count one element several times.
            varying = frozenset(range(len(self.lengths))) - self.reduced
        elif isinstance(op, MatmulOp):
            varying = (varying - {CONTRACTED}) | {len(self.lengths) - 2, len(self.lengths) - 1}
        self.sources.append(sources[0] if isinstance(op, VIEWS) else number)
        self.varying.append(varying)

    @property
    def largest(self) -> int:
        """The elements of the domain, or of a prologue's value if that is larger."""
        return max([prod(self.lengths), *map(self.size, self.before_product)])

    @property
    def computed(self) -> list[int]:
        """The values that need code: all but operands and views."""
        first = len(self.kernel.operands)
        return [number for number, source in enumerate(self.sources) if first <= number == source]

    def dtype(self, number: int) -> DType:
        """Return the dtype of a value."""
        value = self.kernel.values[number]
        return value.dtype if isinstance(value, Operand) else value.op.dtype

    def size(self, number: int) -> int:
        """Return the number of distinct elements of a value."""
        varying = self.varying[number]
        return prod(self.contracted if n == CONTRACTED else self.lengths[n] for n in varying)

    def _array(
        self, number: int, layout: TensorDescription, places: IndexingMap
    ) -> TensorDescription:
        """Return a layout with an axis per dimension.

        The matrices of a product, and of its prologue, keep their rows and columns.
        """
        steps = {
            place: step
            for place, length, step in zip(places, layout.shape, layout.strides, strict=True)
            if place is not None and length != 1 and (step or not length)
        }
        shape, strides = [1] * len(self.lengths), [0] * len(self.lengths)
        for axis, each in enumerate(self.dimensions):
            if each.axes[-1] in steps:
                shape[axis], strides[axis] = each.length, steps[each.axes[-1]] * each.stride
        if number in self._matrices:
            shape[-2:], strides[-2:] = layout.shape[-2:], layout.strides[-2:]
        return TensorDescription(
            tuple(shape), layout.dtype, tuple(strides), layout.offset, layout.base
        )


def _varying(array: TensorDescription) -> frozenset[int]:
    return frozenset(axis for axis, length in enumerate(array.shape) if length != 1)


def _dimensions(
    kernel: Kernel, mapped: Sequence[tuple[TensorDescription, IndexingMap]], collapses: bool
) -> tuple[Dimension, ...]:
    """Return the dimensions of a kernel; rows and columns of a matrix product stay apart."""
    domain = kernel.domain
    if not collapses:
        return tuple(Dimension((axis,), length) for axis, length in enumerate(domain))
    matrix = () if kernel.product is None else (len(domain) - 2, len(domain) - 1)
    outer = domain[: matrix[0]] if matrix else domain
    strides = []
    for layout, places in mapped:
        steps = dict(zip(places, zip(layout.shape, layout.strides, strict=True), strict=True))
        along = [steps.get(axis, (1, 0)) for axis in range(len(outer))]
        strides.append([0 if length == 1 else step for length, step in along])
    is_reduced = [axis in kernel.reduced for axis in range(len(outer))]
    groups = [*collapse(outer, is_reduced, strides), *((axis,) for axis in matrix)]
    dimensions = [Dimension(group, prod(domain[axis] for axis in group)) for group in groups]
    if not dimensions:
        return ()
    last = dimensions.pop()
    is_long_row = last.axes[-1] in kernel.reduced and last.length > BLAS_ROW and not matrix
    return (*dimensions, *(_split_row(last) if is_long_row else (last,)))


def _split_row(row: Dimension) -> tuple[Dimension, ...]:
    """Return a long dimension split into equal rows for BLAS, if its length has such a divisor."""
    for length in range(BLAS_ROW, BLAS_ROW // 8, -1):
        if row.length % length == 0:
            return (
                Dimension(row.axes, row.length // length, length),
                Dimension(row.axes, length),
            )
    return (row,)


def _before_product(kernel: Kernel) -> frozenset[int]:
    """Return the prologue's values that vary by row and contracted index; no scalars."""
    first = len(kernel.operands)
    computed = range(first, first + len(kernel.prologue))
    read = {arg for each in kernel.prologue for arg in each.args}
    return frozenset(number for number in read.union(computed) if kernel.values[number].places)
