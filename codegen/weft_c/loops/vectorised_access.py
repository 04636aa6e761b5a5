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
from weft_c.lowering import Array, Writing
from weft_c.source.code import UNROLL, Address
from weft_c.source.functions import ctype

MOST_COSTLY = 64
"""The costly ops of a bundle at most: more take so long that memory does not matter."""


@dataclass(frozen=True)
class Bundling:
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

    writing: ElementWiseKernel
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
        writing, code, element = self.writing, self.writing.code, self.element
        for number in self.reads:
            source = self._bundles(writing.source(number), "const ")
            kind = _type(writing, source.dtype, self.count)
            bundle = code.define(f"const {kind}", "bundle", source.at(*indices).element)
            writing.bundled_values[number] = Address(f"{bundle}.of", element)
        stores = []
        for result in self.results:
            target, bundle = self._bundles(writing.stored(result)), code.name("bundle")
            code.line(f"{_type(writing, target.dtype, self.count)} {bundle};")
            stores.append(f"{target.at(*indices).element} = {bundle};")
            writing.bundled_results[result] = Address(f"{bundle}.of", element)
        with self.numbers():
            at = f"{indices[self.loop]} * {self.count} + {element}"
            yield (*indices[: self.loop], at, *indices[self.loop + 1 :])
        for line in stores:
            code.line(line)
        writing.bundled_values.clear()
        writing.bundled_results.clear()

    @contextmanager
    def numbers(self) -> Iterator[None]:
        """Write a block for each number that an element has in its bundle."""
        code, element = self.writing.code, self.element
        code.line(UNROLL)
        with code.block(f"for (i32 {element} = 0; {element} < {self.count}; {element}++)"):
            yield

    def _bundles(self, array: Array, const: str = "") -> Array:
        return _bundles(self.writing, array, self.loop, self.count, const)


def bundling_of(
    writing: ElementWiseKernel,
    targets: Iterable[int],
    results: Iterable[int],
    known: Iterable[int] = (),
    loop: int | None = None,
) -> Bundling | None:
    """Return how some values are computed, and results stored, in bundles along the last loop.

    Or along another `loop`. None where the device prefers single elements, where each takes long to
    compute, or where not all that varies along the loop is contiguous, and aligned to whole bundles
    wherever the other loops are.
    """
    frame = writing.frame
    loop = len(frame.shape) - 1 if loop is None else loop
    needed = writing.closure(targets, known)
    varying = {n: lies for n, lies in writing.loads.items() if lies.strides[loop]}
    reads = {number: varying[number] for number in needed if number in varying}
    stores = {result: frame.results[result] for result in results}
    touched = [*reads.values(), *stores.values()]
    if not touched:
        return None
    count = writing.processor.bundle_bytes // max(each.dtype.itemsize for each in touched)
    if not 1 < count <= frame.shape[loop]:
        return None
    if not all(_in_bundles(each, loop, count) for each in touched):
        return None
    made = [writing.kernel.instruction(n) for n in needed if n not in writing.loads]
    if count * sum(isinstance(each.op, COSTLY) for each in made) > MOST_COSTLY:
        return None
    element = writing.code.name("element")
    return Bundling(writing, loop, count, element, tuple(reads), tuple(stores))


def moved_in_bundles(
    writing: Writing, shape: tuple[int, ...], source: Array, target: Array
) -> tuple[tuple[int, ...], Array, Array]:
    """Return a shape and arrays in bundles along its last dimension, for a kernel that only moves.

    Both arrays are of one dtype without a sign, and may have more dimensions after those of the
    shape. They are what they were where the device prefers single elements, or where bundles are
    not aligned or leave elements over.
    """
    loop, count = len(shape) - 1, writing.processor.bundle_bytes // source.dtype.itemsize
    if not shape or count < 2 or shape[loop] % count:
        return shape, source, target
    if not all(_in_bundles(each.lies, loop, count) for each in (source, target)):
        return shape, source, target
    found = (*shape[:loop], shape[loop] // count)
    read = _bundles(writing, source, loop, count, "const ")
    return found, read, _bundles(writing, target, loop, count)


def _bundles(writing: Writing, array: Array, loop: int, count: int, const: str = "") -> Array:
    """Return an array of elements as one of bundles.

    Compilers know that these are aligned; of a pointer that is cast they may lose track.
    """
    found = copy(array)
    found.name = f"((GLOBAL {const}{_type(writing, array.dtype, count)} *){array.name})"
    found.start = array.start // count
    steps = [each // count for each in array.strides]
    found.strides = (*steps[:loop], 1, *steps[loop + 1 :])
    return found


def _type(writing: Writing, dtype: DType, count: int) -> str:
    """Return the type of bundles of a dtype, which is declared once."""
    element = ctype(dtype)
    aligned = writing.processor.dialect.aligned.format(bytes=count * dtype.itemsize)
    name = f"{element}_by_{count}"
    writing.code.declare(f"typedef struct {aligned} {{ {element} of[{count}]; }} {name};")
    return name


def _in_bundles(lies: TensorDescription, loop: int, count: int) -> bool:
    """Whether bundles along a loop lie together and aligned, in a buffer that is aligned."""
    others = (*lies.strides[:loop], *lies.strides[loop + 1 :])
    nbytes, step = count * lies.dtype.itemsize, lies.strides[loop]
    return step == lies.dtype.itemsize and all(n % nbytes == 0 for n in (lies.offset, *others))
