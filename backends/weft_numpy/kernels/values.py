"""The values of a kernel as arrays: the dimensions they have, and along which they vary."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.kernels import VIEWS, IndexingMap, Kernel, Operand
from weft.kernels.collapse import collapse
from weft.ops.linalg import MatmulOp
from weft.ops.reduction import ReductionOp
from weft_numpy.kernels.frames import TERMS

ROW = 1024
"""The most elements that BLAS adds up at once; longer rows are added up in pieces.

That keeps the row of ones that it multiplies them with in the nearest cache, and errors small.
"""


class Dimension(NamedTuple):
    """One dimension that code runs over.

    Attributes
    ----------
    places
        The dimensions of the domain that it stands for, neighbours in memory.
    length
        Its length.
    factor
        How many steps along the last of `places` one step along it is.
    """

    places: tuple[int, ...]
    length: int
    factor: int = 1


class Values:
    """The values of a kernel over dimensions that are joined where the memory allows.

    Every value becomes an array with one axis a dimension, of length 1 where it does not vary.

    Attributes
    ----------
    dimensions
        What the code runs over.
    reduced
        The dimensions that reductions run over.
    operands, results
        The arrays that are read and written, with an axis for each dimension.
    sources
        For each value the one whose elements it shows: itself, unless it is a view.
    varying
        For each value the dimensions along which it varies.
    product, terms
        The matrix product of the last two dimensions, if there is one, and how many terms a sum
        has.
    before_product
        The instructions before the product, and the operands that these read at its rows.
    shared
        For each result the operands that may lie in the same memory.
    """

    def __init__(
        self,
        kernel: Kernel,
        args: Sequence[TensorDescription],
        lasting: Collection[int] = (),
        joined: bool = False,
    ) -> None:
        """Take the operands' places; those in `lasting` are never overwritten."""
        self.kernel = kernel
        outs = [contiguous(axes.shape, dtype) for axes, dtype in kernel.result_types]
        self.dimensions = _dimensions(kernel, self._placed(args, outs), joined)
        self.lengths = tuple(each.length for each in self.dimensions)
        self.product = kernel.product
        self.terms = 0 if self.product is None else self.product.op.args[0].axes.shape[-1]
        self.before_product = _before_product(kernel)
        factors = () if self.product is None else self.product.args
        self._matrices = self.before_product.union(factors) & {*range(len(args))}
        self.reduced = frozenset(
            number
            for number, each in enumerate(self.dimensions)
            if not set(each.places).isdisjoint(kernel.reduced)
        )
        self.place(args, outs)
        self.sources: list[int] = list(range(len(args)))
        self.varying: list[frozenset[int]] = [_varying(array) for array in self.operands]
        if self.product is not None:
            for number, gap in zip(factors, (-1, -2), strict=True):
                if number in self._matrices:
                    self.varying[number] -= {len(self.lengths) + gap}
        for number in self.before_product & self._matrices:
            along = self.varying[number] - {len(self.lengths) - 1}
            self.varying[number] = along | {TERMS}
        for each in kernel.body:
            self._add(each.op, each.args)
        self.shared = [
            {n for n in range(len(args)) if n not in lasting and kernel.may_overwrite(index, n)}
            for index in range(len(outs))
        ]

    def _placed(
        self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]
    ) -> list[tuple[TensorDescription, IndexingMap]]:
        kernel = self.kernel
        made = [kernel.instruction(number).places for number in kernel.outputs]
        places = [*(each.places for each in kernel.operands), *made]
        return list(zip((*args, *outs), places, strict=True))

    def place(self, args: Sequence[TensorDescription], outs: Sequence[TensorDescription]) -> None:
        """Take note where operands and results lie, with strides as they are known already."""
        arrays = [self._array(n, *each) for n, each in enumerate(self._placed(args, outs))]
        self.operands, self.results = arrays[: len(args)], arrays[len(args) :]

    def _add(self, op: Op, args: tuple[int, ...]) -> None:
        number = len(self.sources)
        sources = [self.sources[arg] for arg in args]
        varying = frozenset().union(*(self.varying[arg] for arg in sources))
        if isinstance(op, ReductionOp):
            # Also where the operand repeats: sweeps must not add up one element several times.
            varying = frozenset(range(len(self.lengths))) - self.reduced
        elif isinstance(op, MatmulOp):
            varying = (varying - {TERMS}) | {len(self.lengths) - 2, len(self.lengths) - 1}
        self.sources.append(sources[0] if isinstance(op, VIEWS) else number)
        self.varying.append(varying)

    @property
    def largest(self) -> int:
        """The number of elements of the domain, or of the larger values before a product."""
        return max([prod(self.lengths), *map(self.size, self.before_product)])

    @property
    def computed(self) -> list[int]:
        """The values that need code: operands and views are there."""
        first = len(self.kernel.operands)
        return [number for number, source in enumerate(self.sources) if first <= number == source]

    def dtype(self, number: int) -> DType:
        """Return the dtype of a value."""
        value = self.kernel.values[number]
        return value.dtype if isinstance(value, Operand) else value.op.dtype

    def size(self, number: int) -> int:
        """Return the number of different elements of a value."""
        varying = self.varying[number]
        return prod(self.terms if each == TERMS else self.lengths[each] for each in varying)

    def _array(
        self, number: int, lies: TensorDescription, places: IndexingMap
    ) -> TensorDescription:
        """Return an array seen with an axis for each dimension.

        The matrices of a product keep their rows and columns, and so does what makes the first.
        """
        steps = {
            place: step
            for place, length, step in zip(places, lies.shape, lies.strides, strict=True)
            if place is not None and length != 1 and (step or not length)
        }
        shape, strides = [1] * len(self.lengths), [0] * len(self.lengths)
        for axis, each in enumerate(self.dimensions):
            if each.places[-1] in steps:
                shape[axis], strides[axis] = each.length, steps[each.places[-1]] * each.factor
        if number in self._matrices:
            shape[-2:], strides[-2:] = lies.shape[-2:], lies.strides[-2:]
        return TensorDescription(tuple(shape), lies.dtype, tuple(strides), lies.offset, lies.base)


