"""Matrix products: the selection of an algorithm, small products and matrix-vector products.

Serial devices use register tiles, or the host's BLAS where that is worth a synchronization. Other
devices use tiles in shared memory, or their own BLAS. Products may have a fused prologue and
epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from weft.errors import GraphError
from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft.ir.guards import largest, untraced
from weft.ir.op import Op
from weft.ir.views import planned_layout
from weft.kernels.kernel import Kernel
from weft.ops.products.linalg import MatmulOp
from weft.ops.shape.movement import BroadcastOp
from weft_c.loops.loop_nest import make_pointwise_nest
from weft_c.loops.parallel import parallel_for, unravel_index
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.matmul import blas
from weft_c.matmul.accumulators import Accumulator, accumulator, accumulator_of
from weft_c.matmul.blocking import Blocking, blocking, tiles_bytes
from weft_c.matmul.epilogues import Epilogue, FusedEpilogue, StoreEpilogue
from weft_c.matmul.packed_panels import PackedMatmulOp
from weft_c.matmul.prologues import Prologue, prologue_of, reader
from weft_c.matmul.register_tiles import multiply_tiles
from weft_c.matmul.row_streams import multiply_streams, stream_bytes, suits_streams
from weft_c.matmul.shared_tiles import (
    Index,
    MatmulOperands,
    multiply_shared,
    partial_bytes,
    sum_splits,
)
from weft_c.processor import Processor
from weft_c.source.code import UNROLL, Address, Code
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.products import MAX_UNTILED_WORK, column_splits, tile_columns
from weft_tiling.sharing import GROUPS_PER_UNIT

MIN_BLAS_SIDE = 256
"""With a shorter side, register tiles reach half the rate of a BLAS, due to packing."""


@dataclass(frozen=True)
class Product:
    """A product of matrices [..., m, k] and [..., k, n] of equal batch dimensions.

    Attributes
    ----------
    x, y
        The layouts of the matrices.
    epilogue
        The epilogue that processes the sums.
    prologue
        The prologue that computes the first matrix, or None if it is in memory.
    is_packed
        Whether the second operand is the panels of one matrix.
    """

    x: TensorDescription
    y: TensorDescription
    epilogue: Epilogue
    prologue: Prologue | None = None
    is_packed: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether indices need 64 bits."""
        read = (self.x,) if self.prologue is None else self.prologue.nest.tensors
        return is_wide(*read, self.y, *self.epilogue.tensors)

    @property
    def kind(self) -> str:
        """The C type of indices."""
        return index_type(self.is_wide)

    @property
    def title(self) -> str:
        """The title of the kernel."""
        return f"{self.prologue.title if self.prologue else ''}matmul"

    def with_folded_batch(self) -> Product:
        """Fold the batch into the rows where all matrices of it share the second operand."""
        *batch, m, k = self.x.shape
        y, n = self.y, self.epilogue.shape[-1]
        steps = () if self.is_packed else y.strides
        if not batch or any(step and n > 1 for n, step in zip(batch, steps, strict=False)):
            return self
        rows = prod(batch) * m
        x = self.x.cast((rows, k))
        epilogue = self.epilogue.viewed(lambda layout: layout.cast((rows, n)))
        prologue = self.prologue and self.prologue.viewed(lambda layout: layout.cast((rows, k)))
        if x is None or epilogue is None or (prologue is None and self.prologue):
            return self
        if not self.is_packed:
            y = replace(y, shape=y.shape[-2:], strides=y.strides[-2:])
        return Product(x, y, epilogue, prologue, self.is_packed)

    def transposed(self) -> Product:
        """Return the product of the transposed matrices in reverse order."""
        epilogue = self.epilogue.viewed(_transposed)
        assert epilogue is not None, "every tensor can be transposed"
        return Product(_transposed(self.y), _transposed(self.x), epilogue)


def _transposed(x: TensorDescription) -> TensorDescription:
    rank = len(x.shape)
    return x.transpose((*range(rank - 2), rank - 1, rank - 2))


@rules.on_type(MatmulOp)
def matmul(op: MatmulOp, lowering: Lowering) -> None:
    """Lower a product to a host call, a library call or a kernel."""
    processor = lowering.processor
    x, y = lowering.args
    if on_host(op, processor):
        lowering.host(np.matmul, (x, y, lowering.out), (2,))
        return
    product = _stored(op, x, y, lowering.out, processor)
    if suits_blas(product, processor):
        lowering.library("matmul", (product.x, product.y, *product.epilogue.tensors))
        return
    multiply(lowering, product)


