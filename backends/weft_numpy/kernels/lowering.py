"""The kernels of programs: which ops can be fused, and how each kernel is lowered.

A kernel is straight-line code if its data fits a cache, or its rows exceed one. Else it is a loop
over tiles.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.op import Op
from weft.ir.storage import ParameterOp
from weft.ir.views import planned_layout
from weft.kernels import VIEWS, FusedOp, Kernel
from weft.ops.convolutions import BilinearConvolutionOp
from weft.ops.elementwise import ElementwiseOp
from weft.ops.linalg import MatmulOp
from weft.ops.math import PowerOp
from weft.ops.reduction import ReductionOp
from weft_numpy.codegen import Emitter
from weft_numpy.kernels.body import Body
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loops import LoweredKernel
from weft_numpy.kernels.tiling import CACHE, MAX_TILE, MIN_TILE, Tiling, row_tiling
from weft_numpy.rules.reduction import REDUCTIONS
from weft_numpy.rules.table import rules

MIN_ELEMENTS = 2**13
"""The elements of a domain from which on tiles or threads may pay off."""

MIN_THREADED = 2**18
"""The elements of all instructions together from which on several threads pay off."""

MIN_PRODUCT_ROWS = 128
"""The fewest rows of a product's tile; BLAS packs the other matrix for each tile."""

BLAS_THREADED = 2**18
"""The multiplications from which on BLAS computes a matrix product in several threads."""


def fusible(op: Op) -> bool:
    """Whether an op can be an instruction of a fused kernel."""
    if isinstance(op, VIEWS):
        return True
    if isinstance(op, MatmulOp):
        return op.dtype.name in ("float32", "float64")
    if isinstance(op, ReductionOp):
        return type(op) in REDUCTIONS
    if not isinstance(op, ElementwiseOp) or rules.find(type(op)) is None:
        return False
    return not (isinstance(op, PowerOp) and dtypes.is_integer(op.dtype))


class Kernels:
    """The kernels of the programs that a transformer compiles.

    A kernel is lowered when the plan needs the size of its scratch memory, and written when all
    addresses are known.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.single_threaded: set[Op] = set()
        """The kernels of programs whose products BLAS's threads share."""
        self.found: dict[Op, LoweredKernel] = {}

    def choose_threads(self, ops: Sequence[Op]) -> None:
        """Leave the processors to BLAS's threads in a program with large products.

        They spin for a while after a product, and would take the processors from other threads.
        """
        if any(map(_uses_blas_threads, ops)):
            self.single_threaded.update(op for op in ops if isinstance(op, FusedOp))

    def workspace(self, op: FusedOp) -> int:
        """Return the bytes of scratch memory that a kernel needs."""
        return self._find(op).workspace

    def write(self, op: FusedOp, emit: Emitter) -> None:
        """Write a kernel."""
        lowered = self._find(op)
        lowered.values.set_layouts(emit.step.args, emit.step.outs)
        lowered.write(emit, emit.step.workspace)

    def forget(self) -> None:
        """Drop all kernels after they have been written."""
        self.found.clear()
        self.single_threaded.clear()

    def _find(self, op: FusedOp) -> LoweredKernel:
        found = self.found.get(op)
        if found is None:
            args = [planned_layout(arg) for arg in op.args]
            preserved = [number for number, arg in enumerate(args) if not _is_overwritable(arg)]
            threads = 1 if op in self.single_threaded else self.threads
            found = self.found[op] = lower(op.kernel, args, preserved, threads)
        return found


def _uses_blas_threads(op: Op) -> bool:
    if isinstance(op, FusedOp):
        return op.kernel.product is not None and _uses_blas_threads(op.kernel.product.op)
    if isinstance(op, MatmulOp):
        return prod((*op.axes.shape[-2:], op.args[0].axes.shape[-1])) >= BLAS_THREADED
    return isinstance(op, BilinearConvolutionOp) and op.flops >= 2 * BLAS_THREADED


def _is_overwritable(layout: TensorDescription) -> bool:
    """Whether a result may reuse an operand's memory: it is no view, constant or argument."""
    is_lasting = layout.base.is_constant or isinstance(layout.base, ParameterOp)
    return not is_lasting and layout.is_contiguous and not layout.offset


def lower(
    kernel: Kernel, args: Sequence[TensorDescription], preserved: Collection[int], threads: int
) -> LoweredKernel:
    """Lower a kernel for operands with the planned layouts.

    The operands in `preserved` are never overwritten by a result.
    """
    if kernel.size >= MIN_ELEMENTS:
        body = Body(KernelValues(kernel, args, preserved, collapses=True))
        work = kernel.size * len(body.numbers)
        threads = threads if work >= MIN_THREADED and kernel.product is None else 1
        tiling = _tiling(body, threads)
        if tiling is not None and tiling.count > 1:
            return LoweredKernel(body, tiling, threads)
    values = KernelValues(kernel, args, preserved)
    return LoweredKernel(Body(values), Tiling(values.lengths))


def _tiling(body: Body, threads: int) -> Tiling | None:
    """Return the tiling of a kernel; None if it does not pay off."""
    values = body.values
    lengths, size = values.lengths, prod(values.lengths)
    everywhere = [slot for slot in body.slots if len(slot.varying) == len(lengths)]
    scratch = sum(slot.dtype.itemsize for slot in everywhere)
    if values.kernel.product is not None:
        row = {len(lengths) - 1}
        if not scratch or not values.reduced <= row:
            return None
        return row_tiling(lengths, row, max(CACHE // scratch, MIN_PRODUCT_ROWS * lengths[-1]), 1)
    layouts = (*values.operands, *values.results)
    stored = sum(each.dtype.itemsize for each in layouts if each.size == size)
    elements = min(max(CACHE // max(stored + scratch, 1), MIN_TILE), MAX_TILE)
    if threads == 1 and size <= elements:
        return None
    return row_tiling(lengths, values.reduced, elements, threads)