def _varying(array: TensorDescription) -> frozenset[int]:
    return frozenset(axis for axis, length in enumerate(array.shape) if length != 1)


def _dimensions(
    kernel: Kernel, placed: Sequence[tuple[TensorDescription, IndexingMap]], joined: bool
) -> tuple[Dimension, ...]:
    """Return the dimensions of a kernel; rows and columns of a matrix product stay apart."""
    domain = kernel.domain
    if not joined:
        return tuple(Dimension((place,), length) for place, length in enumerate(domain))
    apart = () if kernel.product is None else (len(domain) - 2, len(domain) - 1)
    outer = domain[: apart[0]] if apart else domain
    strides = []
    for lies, places in placed:
        steps = dict(zip(places, zip(lies.shape, lies.strides, strict=True), strict=True))
        along = [steps.get(place, (1, 0)) for place in range(len(outer))]
        strides.append([0 if length == 1 else step for length, step in along])
    roles = [place in kernel.reduced for place in range(len(outer))]
    groups = [*collapse(outer, roles, strides), *((place,) for place in apart)]
    found = [Dimension(group, prod(domain[place] for place in group)) for group in groups]
    if not found:
        return ()
    last = found.pop()
    is_long_row = last.places[-1] in kernel.reduced and last.length > ROW and not apart
    return (*found, *(_in_rows(last) if is_long_row else (last,)))


def _in_rows(last: Dimension) -> tuple[Dimension, ...]:
    """Return a long dimension as rows of equal length, if its length has a divisor of that size."""
    for length in range(ROW, ROW // 8, -1):
        if last.length % length == 0:
            return (
                Dimension(last.places, last.length // length, length),
                Dimension(last.places, length),
            )
    return (last,)


def _before_product(kernel: Kernel) -> frozenset[int]:
    """Return the values with an element for each row and term of a product, if it has a prologue.

    Operands without axes are numbers and the same everywhere.
    """
    first = len(kernel.operands)
    made = range(first, first + len(kernel.prologue))
    read = {arg for each in kernel.prologue for arg in each.args}
    return frozenset(number for number in read.union(made) if kernel.values[number].places)