def _stored(
    op: MatmulOp,
    x: TensorDescription,
    y: TensorDescription,
    out: TensorDescription,
    processor: Processor,
) -> Product:
    """Return a product that stores its sums, with the batch folded."""
    return Product(x, y, StoreEpilogue(out, accumulator(op.dtype, processor))).with_folded_batch()


def write_product(
    kernel: Kernel,
    args: Sequence[TensorDescription],
    outs: Sequence[TensorDescription],
    lowering: Lowering,
) -> None:
    """Lower a fused kernel with a product.

    Raises GraphError if the kernel also reduces rows, which no work item holds as a whole, or has a
    prologue for a matrix-vector product, whose operands are read in vectors.
    """
    product = kernel.product
    assert product is not None, "the kernel has a product"
    if kernel.reduced:
        reason = "kernels in C do not reduce the rows of a product: its target has max_product_row"
        raise GraphError(product.op.explain(reason))
    prologue = prologue_of(kernel, args)
    is_packed = isinstance(product.op, PackedMatmulOp)
    if prologue is not None and not is_packed and not are_matrices(product.op):
        reason = "kernels in C compute no vector for a product: its target has takes_prologue"
        raise GraphError(product.op.explain(reason))
    first, second = product.args
    x = args[first] if prologue is None else prologue.operand
    acc = accumulator_of(product.op, lowering.processor)
    epilogue = FusedEpilogue(make_pointwise_nest(kernel, args, outs), acc)
    unfolded = Product(x, args[second], epilogue, prologue, is_packed)
    multiply(lowering, unfolded.with_folded_batch())


@rules.on_type(PackedMatmulOp)
def packed_matmul(op: PackedMatmulOp, lowering: Lowering) -> None:
    """Lower a product with a packed matrix."""
    x, panels = lowering.args
    epilogue = StoreEpilogue(lowering.out, accumulator_of(op, lowering.processor))
    product = Product(x, panels, epilogue, is_packed=True)
    multiply(lowering, product.with_folded_batch())


@needs_scratch(PackedMatmulOp)
def packed_matmul_bytes(op: PackedMatmulOp, processor: Processor) -> int:
    """Return the bytes of scratch memory of a product with a packed matrix."""
    return scratch_of_product(op, processor, is_stored=True)


@needs_scratch(MatmulOp)
def matmul_bytes(op: MatmulOp, processor: Processor) -> int:
    """Return the bytes of scratch memory of a product; 0 where a BLAS computes it."""
    if on_host(op, processor):
        return 0
    if processor.has_blas:
        x, y = map(planned_layout, op.args)
        out = contiguous(op.axes.shape, op.dtype)
        if suits_blas(_stored(op, x, y, out, processor), processor):
            return 0
    return scratch_of_product(op, processor, is_stored=True)


def is_own_kernel(op: MatmulOp, processor: Processor) -> bool:
    """Whether a kernel of weft computes a product, so that other ops can be fused with it.

    A batch of one-row products with the same matrix counts as a matrix product.
    """
    x, y = op.args
    *batch, m, k = x.axes.shape
    rows = prod(batch) * m if isinstance(y, BroadcastOp) else m
    work = op.axes.size * k
    is_for_blas = _is_for_blas(op.dtype, rows, op.axes.shape[-1], work, processor)
    return not on_host(op, processor) and not is_for_blas


def on_host(op: MatmulOp, processor: Processor) -> bool:
    """Whether the host's BLAS computes a product.

    It computes no matrix-vector products: these are bound by memory, and the BLAS's threads, which
    spin while they wait, would take the cores from the device.
    """
    m, k = op.args[0].axes.shape[-2:]
    n = op.axes.shape[-1]
    least = processor.host_work if min(m, k, n) < MIN_BLAS_SIDE else processor.host_work_even
    is_large = min(m, n) > 1 and m * k * n >= least
    return processor.shares_host and op.dtype.name in ("float32", "float64") and is_large


def suits_blas(product: Product, processor: Processor) -> bool:
    """Whether the device's BLAS computes a product: not small, and with supported strides."""
    x, y, (out,) = product.x, product.y, product.epilogue.tensors
    *_, m, n = out.shape
    is_worth = _is_for_blas(x.dtype, m, n, out.size * x.shape[-1], processor)
    return is_worth and blas.gemm(x, y, out) is not None


