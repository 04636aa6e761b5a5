"""The kernels of programs: which ops can be fused, and how each kernel is lowered.

A kernel is straight-line code if its data fits a cache, and a loop over tiles if not. Where the
rows of its reductions exceed a cache as well, it is several loops.
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
from weft.nn.spatial.convolutions import BilinearConvolutionOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.pointwise.math import PowerOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.body import Body
from weft_numpy.kernels.kernel_values import KernelValues
from weft_numpy.kernels.loops import LoweredKernel
from weft_numpy.kernels.tiling import MAX_TILE, MIN_TILE, Tiling, tiling_of
from weft_numpy.rules.reduction import REDUCTIONS
from weft_numpy.rules.sliding import workspace
from weft_numpy.rules.table import rules

CACHE = 2**20  # bytes of all arrays of a tile, which the second-level cache of a core holds
MIN_ELEMENTS = 2**13  # of a domain from which on tiles or threads may pay off
MIN_THREADED = 2**18  # elements of all instructions from which on several threads pay off
MIN_SWEEP_TILES = 16  # for any number of threads: sums must not depend on it
MIN_SUMMED = 64  # elements of a tile for each sum in a sweep, to bound the memory of the parts
STREAMED_TILE = 2**20  # elements of a tile in sweeps that read each of them once
MIN_PRODUCT_ROWS = 128  # of a product's tile; BLAS packs the other matrix for each tile
MAX_PROLOGUE_COLUMNS = 256  # of a product with a prologue: the other matrix stays in cache
BLAS_THREADED = 2**18  # multiplications from which on BLAS computes a product in several threads


class Kernels:
    """The kernels of the programs that a transformer compiles.

    A kernel is lowered when the plan needs the size of its scratch memory, and written when all
    addresses are known.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.single_threaded: set[Op] = set()
        """The kernels of programs whose products BLAS's threads share."""
        self.lowered: dict[Op, LoweredKernel] = {}

    @staticmethod
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

    def takes_prologue(self, product: Op) -> bool:
        """Whether a product can be computed by rows together with what its first operand is."""
        *_, terms = product.args[0].axes.shape
        fits = MIN_PRODUCT_ROWS * terms * product.dtype.itemsize <= CACHE
        return fits and product.axes.shape[-1] <= MAX_PROLOGUE_COLUMNS and self.fusible(product)

    def choose_threads(self, ops: Sequence[Op]) -> None:
        """Leave the processors to BLAS's threads in a program with large products.

        They spin for a while after a product, and would take the processors from other threads.
        """
        if any(map(_uses_blas_threads, ops)):
            self.single_threaded.update(op for op in ops if isinstance(op, FusedOp))

    def workspace(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op needs."""
        return self._find(op).workspace if isinstance(op, FusedOp) else workspace(op)

    def write(self, op: FusedOp, emit: Emitter) -> None:
        """Write a kernel."""
        lowered = self._find(op)
        lowered.values.set_layouts(emit.step.args, emit.step.outs)
        lowered.write(emit, emit.step.workspace)

    def forget(self) -> None:
        """Drop all kernels after they have been written."""
        self.lowered.clear()
        self.single_threaded.clear()

    def _find(self, op: FusedOp) -> LoweredKernel:
        lowered = self.lowered.get(op)
        if lowered is None:
            args = [planned_layout(arg) for arg in op.args]
            preserved = [number for number, arg in enumerate(args) if not _is_overwritable(arg)]
            threads = 1 if op in self.single_threaded else self.threads
            lowered = self.lowered[op] = lower(op.kernel, args, preserved, threads)
        return lowered


def _uses_blas_threads(op: Op) -> bool:
    """Whether an op has products of two matrices that BLAS computes in several threads."""
    if isinstance(op, FusedOp) and op.kernel.product is not None:
        op = op.kernel.product.op
    if isinstance(op, BilinearConvolutionOp):
        return op.flops >= 2 * BLAS_THREADED
    is_product = isinstance(op, MatmulOp)
    return is_product and prod((*op.axes.shape[-2:], op.args[0].axes.shape[-1])) >= BLAS_THREADED


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
    values, product = KernelValues(kernel, args, preserved), kernel.product
    is_small = kernel.size * len(values.computed) < MIN_THREADED
    if is_small or (product is not None and _uses_blas_threads(product.op)):
        threads = 1
    largest, tiling = max([kernel.size, *(each.axes.size for each in kernel.prologue)]), None
    if kernel.size and largest >= MIN_ELEMENTS:
        body = Body(values, Tiling(values.lengths), values.computed, range(len(values.results)))
        choose = _tiling if product is None else _product_tiling
        tiling = choose(values, sum(body.sizes), threads)
    return LoweredKernel(values, tiling or Tiling(values.lengths), threads)


def _product_tiling(values: KernelValues, scratch: int, threads: int) -> Tiling | None:
    """Return tiles of many small products, or of the rows of a large one; None for a single tile.

    `scratch` is the bytes of scratch memory without tiles.
    """
    lengths, size = values.lengths, values.kernel.size
    last = len(lengths) - 1
    if not values.reduced <= {last} or not (scratch or threads > 1):
        return None
    elements = max(CACHE * size // max(scratch, 1), MIN_PRODUCT_ROWS * lengths[last])
    return tiling_of(lengths, {last}, elements, threads)


def _tiling(values: KernelValues, scratch: int, threads: int) -> Tiling | None:
    """Return tiles of a kernel without a product, likewise."""
    lengths, size = values.lengths, values.kernel.size
    stored = sum(each.nbytes for each in (*values.operands, *values.results) if each.size == size)
    elements = min(max(CACHE * size // max(stored + scratch, 1), MIN_TILE), MAX_TILE)
    if threads == 1 and size <= elements:
        return None
    # Parts of columns, which are short runs in memory, pay off only if several sweeps are saved.
    whole = {*values.reduced, *([len(lengths) - 1] if values.kernel.stages == 1 else [])}
    rows = tiling_of(lengths, whole if values.reduced else (), elements, threads)
    if rows is not None and rows.count > 1:
        return rows
    if size <= elements:
        return None
    kept = [axis for axis in range(len(lengths)) if axis not in values.reduced]
    elements = elements if scratch >= size else STREAMED_TILE
    elements = max(elements, MIN_SUMMED * prod(lengths[axis] for axis in kept))
    return tiling_of(lengths, kept, elements, MIN_SWEEP_TILES)
