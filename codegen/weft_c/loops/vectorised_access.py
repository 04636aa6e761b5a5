"""Bundles: neighbouring elements that a work item of a parallel device loads or stores at once.

Memory moves fastest in accesses of so many bytes. Each element is computed as it would be by
itself: a bundle is an array that takes the place of memory in a loop over its elements, which
compilers keep in registers. What is only moved is moved as a whole.
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
"""The costly ops of a bundle at most: more take so long that memory does not matter."""


@dataclass(frozen=True)
class VectorAccess:
    """How a kernel that is being written reads and stores bundles along a loop.

    Attributes
    ----------
    writing
        The kernel.
    loop
        The number of the loop.
    count
        The elements of a bundle, as many of each array: those of the widest dtype fill an access.
    element
        The name that the number of an element in its bundle has in `elements`.
    reads
        The numbers of the values that it reads in bundles; others are the same all along the loop.
    results
        The results that it stores in bundles.
    """

    builder: ElementWiseKernel
    loop: int
    count: int
    element: str
    reads: tuple[int, ...]
    results: tuple[int, ...]

    @contextmanager
    def elements(self, indices: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Write a block for each element of the bundles at a place, between loads and stores.

        The index of the loop counts bundles. Gives the indices of the element, which the kernel
        reads and stores in the block as if its bundles were memory.
        """
        builder, code, element = self.builder, self.builder.code, self.element
        for number in self.reads:
            source = self._vector_view(builder.source(number), "const ")
            kind = _vector_type(builder, source.dtype, self.count)
            vector = code.define(f"const {kind}", "bundle", source.at(*indices).element)
            builder.vector_loads[number] = Address(f"{vector}.of", element)
        stores = []
        for result in self.results:
            target, vector = self._vector_view(builder.stored(result)), code.name("bundle")
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
        """Write a block for each number that an element has in its bundle."""
        code, element = self.builder.code, self.element
        code.line(UNROLL)
        with code.block(f"for (i32 {element} = 0; {element} < {self.count}; {element}++)"):
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
    """Return how some values are computed, and results stored, in bundles along the last loop.

    Or along another `loop`. None where the device prefers single elements, where each takes long to
    compute, or where not all that varies along the loop is contiguous, and aligned to whole bundles
    wherever the other loops are.
    """
    nest = builder.nest
    loop = len(nest.shape) - 1 if loop is None else loop
    needed = builder.required_values(targets, uniforms)
    varying = {n: layout for n, layout in builder.loads.items() if layout.strides[loop]}
    reads = {number: varying[number] for number in needed if number in varying}
    stores = {result: nest.results[result] for result in results}
    touched = [*reads.values(), *stores.values()]
    if not touched:
        return None
    count = builder.processor.vector_bytes // max(each.dtype.itemsize for each in touched)
    if not 1 < count <= nest.shape[loop]:
        return None
    if not all(_is_aligned(each, loop, count) for each in touched):
        return None
    made = [builder.kernel.instruction(n) for n in needed if n not in builder.loads]
    if count * sum(isinstance(each.op, COSTLY) for each in made) > MAX_COSTLY_OPS:
        return None
    element = builder.code.name("element")
    return VectorAccess(builder, loop, count, element, tuple(reads), tuple(stores))


def vectorised_move(
    builder: KernelBuilder, shape: tuple[int, ...], source: Array, target: Array
) -> tuple[tuple[int, ...], Array, Array]:
    """Return a shape and arrays in bundles along its last dimension, for a kernel that only moves.

    Both arrays are of one dtype without a sign, and may have more dimensions after those of the
    shape. They are what they were where the device prefers single elements, or where bundles are
    not aligned or leave elements over.
    """
    loop, count = len(shape) - 1, builder.processor.vector_bytes // source.dtype.itemsize
    if not shape or count < 2 or shape[loop] % count:
        return shape, source, target
    if not all(_is_aligned(each.layout, loop, count) for each in (source, target)):
        return shape, source, target
    found = (*shape[:loop], shape[loop] // count)
    read = _vector_view(builder, source, loop, count, "const ")
    return found, read, _vector_view(builder, target, loop, count)


def _vector_view(
    builder: KernelBuilder, array: Array, loop: int, count: int, const: str = ""
) -> Array:
    """Return an array of elements as one of bundles.

    Compilers know that these are aligned; of a pointer that is cast they may lose track.
    """
    found = copy(array)
    found.name = f"((GLOBAL {const}{_vector_type(builder, array.dtype, count)} *){array.name})"
    found.start = array.start // count
    steps = [each // count for each in array.strides]
    found.strides = (*steps[:loop], 1, *steps[loop + 1 :])
    return found


def _vector_type(builder: KernelBuilder, dtype: DType, count: int) -> str:
    """Return the type of bundles of a dtype, which is declared once."""
    element = ctype(dtype)
    aligned = builder.processor.dialect.aligned.format(bytes=count * dtype.itemsize)
    name = f"{element}_by_{count}"
    builder.code.declare(f"typedef struct {aligned} {{ {element} of[{count}]; }} {name};")
    return name


def _is_aligned(layout: TensorDescription, loop: int, count: int) -> bool:
    """Whether bundles along a loop lie together and aligned, in a buffer that is aligned."""
    others = (*layout.strides[:loop], *layout.strides[loop + 1 :])
    nbytes, step = count * layout.dtype.itemsize, layout.strides[loop]
    return step == layout.dtype.itemsize and all(n % nbytes == 0 for n in (layout.offset, *others))