def _is_for_blas(dtype: DType, rows: int, columns: int, work: int, processor: Processor) -> bool:
    """Whether a product of `work` multiplications is worth a call of the device's BLAS."""
    knows = processor.has_blas and dtype.name in processor.blas_dtypes
    return knows and min(rows, columns) > 1 and work > processor.blas_work


def are_matrices(op: Op) -> bool:
    """Whether a product has several rows and several columns."""
    return min(op.axes.shape[-2:]) > 1


def takes_prologue(op: Op, processor: Processor) -> bool:
    """Whether a product can compute its first operand in a prologue.

    It can if a kernel of weft reads each element of that operand once: no other work item
    multiplies the same rows by other columns.
    """
    if isinstance(op, PackedMatmulOp):
        return untraced(_packed_blocking(op, processor).across) == 1
    if not isinstance(op, MatmulOp) or not are_matrices(op) or not is_own_kernel(op, processor):
        return False
    *leading, m, k = op.args[0].axes.shape
    n = op.axes.shape[-1]
    if not processor.is_serial:
        return n <= tile_columns(m, n, processor)
    acc = accumulator(op.dtype, processor)
    cut = blocking((prod(leading), m, k, n), acc, processor, False, acc.lanes)
    return untraced(cut.across) == 1


def _packed_blocking(op: PackedMatmulOp, processor: Processor) -> Blocking:
    *leading, k = op.args[0].axes.shape
    acc = accumulator_of(op, processor)
    lengths, panel = (1, prod(leading), k, op.columns), op.args[1].axes.shape[-1]
    return blocking(lengths, acc, processor, False, acc.lanes, panel)


def scratch_of_product(
    op: Op, processor: Processor, *, is_stored: bool, has_prologue: bool = False
) -> int:
    """Return the most bytes of scratch memory that `multiply` needs, for any layout.

    `is_stored` if the sums are stored without a fused epilogue.
    """
    *leading, m, k = op.args[0].axes.shape
    batch, n = prod(leading), op.axes.shape[-1]
    if batch * m * n * k <= MAX_UNTILED_WORK:
        return 0
    acc = accumulator_of(op, processor)
    if isinstance(op, PackedMatmulOp):
        panel = op.args[1].axes.shape[-1]
        folded = ((1, batch * m), (batch, m))
        options = acc, processor, is_stored, has_prologue
        return largest(*(tiles_bytes((b, i, k, n), *options, panel) for b, i in folded))
    # The batch may be folded into the rows; a column is transposed to a row.
    ways = {(batch, m, n), (1, batch * m, n)}
    ways = {(b, j, i) for b, i, j in ways} if n == 1 else ways
    options = acc, processor, is_stored, has_prologue
    if processor.is_serial:
        tiles = largest(*(tiles_bytes((b, i, k, j), *options) for b, i, j in ways))
        streams = [stream_bytes(b, k, j, acc, processor) for b, i, j in ways if i == 1]
        return max(tiles, *streams, 0)
    return max(
        max(partial_bytes(b, i, j, k, acc, processor), _column_bytes(b * i, j, k, acc, processor))
        for b, i, j in ways
    )


def multiply(lowering: Lowering, product: Product) -> None:
    """Write and launch the kernels of a product with a folded batch."""
    *batch, m, n = product.epilogue.shape
    k = product.x.shape[-1]
    if not prod(product.epilogue.shape):
        return
    if product.is_packed:
        operands = product.x, product.y, product.epilogue, product.prologue
        multiply_tiles(lowering, *operands, product.title, is_packed=True)
        return
    if n == 1 and m > 1:
        product, m, n = product.transposed(), n, m
    x, y = product.x, product.y
    if m == 1 and y.strides[-2] == y.dtype.itemsize and x.strides[-1] == x.dtype.itemsize:
        _write_row_products(lowering, product)
    elif prod(batch) * m * n * k <= MAX_UNTILED_WORK:
        _write_untiled(lowering, product)
    elif m == 1 and lowering.processor.is_serial and suits_streams(y, product.epilogue.acc):
        multiply_streams(lowering, x, y, product.epilogue, product.title)
    elif lowering.processor.is_serial:
        multiply_tiles(lowering, x, y, product.epilogue, product.prologue, product.title)
    elif m == 1:
        _column_products(lowering, product)
    else:
        multiply_shared(lowering, _matmul_operands(product), product.epilogue, product.title)


