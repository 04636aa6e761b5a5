"""How a kernel runs: at once, in one loop over tiles, or in several sweeps over tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Protocol

from weft.ir.description import TensorDescription
from weft.kernels import Kernel
from weft_numpy.adding import HIGHEST
from weft_numpy.codegen import Emitter
from weft_numpy.kernels import frames
from weft_numpy.kernels.bodies import Body
from weft_numpy.kernels.costs import PRODUCTS_FROM, THREADS_FROM, nanoseconds, worth_a_look
from weft_numpy.kernels.frames import TERMS
from weft_numpy.kernels.loops import Tiled
from weft_numpy.kernels.memory import WholeMemory
from weft_numpy.kernels.sweeps import Swept
from weft_numpy.kernels.values import Values
from weft_numpy.machine import Machine


class Lowered(Protocol):
    """A kernel that is ready to be written."""

    values: Values
    workspace: int
    threads: int

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""


class Whole:
    """A kernel whose only tile is everything, written into the program as it is."""

    threads = 1

    def __init__(self, values: Values) -> None:
        self.values = values
        self.body = Body(
            values,
            frames.whole(values.lengths, values.terms),
            values.computed,
            range(len(values.results)),
        )
        self.workspace = sum(self.body.slots)

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        self.body.write(emit, WholeMemory(self.values, self.body, workspace))


def lower(
    kernel: Kernel, args: Sequence[TensorDescription], lasting: Collection[int], machine: Machine
) -> Lowered:
    """Return how a kernel runs on operands that lie as described.

    The operands in `lasting` are never overwritten by a result.
    """
    if kernel.size and worth_a_look(kernel):
        cut = _cut(Values(kernel, args, lasting, joined=True), machine)
        if cut is not None:
            return cut
    return Whole(Values(kernel, args, lasting))


def _cut(values: Values, machine: Machine) -> Lowered | None:
    """Return a kernel in tiles; None if that is not worth it."""
    enough = THREADS_FROM if values.product is None else PRODUCTS_FROM
    threads = machine.threads if nanoseconds(values) >= enough else 1
    elements = _elements(values, machine)
    if threads == 1 and values.largest <= elements:
        return None
    frame, is_swept = _frame(values, elements, threads)
    if frame is None or frame.count < 2:
        return None
    return Swept(values, frame, threads) if is_swept else Tiled(values, frame, threads)


def _frame(values: Values, elements: int, threads: int) -> tuple[frames.Frame | None, bool]:
    """Return the tiles of a kernel, and whether they are swept over several times."""
    lengths, reduced = values.lengths, values.reduced
    if values.product is not None:
        is_possible = reduced <= {len(lengths) - 1}
        if not is_possible:
            return None, False
        scratch = _scratch_of_a_row(values, _on_one_row(values))
        if threads == 1 and not scratch:
            return None, False
        keeps_rows = bool(reduced or values.before_product)
        return frames.product(lengths, values.terms, threads, keeps_rows, scratch), False
    if not reduced:
        return frames.flat(lengths, elements, threads), False
    is_single = all(each.stage == 0 for each in values.kernel.body)
    found = frames.rows(lengths, reduced, elements, threads, is_single)
    if found is not None:
        return found, False
    flat = frames.flat(lengths, elements, frames.LEAST_PARTS)
    return (frames.lower(flat, HIGHEST) if flat.blocked in reduced else flat), True


def _elements(values: Values, machine: Machine) -> int:
    """Return how many elements a tile may have."""
    lengths = values.lengths
    body = _on_one_row(values)
    size = prod(lengths)
    stored = [
        lies.dtype.itemsize for lies in (*values.operands, *values.results) if lies.size == size
    ]
    scratch = _scratch(values, body)
    readers = [n for n in body.numbers if any(values.size(arg) == size for arg in body.read(n))]
    writes = any(lies.size == size for lies in values.results)
    if len(readers) == 1 and not scratch and not writes:
        return frames.ONCE
    return frames.tile_elements(sum(stored) + sum(scratch.values()), machine)


def _on_one_row(values: Values) -> Body:
    """Return a kernel's body for tiles with one index of the first dimension."""
    lengths = values.lengths
    frame = frames.Frame(lengths, (), 0, 1, values.terms) if lengths else frames.whole(lengths)
    return Body(values, frame, values.computed, range(len(values.results)))


def _scratch(values: Values, body: Body) -> dict[int, int]:
    """Return the bytes for an element of each scratch array that varies along all dimensions."""
    everywhere = frozenset(range(len(values.lengths)))
    return {
        home.number: home.dtype.itemsize
        for home in body.homes.values()
        if not isinstance(home, int) and home.varying == everywhere
    }


def _scratch_of_a_row(values: Values, body: Body) -> int:
    """Return the bytes of scratch memory for each row of a matrix product."""
    row = {home: each * values.lengths[-1] for home, each in _scratch(values, body).items()}
    for home in body.homes.values():
        if not isinstance(home, int) and TERMS in home.varying:
            nbytes = values.terms * home.dtype.itemsize
            row[home.number] = max(row.get(home.number, 0), nbytes)
    return sum(row.values())
