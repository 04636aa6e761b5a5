"""The kernels of programs: which ops can be fused, and how each kernel is lowered.

A kernel is straight-line code if its data fits a cache, and a loop over tiles if not. Where the
rows of its reductions exceed a cache as well, it is several loops.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

import numpy as np

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
from weft_numpy.rules.sliding import blocked, workspace
from weft_numpy.rules.table import rules
from weft_numpy.sliding import Convolution

CACHE = 2**20  # bytes of all arrays of a tile, which the second-level cache of a core holds
MIN_ELEMENTS = 2**13  # of a domain from which on tiles or threads may pay off
MIN_THREADED = 2**18  # elements of all instructions from which on several threads pay off
MIN_SWEEP_TILES = 16  # for any number of threads: sums must not depend on it
MIN_SUMMED = 64  # elements of a tile for each sum in a sweep, to bound the memory of the parts
STREAMED_TILE = 2**20  # elements of a tile in sweeps that read each of them once
MIN_PRODUCT_ROWS = 128  # of a product's tile; BLAS packs the other matrix for each tile
MAX_PROLOGUE_COLUMNS = 256  # of a product with a prologue: the other matrix stays in cache
BLAS_THREADED = 2**18  # multiplications from which on BLAS may compute a product in several threads


class Kernels:
    """The kernels of the programs that a transformer compiles.

    A kernel is lowered when the plan needs the size of its scratch memory, and written when all
    addresses are known.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.single_threaded: set[Op] = set()
        """The ops of programs whose products BLAS's threads share."""
        self.cut: set[Op] = set()
        """The products that are cut into rows, for which BLAS has one thread."""
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
        """Leave the processors to BLAS's threads in a program that is mostly large products.

        They spin for a while after a product, and would take the processors from other threads. So
        in other programs large products are cut into rows that BLAS computes in one thread.
        """
        large = [op for op in ops if _uses_blas_threads(op)]
        is_most = 2 * sum(op.flops for op in large) >= sum(op.flops for op in ops)
        if large and (is_most or not all(map(_can_be_cut, large))):
            self.single_threaded.update(ops)
        elif self.threads > 1:
            self.cut.update(large)

    def workspace(self, op: Op) -> int:
        """Return the bytes of scratch memory that an op needs."""
        if isinstance(op, FusedOp):
            return self._find(op).workspace
        return workspace(op, self._threads(op))

    def rule(self, op: Op) -> Callable[..., None]:
        """Return what writes an op."""
        if isinstance(op, FusedOp):
            return self.write
        return _write_in_rows if op in self.cut else rules[type(op)]

    def write(self, op: FusedOp, emit: Emitter) -> None:
        """Write a kernel."""
        lowered = self._find(op)
        lowered.values.set_layouts(emit.step.args, emit.step.outs)
        lowered.write(emit, emit.step.workspace)

    def forget(self) -> None:
        """Drop all kernels after they have been written."""
        self.lowered.clear()
        self.single_threaded.clear()
        self.cut.clear()

    def _find(self, op: FusedOp) -> LoweredKernel:
        lowered = self.lowered.get(op)
        if lowered is None:
            args = [planned_layout(arg) for arg in op.args]
            preserved = [number for number, arg in enumerate(args) if not _is_overwritable(arg)]
            is_cut = op in self.cut
            lowered = lower(op.kernel, args, preserved, self._threads(op), is_cut)
            self.lowered[op] = lowered
        return lowered

    def _threads(self, op: Op) -> int:
        return 1 if op in self.single_threaded else self.threads


def _product(op: Op) -> Op | None:
    """Return the product of two matrices that an op is or contains, if there is one."""
    if isinstance(op, FusedOp) and op.kernel.product is not None:
        op = op.kernel.product.op
    return op if isinstance(op, MatmulOp) else None


def _uses_blas_threads(op: Op) -> bool:
    """Whether an op has products of two matrices that BLAS computes in several threads."""
    if isinstance(op, BilinearConvolutionOp):
        convolution = blocked(op)
        return isinstance(convolution, Convolution) and convolution.uses_blas_threads
    product = _product(op)
    return product is not None and product.axes.shape[-2] * _row_size(product) >= BLAS_THREADED


def _can_be_cut(op: Op) -> bool:
    """Whether an op is a product of which BLAS computes a row in one thread."""
    product = _product(op)
    if product is None or len(product.axes.shape) != 2 or not Kernels.fusible(product):
        return False
    return _row_size(product) < BLAS_THREADED


def _row_size(product: Op) -> int:
    """Return the multiplications for a row of a product."""
    return int(product.axes.shape[-1] * product.args[0].axes.shape[-1])


def _write_in_rows(op: Op, emit: Emitter) -> None:
    """Write a product as products of some rows each, which BLAS computes in one thread."""
    x, y = emit.args
    step = (BLAS_THREADED - 1) // _row_size(op)
    rows, matmul = f"[at:at + {step}]", emit.bind(np.matmul, "matmul")
    head = f"for at in range(0, {op.axes.shape[0]}, {step})"
    emit.line(f"{head}: {matmul}({x}{rows}, {y}, {emit.out}{rows})")


def _is_overwritable(layout: TensorDescription) -> bool:
    """Whether a result may reuse an operand's memory: it is not a view, constant or argument."""
    is_lasting = layout.base.is_constant or isinstance(layout.base, ParameterOp)
    return not is_lasting and layout.is_contiguous and not layout.offset


def lower(
    kernel: Kernel,
    args: Sequence[TensorDescription],
    preserved: Collection[int],
    threads: int,
    is_cut: bool = False,
) -> LoweredKernel:
    """Lower a kernel for operands with the planned layouts.

    The operands in `preserved` are never overwritten by a result. If the product `is_cut`, BLAS
    computes a tile in one thread.
    """
    values, product = KernelValues(kernel, args, preserved), kernel.product
    if kernel.size * len(values.computed) < MIN_THREADED:
        threads = 1
    largest, tiling = max([kernel.size, *(each.axes.size for each in kernel.prologue)]), None
    if kernel.size and (is_cut or largest >= MIN_ELEMENTS):
        body = Body(values, Tiling(values.lengths), values.computed, range(len(values.results)))
        if product is None:
            tiling = _tiling(values, sum(body.sizes), threads)
        else:
            tiling = _product_tiling(values, sum(body.sizes), threads, is_cut)
    return LoweredKernel(values, tiling or Tiling(values.lengths), threads)


def _product_tiling(
    values: KernelValues, scratch: int, threads: int, is_cut: bool
) -> Tiling | None:
    """Return tiles of many small products, or of the rows of a large one; None for a single tile.

    `scratch` is the bytes of scratch memory without tiles.
    """
    lengths, size = values.lengths, values.kernel.size
    last = len(lengths) - 1
    if not values.reduced <= {last} or not (scratch or threads > 1 or is_cut):
        return None
    elements = max(CACHE * size // max(scratch, 1), MIN_PRODUCT_ROWS * lengths[last])
    if is_cut:
        elements = min(elements, (BLAS_THREADED - 1) // values.contracted)
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