def _matmul_operands(product: Product) -> MatmulOperands:
    x, y, acc = product.x, product.y, product.epilogue.acc
    *batch, m, k = x.shape

    def first(builder: KernelBuilder, at: Index, i: str, term: str) -> str:
        return reader(acc, builder, x, product.prologue).load(*at, i, term)

    def second(builder: KernelBuilder, at: Index, term: str, j: str) -> str:
        return acc.load(builder.array("y", y), *at, term, j)

    by_rows = x.strides[-1] <= x.strides[-2], y.strides[-1] <= y.strides[-2]
    return MatmulOperands(tuple(batch), m, y.shape[-1], k, first, second, by_rows, product.kind)


def _write_untiled(lowering: Lowering, product: Product) -> None:
    """Write a loop over the sums of a small product."""
    x, y, epilogue = product.x, product.y, product.epilogue
    builder, acc = epilogue.begin(lowering, product.title), epilogue.acc
    a, b = reader(acc, builder, x, product.prologue), builder.array("y", y)

    def add(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        *at, i, j = indices
        total = builder.code.define(acc.scalar_type, "total", "0")
        with builder.code.block(f"for ({product.kind} k = 0; k < {x.shape[-1]}; k++)"):
            terms = f"{a.load(*at, i, 'k')} * {acc.load(b, *at, 'k', j)}"
            builder.code.line(f"{total} += {terms};")
        epilogue.write(builder, emitter, indices, total)

    parallel_for(builder, epilogue.shape, add, wide=product.is_wide, cost=max(x.shape[-1], 1))


def _write_row_products(lowering: Lowering, product: Product) -> None:
    """Write a matrix-vector product as dot products of contiguous vectors."""
    epilogue = product.epilogue
    builder, acc = epilogue.begin(lowering, "matvec"), epilogue.acc
    arrays = builder.array("x", product.x), builder.array("y", product.y)
    acc.declare_vectors(builder.code)
    totals_of = partial(_totals_of_rows, builder, product, arrays)
    if not builder.processor.is_serial:
        _write_rows_of_groups(builder, epilogue, totals_of)
        return

    def some_rows(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        *at, zero, j = indices
        rows = [j, *(f"{j} + {more}" for more in range(1, emitter.lanes))]
        for row, total in zip(rows, totals_of(tuple(at), rows), strict=True):
            epilogue.write(builder, ValueEmitter(builder.code), (*at, zero, row), total)

    lanes, k = _SIDE_BY_SIDE if _is_vector(acc) else 1, product.x.shape[-1]
    parallel_for(builder, epilogue.shape, some_rows, lanes=lanes, wide=product.is_wide, cost=k)


def _is_vector(acc: Accumulator) -> bool:
    return acc.lanes > 1 and acc.is_plain


def _totals_of_rows(
    builder: KernelBuilder,
    product: Product,
    arrays: tuple[Array, Array],
    at: tuple[str, ...],
    rows: Sequence[str],
) -> list[str]:
    """Write the dot products of some rows; on GPUs, a work item's share of them."""
    code, acc, k, (a, b) = builder.code, product.epilogue.acc, product.x.shape[-1], arrays
    totals = [code.define(acc.scalar_type, "total", "0") for _ in rows]
    first, step = "0", 1
    if _is_vector(acc):
        first = _vector_sums(
            code,
            acc,
            totals,
            (product.kind, k),
            lambda t: [a.at(*at, "0", t), *(b.at(*at, t, j) for j in rows)],
        )
    elif not builder.processor.is_serial:
        first, step = "LOCAL_ID", builder.processor.group
    with code.block(f"for ({product.kind} k = {first}; k < {k}; k += {step})"):
        for total, j in zip(totals, rows, strict=True):
            terms = f"{acc.load(a, *at, '0', 'k')} * {acc.load(b, *at, 'k', j)}"
            code.line(f"{total} += {terms};")
    return totals


def _write_rows_of_groups(
    builder: KernelBuilder,
    epilogue: Epilogue,
    totals_of: Callable[[tuple[str, ...], Sequence[str]], list[str]],
) -> None:
    """Write a loop over rows, of each of which a work group adds up the shares of its items."""
    code, group = builder.code, builder.processor.group
    rows = prod(epilogue.shape)
    groups = min(rows, builder.processor.units * GROUPS_PER_UNIT)
    code.declare(f"LOCAL {epilogue.acc.scalar_type} shared[{group}];")
    with code.block(f"for (i64 row = GROUP_ID; row < {rows}; row += {groups})"):
        indices = unravel_index(code, epilogue.shape, "row", "i64")
        (total,) = totals_of(indices[:-2], [indices[-1]])
        code.line(f"shared[LOCAL_ID] = {total};")
        code.line("BARRIER();")
        with code.block(f"for (i32 count = {group // 2}; count > 0; count /= 2)"):
            code.line("if (LOCAL_ID < count) shared[LOCAL_ID] += shared[LOCAL_ID + count];")
            code.line("BARRIER();")
        with code.block("if (LOCAL_ID == 0)"):
            epilogue.write(builder, ValueEmitter(code), indices, "shared[0]")
        code.line("BARRIER();")
    builder.launch(groups * group, group)


VectorAddresses = Callable[[str], Sequence[Address]]
"""Returns the addresses of the operands' vectors that begin at a term, the shared one first."""

_CHAINS = 4
"""The independent vector accumulators, which hide the latency of additions in cycles."""

_SIDE_BY_SIDE = 2
"""The rows that are read together: memory serves two streams faster than one."""


def _vector_sums(
    code: Code,
    acc: Accumulator,
    totals: Sequence[str],
    terms: tuple[str, int],
    addresses: VectorAddresses,
) -> str:
    """Write dot products in vectors, and return the number of terms that they cover.

    `terms` are the type of the counter, and the number of terms.
    """
    kind, k = terms
    vector, step, rows = acc.type(acc.lanes), acc.lanes * _CHAINS, len(totals)
    whole = k // step * step
    code.line(f"{vector} c[{rows}][{_CHAINS}];")
    for row in range(rows):
        code.line(UNROLL)
        code.line(f"for (i32 v = 0; v < {_CHAINS}; v++) c[{row}][v] = {acc.zero(acc.lanes)};")
    with code.block(f"for ({kind} k = 0; k < {whole}; k += {step})"):
        code.line(UNROLL)
        with code.block(f"for (i32 v = 0; v < {_CHAINS}; v++)"):
            vectors = [
                acc.load_vector(code, acc.lanes, address, acc.dtype)
                for address in addresses(f"k + v * {acc.lanes}")
            ]
            common = code.define(f"const {vector}", "common", vectors[0])
            for row, other in enumerate(vectors[1:]):
                code.line(f"c[{row}][v] += {common} * {other};")
    for row, total in enumerate(totals):
        added = " + ".join(f"c[{row}][{v}]" for v in range(_CHAINS))
        name = code.define(f"const {vector}", "sums", added)
        code.line(f"{total} = {acc.horizontal_sum(name)};")
    return str(whole)


def _column_bytes(batch: int, columns: int, k: int, acc: Accumulator, processor: Processor) -> int:
    splits = 1 if processor.is_serial else column_splits(batch, columns, k, processor)
    return 0 if splits == 1 else splits * batch * columns * acc.sum_dtype.itemsize


def _column_products(lowering: Lowering, product: Product) -> None:
    """Write a vector-matrix product with a work item for each column, or split of a column."""
    x, y, acc = product.x, product.y, product.epilogue.acc
    shape, k = product.epilogue.shape, x.shape[-1]
    splits = column_splits(prod(shape[:-1]), shape[-1], k, lowering.processor)
    partial = lowering.scratch((splits, *shape), acc.sum_dtype) if splits > 1 else None
    epilogue = product.epilogue if partial is None else StoreEpilogue(partial, acc)
    builder = epilogue.begin(lowering, "matvec")
    code, length = builder.code, -(-k // splits)
    a, b = builder.array("x", x), builder.array("y", y)
    wide = is_wide(x, y, *epilogue.tensors)
    kind = index_type(wide)

    def column(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        part = indices[0] if splits > 1 else "0"
        *at, _, j = indices[1:] if splits > 1 else indices
        total = code.define(acc.scalar_type, "total", "0")
        first, last = f"{part} * {length}", f"({part} + 1) * {length}"
        with code.block(f"for ({kind} k = {first}; k < {last} && k < {k}; k++)"):
            code.line(f"{total} += {acc.load(a, *at, '0', 'k')} * {acc.load(b, *at, 'k', j)};")
        epilogue.write(builder, emitter, indices, total)

    parallel_for(builder, epilogue.shape, column, wide=wide)
    if partial is not None:
        sum_splits(lowering, partial, product.epilogue)
