"""Vectorized accesses: neighboring elements that a work item loads or stores at once.

They are for parallel devices, whose memory is fastest in accesses of `Processor.vector_bytes`.
Arithmetic stays scalar: a vector is a struct with an array, which replaces memory in an unrolled
loop over its elements and which compilers keep in registers. Copies move whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft_c.loops.elementwise import COSTLY, ElementWiseKernel
from weft_c.lowering import Array, KernelBuilder
from weft_c.source.code import UNROLL, Address
from weft_c.source.functions import ctype

MAX_COSTLY_OPS = 64
"""The most costly ops in a vector: with more, arithmetic outweighs the memory accesses."""


@dataclass(frozen=True)
class VectorAccess:
    """The vectorized accesses of a kernel along a loop.

    Attributes
    ----------
    builder
        The builder of the kernel.
    loop
        The index of the loop.
    count
        The elements of a vector, the same for all arrays: the widest dtype fills an access.
    element
        The name of the counter of the loop over a vector's elements.
    reads
        The numbers of the values that are loaded in vectors; others are invariant in the loop.
    results
        The results that are stored in vectors.
    """

    builder: ElementWiseKernel
    loop: int
    count: int
    element: str
    reads: tuple[int, ...]
    results: tuple[int, ...]

    @contextmanager
    def elements(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Write vector loads, a block for each element, and vector stores.

        In `indices` the index of the loop counts vectors. Yields the indices of the element; within
        the block, the builder's loads and stores access the vectors.
        """
        builder, code, element = self.builder, self.builder.code, self.element
        for number in self.reads:
            source = self._vector_view(builder.source(number), "const ")
            kind = _vector_type(builder, source.dtype, self.count)
            vector = code.define(f"const {kind}", "vector", source.at(*indices).element)
            builder.vector_loads[number] = Address(f"{vector}.of", element)
        stores = []
        for result in self.results:
            target, vector = self._vector_view(builder.stored(result)), code.name("vector")
            code.line(f"{_vector_type(builder, target.dtype, self.count)} {vector};")
            stores.append(f"{target.at(*indices).element} = {vector};")
            builder.vector_stores[result] = Address(f"{vector}.of", element)
        with self.numbers():
            at = f"{indices[self.loop]} * {self.count} + {element}"
            yield (*indices[: self.loop], at, *indices[self.loop + 1 :])
        for line in stores:
            code.line(line)
        builder.vector_loads.clear()
        builder.vector_stores.clear()

    @contextmanager
    def numbers(self) -> Iterator[None]:
        """Write an unrolled loop over the elements of a vector."""
        code, element = self.builder.code, self.element
        code.line(UNROLL)
        with code.loop("i32", element, 0, self.count):
            yield

    def _vector_view(self, array: Array, const: str = "") -> Array:
        return _vector_view(self.builder, array, self.loop, self.count, const)


def find_vector_access(
    builder: ElementWiseKernel,
    targets: Iterable[int],
    results: Iterable[int],
    uniforms: Iterable[int] = (),
    loop: int | None = None,
) -> VectorAccess | None:
    """Return the vectorized accesses with which `targets` are computed and `results` are stored.

    They are along `loop`, the innermost by default. None on devices with scalar accesses, where the
    arithmetic outweighs them, where a value is loaded piecewise, or where an array that varies
    along the loop is not contiguous and aligned to vectors at all indices of the other loops.
    """
    nest = builder.nest
    loop = len(nest.shape) - 1 if loop is None else loop
    needed = builder.required_values(targets, uniforms)
    if not nest.piecewise.keys().isdisjoint(needed):
        return None
    varying = {n: layout for n, layout in builder.loads.items() if layout.strides[loop]}
    reads = {number: varying[number] for number in needed if number in varying}
    stores = {result: nest.results[result] for result in results}
    touched = [*reads.values(), *stores.values()]
    if not touched:
        return None
    processor = builder.processor
    count = processor.vector_bytes // max(each.dtype.itemsize for each in touched)
    count = min(count, processor.access_elements)
    if not 1 < count <= nest.shape[loop]:
        return None
    if not all(_is_aligned(each, loop, count) for each in touched):
        return None
    instructions = [builder.kernel.instruction(n) for n in needed if n not in builder.loads]
    if count * sum(isinstance(each.op, COSTLY) for each in instructions) > MAX_COSTLY_OPS:
        return None
    element = builder.code.name("element")
    return VectorAccess(builder, loop, count, element, tuple(reads), tuple(stores))


def vectorized_move(
    builder: KernelBuilder, shape: tuple[int, ...], source: Array, target: Array
) -> tuple[tuple[int, ...], Array, Array]:
    """Return a shape and two arrays as arrays of vectors along the last dimension, for copies.

    Both arrays have the same unsigned dtype, and may have more dimensions after those of the shape.
    They are returned unchanged on devices with scalar accesses, and where vectors would be
    unaligned or leave a remainder.
    """
    loop, count = len(shape) - 1, builder.processor.vector_bytes // source.dtype.itemsize
    if not shape or count < 2 or shape[loop] % count:
        return shape, source, target
    if not all(_is_aligned(each.layout, loop, count) for each in (source, target)):
        return shape, source, target
    vector_shape = (*shape[:loop], shape[loop] // count)
    read = _vector_view(builder, source, loop, count, "const ")
    return vector_shape, read, _vector_view(builder, target, loop, count)


def _vector_view(
    builder: KernelBuilder, array: Array, loop: int, count: int, const: str = ""
) -> Array:
    """Return an array of elements as an array of vectors along a loop.

    The struct type tells compilers the alignment, which they may not infer from a cast pointer.
    """
    vector_view = copy(array)
    vector_view.name = (
        f"((GLOBAL {const}{_vector_type(builder, array.dtype, count)} *){array.name})"
    )
    vector_view.start = array.start // count
    steps = [each // count for each in array.strides]
    vector_view.strides = (*steps[:loop], 1, *steps[loop + 1 :])
    return vector_view


def _vector_type(builder: KernelBuilder, dtype: DType, count: int) -> str:
    """Return the struct type of vectors of a dtype, and declare it once."""
    element = ctype(dtype)
    aligned = builder.processor.dialect.aligned.format(bytes=count * dtype.itemsize)
    name = f"{element}_by_{count}"
    builder.code.declare(f"typedef struct {aligned} {{ {element} of[{count}]; }} {name};")
    return name


def _is_aligned(layout: TensorDescription, loop: int, count: int) -> bool:
    """Whether vectors along a loop are contiguous and aligned, given an aligned buffer."""
    others = (*layout.strides[:loop], *layout.strides[loop + 1 :])
    nbytes, step = count * layout.dtype.itemsize, layout.strides[loop]
    return step == layout.dtype.itemsize and all(n % nbytes == 0 for n in (layout.offset, *others))
