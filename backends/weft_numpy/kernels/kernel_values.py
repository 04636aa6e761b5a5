"""The values of a kernel as arrays over a collapsed iteration domain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.kernels import VIEWS, IndexingMap, Kernel, Operand
from weft.kernels.collapse import collapse
from weft.ops.linalg import MatmulOp
from weft.ops.reduction import ReductionOp

Mapped = Sequence[tuple[TensorDescription, IndexingMap]]


class KernelValues:
    """The values of a kernel over dimensions that are collapsed where strides allow.

    Each value is an array with one axis per dimension, of length 1 where it is invariant.

    Attributes
    ----------
    groups, lengths
        The dimensions of the kernel's domain that each dimension collapses, and their size.
    reduced
        The dimensions that reductions run over.
    operands, results
        The layouts of the arrays that are read and written, with an axis per dimension. The factors
        of a matrix product have their own rows and columns as the last two axes.
    sources
        For each value the value that holds its elements: itself, unless it is a view.
    varying
        For each value the dimensions along which it varies; along the others it is invariant.
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
        self.groups = _groups(kernel, self._mapped(args, outs), collapses)
        self.lengths = tuple(prod(kernel.domain[axis] for axis in each) for each in self.groups)
        self.reduced = frozenset(
            number
            for number, group in enumerate(self.groups)
            if not set(group).isdisjoint(kernel.reduced)
        )
        self.factors = () if kernel.product is None else kernel.product.args
        self.set_layouts(args, outs)
        self.sources: list[int] = list(range(len(args)))
        self.varying = list(map(varying, self.operands))
        for number, gap in zip(self.factors, (1, 2), strict=False):
            self.varying[number] -= {len(self.lengths) - gap}
        for each in kernel.body:
            self._add(each.op, each.args)
        self.shared = [
            {n for n in range(len(args)) if n not in preserved and kernel.may_overwrite(index, n)}
            for index in range(len(outs))
        ]

    def _mapped(
        self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
    ) -> Mapped:
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

    def _array(
        self, number: int, layout: TensorDescription, places: IndexingMap
    ) -> TensorDescription:
        """Return a layout with an axis per dimension."""
        steps = {
            place: step
            for place, length, step in zip(places, layout.shape, layout.strides, strict=True)
            if place is not None and length != 1 and (step or not length)
        }
        shape, strides = [1] * len(self.lengths), [0] * len(self.lengths)
        for axis, group in enumerate(self.groups):
            if group[-1] in steps:
                shape[axis], strides[axis] = self.lengths[axis], steps[group[-1]]
        if number in self.factors:
            shape[-2:], strides[-2:] = layout.shape[-2:], layout.strides[-2:]
        return TensorDescription(
            tuple(shape), layout.dtype, tuple(strides), layout.offset, layout.base
        )

    def _add(self, op: object, args: tuple[int, ...]) -> None:
        sources = [self.sources[arg] for arg in args]
        found = frozenset().union(*(self.varying[arg] for arg in sources))
        if isinstance(op, ReductionOp):
            # Also where the operand is broadcast: tiles must not count one element several times.
            found = frozenset(range(len(self.lengths))) - self.reduced
        elif isinstance(op, MatmulOp):
            found |= {len(self.lengths) - 2, len(self.lengths) - 1}
        self.sources.append(sources[0] if isinstance(op, VIEWS) else len(self.sources))
        self.varying.append(found)

    @property
    def computed(self) -> list[int]:
        """The values that need code: all but operands and views."""
        first = len(self.kernel.operands)
        return [number for number, source in enumerate(self.sources) if first <= number == source]

    def dtype(self, number: int) -> DType:
        """Return the dtype of a value."""
        value = self.kernel.values[number]
        return value.dtype if isinstance(value, Operand) else value.op.dtype

    def shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of a value, with an axis per dimension."""
        varying = self.varying[number]
        return tuple(n if axis in varying else 1 for axis, n in enumerate(self.lengths))


def varying(array: TensorDescription) -> frozenset[int]:
    """Return the axes of an array with more or less than one element."""
    return frozenset(axis for axis, length in enumerate(array.shape) if length != 1)


def _groups(kernel: Kernel, mapped: Mapped, collapses: bool) -> tuple[tuple[int, ...], ...]:
    """Return groups of dimensions; rows and columns of a matrix product stay apart."""
    domain = kernel.domain
    if not collapses:
        return tuple((axis,) for axis in range(len(domain)))
    outer = domain if kernel.product is None else domain[:-2]
    strides = []
    for layout, places in mapped:
        steps = dict(zip(places, zip(layout.shape, layout.strides, strict=True), strict=True))
        along = [steps.get(axis, (1, 0)) for axis in range(len(outer))]
        strides.append([0 if length == 1 else step for length, step in along])
    is_reduced = [axis in kernel.reduced for axis in range(len(outer))]
    rest = range(len(outer), len(domain))
    return (*collapse(outer, is_reduced, strides), *((axis,) for axis in rest))
