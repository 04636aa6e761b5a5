"""Lowers kernels to straight-line code, to one loop over tiles, or to reduction loops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Protocol

from weft.ir.description import TensorDescription
from weft.kernels import Kernel
from weft_numpy.costs import MIN_THREADED, MIN_THREADED_MATMUL, may_need_tiles, nanoseconds
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.buffers import UntiledBuffers
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loop_body import LoopBody
from weft_numpy.kernels.reduction_loops import ReductionLoops
from weft_numpy.kernels.tile_loop import TiledKernel
from weft_numpy.kernels.tiling import (
    CONTRACTED,
    MIN_TILES,
    STREAMED_TILE,
    Tiling,
    elements_per_tile,
    flat_tiling,
    limit_block,
    matmul_tiling,
    row_tiling,
    untiled,
)
from weft_numpy.machine import Machine
from weft_numpy.pairwise_sum import BLAS_ROWS


class LoweredKernel(Protocol):
    """A lowered kernel, ready to be written."""

    values: KernelValues
    workspace: int
    threads: int

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""


class UntiledKernel:
    """A kernel without tiles, written as straight-line code."""

    threads = 1

    def __init__(self, values: KernelValues) -> None:
        self.values = values
        self.body = LoopBody(
            values,
            untiled(values.lengths, values.contracted),
            values.computed,
            range(len(values.results)),
        )
        self.workspace = sum(self.body.scratch_sizes)

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        self.body.write(emit, UntiledBuffers(self.values, self.body, workspace))


def lower(
    kernel: Kernel, args: Sequence[TensorDescription], preserved: Collection[int], machine: Machine
) -> LoweredKernel:
    """Lower a kernel for operands with the planned layouts.

    The operands in `preserved` are never overwritten by a result.
    """
    if kernel.size and may_need_tiles(kernel):
        cut = _lower_tiled(KernelValues(kernel, args, preserved, collapses=True), machine)
        if cut is not None:
            return cut
    return UntiledKernel(KernelValues(kernel, args, preserved))


def _lower_tiled(values: KernelValues, machine: Machine) -> LoweredKernel | None:
    """Return a tiled kernel; None if tiles do not pay off."""
    enough = MIN_THREADED if values.product is None else MIN_THREADED_MATMUL
    threads = machine.threads if nanoseconds(values) >= enough else 1
    elements = _elements(values, machine)
    if threads == 1 and values.largest <= elements:
        return None
    tiling, needs_several_loops = _choose_tiling(values, elements, threads)
    if tiling is None or tiling.count < 2:
        return None
    return (
        ReductionLoops(values, tiling, threads)
        if needs_several_loops
        else TiledKernel(values, tiling, threads)
    )


def _choose_tiling(values: KernelValues, elements: int, threads: int) -> tuple[Tiling | None, bool]:
    """Return the tiling of a kernel, and whether it needs several loops over tiles."""
    lengths, reduced = values.lengths, values.reduced
    if values.product is not None:
        is_possible = reduced <= {len(lengths) - 1}
        if not is_possible:
            return None, False
        scratch = _scratch_of_a_row(values, _one_row_body(values))
        if threads == 1 and not scratch:
            return None, False
        keeps_rows = bool(reduced or values.before_product)
        return matmul_tiling(lengths, values.contracted, threads, keeps_rows, scratch), False
    if not reduced:
        return flat_tiling(lengths, elements, threads), False
    is_single = all(each.stage == 0 for each in values.kernel.body)
    tiling = row_tiling(lengths, reduced, elements, threads, is_single)
    if tiling is not None:
        return tiling, False
    flat = flat_tiling(lengths, elements, MIN_TILES)
    return (limit_block(flat, BLAS_ROWS) if flat.blocked in reduced else flat), True


def _elements(values: KernelValues, machine: Machine) -> int:
    """Return the most elements of a tile."""
    lengths = values.lengths
    body = _one_row_body(values)
    size = prod(lengths)
    stored = [
        layout.dtype.itemsize
        for layout in (*values.operands, *values.results)
        if layout.size == size
    ]
    scratch = _scratch(values, body)
    readers = [n for n in body.numbers if any(values.size(arg) == size for arg in body.read(n))]
    writes = any(layout.size == size for layout in values.results)
    if len(readers) == 1 and not scratch and not writes:
        return STREAMED_TILE
    return elements_per_tile(sum(stored) + sum(scratch.values()), machine)


def _one_row_body(values: KernelValues) -> LoopBody:
    """Return a kernel's body for tiles with one index of the first dimension."""
    lengths = values.lengths
    tiling = Tiling(lengths, (), 0, 1, values.contracted) if lengths else untiled(lengths)
    return LoopBody(values, tiling, values.computed, range(len(values.results)))


def _scratch(values: KernelValues, body: LoopBody) -> dict[int, int]:
    """Return the bytes per element of each scratch array that varies along all dimensions."""
    everywhere = frozenset(range(len(values.lengths)))
    return {
        home.number: home.dtype.itemsize
        for home in body.buffers.values()
        if not isinstance(home, int) and home.varying == everywhere
    }


def _scratch_of_a_row(values: KernelValues, body: LoopBody) -> int:
    """Return the bytes of scratch memory for each row of a matrix product."""
    row = {home: each * values.lengths[-1] for home, each in _scratch(values, body).items()}
    for home in body.buffers.values():
        if not isinstance(home, int) and CONTRACTED in home.varying:
            nbytes = values.contracted * home.dtype.itemsize
            row[home.number] = max(row.get(home.number, 0), nbytes)
    return sum(row.values())
