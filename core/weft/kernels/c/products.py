"""Products of matrices, and of a matrix and a vector.

On serial devices products are made in tiles of registers, or by the host where that is worth a wait
for the device; on others in tiles that a group shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from weft.description import TensorDescription
from weft.dtypes import DType
from weft.kernels.c import blas
from weft.kernels.c.accumulators import VECTOR, Accumulator, accumulator
from weft.kernels.c.code import Code
from weft.kernels.c.forms import Form
from weft.kernels.c.loops import SHARES, decoded, each_point
from weft.kernels.c.lowering import Lowering, Writing, is_wide, needs_scratch, rules
from weft.kernels.c.packing import UNROLL
from weft.kernels.c.processor import Processor
from weft.kernels.c.shared_tiles import (
    LEAST_TERMS,
    Factors,
    Place,
    add_parts,
    multiply_shared,
    partial_bytes,
)
from weft.kernels.c.tiles import multiply_tiles, tiles_bytes
from weft.ops.linalg import MatmulOp

HOST_WORK = 160**3
"""The multiplications of a matrix from which on the host's BLAS is worth a wait."""

TINY = 2048
"""The multiplications up to which a product is not worth tiles."""


@rules.on_type(MatmulOp)
def matmul(op: MatmulOp, lowering: Lowering) -> None:
    """Multiply matrices, as their lengths and the device ask."""
    processor = lowering.processor
    x, y = lowering.args
    if on_host(op, processor):
        lowering.host(np.matmul, (x, y, lowering.out), (2,))
        return
    if processor.has_blas and in_library(x, y, lowering.out):
        lowering.library("matmul", _folded(x, y, lowering.out))
        return
    multiply(lowering, x, y, lowering.out)


@needs_scratch(MatmulOp)
def matmul_bytes(op: MatmulOp, processor: Processor) -> int:
    """Return the scratch memory for operands in any layout."""
    if on_host(op, processor):
        return 0
    *batch, m, k = op.args[0].axes.shape
    return scratch_of_product(prod(batch), m, k, op.axes.shape[-1], op.dtype, processor)


def on_host(op: MatmulOp, processor: Processor) -> bool:
    """Whether the host's BLAS makes a product.

    Not of a matrix and a vector: that is as fast as the matrix is read, and the BLAS's threads,
    which wait for more by spinning, would take the processors from the device.
    """
    m, k = op.args[0].axes.shape[-2:]
    n = op.axes.shape[-1]
    is_large = min(m, n) > 1 and m * k * n >= HOST_WORK
    return processor.shares_host and op.dtype.name in ("float32", "float64") and is_large


def in_library(x: TensorDescription, y: TensorDescription, out: TensorDescription) -> bool:
    """Whether a product is one for the device's BLAS: of matrices, not small, and laid out well."""
    x, y, out = _folded(x, y, out)
    m, n = out.shape[-2:]
    work = out.size * x.shape[-1]
    return min(m, n) > 1 and work > TINY and blas.gemm(x, y, out) is not None


def scratch_of_product(
    batch: int, m: int, k: int, n: int, dtype: DType, processor: Processor
) -> int:
    """Return the scratch memory that `multiply` needs at most."""
    if not batch * m * n:
        return 0
    acc = accumulator(dtype, processor)
    # A batch may turn out to be more rows, and a column a row.
    ways = {(batch, m, n), (1, batch * m, n)}
    ways |= {(batch, 1, m), (1, 1, batch * m)} if n == 1 else set()
    if processor.is_serial:
        return max(tiles_bytes(b, i, k, j, acc, processor) for b, i, j in ways)
    return max(
        max(partial_bytes(b, i, j, k, acc, processor), _column_bytes(b * i, j, k, acc, processor))
        for b, i, j in ways
    )


def multiply(
    lowering: Lowering, x: TensorDescription, y: TensorDescription, out: TensorDescription
) -> None:
    """Write the product of matrices [..., m, k] and [..., k, n] of equal leading dimensions."""
    x, y, out = _folded(x, y, out)
    acc = accumulator(x.dtype, lowering.processor)
    *batch, m, n = out.shape
    k = x.shape[-1]
    if not out.size:
        return
    if n == 1 and m > 1:
        x, y, out = _turned(y), _turned(x), _turned(out)
        m, n = n, m
    if m == 1 and y.strides[-2] == y.dtype.itemsize and x.strides[-1] == x.dtype.itemsize:
        _row_products(lowering, x, y, out, acc)
    elif prod(batch) * m * n * k <= TINY:
        _each_by_itself(lowering, x, y, out, acc)
    elif lowering.processor.is_serial:
        multiply_tiles(lowering, x, y, out, acc)
    elif m == 1:
        _columns(lowering, x, y, out, acc)
    else:
        multiply_shared(lowering, _factors(x, y, out, acc), out, acc, "matmul")


def _folded(
    x: TensorDescription, y: TensorDescription, out: TensorDescription
) -> tuple[TensorDescription, TensorDescription, TensorDescription]:
    """Return a batch that meets the same second operand as more rows."""
    *batch, m, k = x.shape
    if not batch or any(stride and n > 1 for n, stride in zip(batch, y.strides, strict=False)):
        return x, y, out
    rows = prod(batch) * m
    first, result = x.cast((rows, k)), out.cast((rows, y.shape[-1]))
    if first is None or result is None:
        return x, y, out
    return first, replace(y, shape=y.shape[-2:], strides=y.strides[-2:]), result


def _turned(x: TensorDescription) -> TensorDescription:
    rank = len(x.shape)
    return x.transpose((*range(rank - 2), rank - 1, rank - 2))


def _factors(
    x: TensorDescription, y: TensorDescription, out: TensorDescription, acc: Accumulator
) -> Factors:
    *batch, m, k = x.shape

    def first(writing: Writing, at: Place, i: str, term: str) -> str:
        return acc.load(writing.array("x", x), *at, i, term)

    def second(writing: Writing, at: Place, term: str, j: str) -> str:
        return acc.load(writing.array("y", y), *at, term, j)

    by_rows = x.strides[-1] <= x.strides[-2], y.strides[-1] <= y.strides[-2]
    kind = "i64" if is_wide(x, y, out) else "i32"
    return Factors(tuple(batch), m, out.shape[-1], k, first, second, by_rows, kind)


def _each_by_itself(
    lowering: Lowering,
    x: TensorDescription,
    y: TensorDescription,
    out: TensorDescription,
    acc: Accumulator,
) -> None:
    """Write a loop over the sums of a small product."""
    writing = lowering.kernel("matmul")
    a, b, c = (writing.array("x", x), writing.array("y", y), writing.array("out", out, True))

    def add(indices: tuple[str, ...], form: Form) -> None:
        *at, i, j = indices
        total = writing.code.define(acc.number, "total", "0")
        with writing.code.block(f"for (i32 k = 0; k < {x.shape[-1]}; k++)"):
            terms = f"{acc.load(a, *at, i, 'k')} * {acc.load(b, *at, 'k', j)}"
            writing.code.line(f"{total} += {terms};")
        writing.code.line(acc.store(c, total, *indices))

    each_point(writing, out.shape, add, wide=is_wide(x, y, out), cost=max(x.shape[-1], 1))


def _row_products(
    lowering: Lowering,
    x: TensorDescription,
    y: TensorDescription,
    out: TensorDescription,
    acc: Accumulator,
) -> None:
    """Write the products of a vector with vectors that lie in memory as it does."""
    writing = lowering.kernel("matvec")
    code, k = writing.code, x.shape[-1]
    a, b, c = (writing.array("x", x), writing.array("y", y), writing.array("out", out, True))
    is_vector = acc.lanes > 1 and acc.is_plain
    acc.declare_vectors(code)
    group = writing.processor.group

    def totals_of_rows(at: tuple[str, ...], rows: Sequence[str]) -> list[str]:
        totals = [code.define(acc.number, "total", "0") for _ in rows]
        first, step = "0", 1
        if is_vector:
            first = _vector_sums(
                code,
                acc,
                totals,
                k,
                lambda t: [a.at(*at, "0", t), *(b.at(*at, t, j) for j in rows)],
            )
        elif not writing.processor.is_serial:
            first, step = "LOCAL_ID", group
        with code.block(f"for (i32 k = {first}; k < {k}; k += {step})"):
            for total, j in zip(totals, rows, strict=True):
                terms = f"{acc.load(a, *at, '0', 'k')} * {acc.load(b, *at, 'k', j)}"
                code.line(f"{total} += {terms};")
        return totals

    def some_rows(indices: tuple[str, ...], form: Form) -> None:
        *at, zero, j = indices
        rows = [j, *(f"{j} + {more}" for more in range(1, form.lanes))]
        for row, total in zip(rows, totals_of_rows(tuple(at), rows), strict=True):
            code.line(acc.store(c, total, *at, zero, row))

    if writing.processor.is_serial:
        lanes = _SIDE_BY_SIDE if is_vector else 1
        each_point(writing, out.shape, some_rows, lanes=lanes, wide=is_wide(x, y, out), cost=k)
        return
    rows = prod(out.shape)
    groups = min(rows, writing.processor.units * SHARES)
    code.declare(f"LOCAL {acc.number} shared[{group}];")
    with code.block(f"for (i64 row = GROUP_ID; row < {rows}; row += {groups})"):
        indices = decoded(code, out.shape, "row", "i64")
        (total,) = totals_of_rows(indices[:-2], [indices[-1]])
        code.line(f"shared[LOCAL_ID] = {total};")
        code.line("BARRIER();")
        with code.block(f"for (i32 count = {group // 2}; count > 0; count /= 2)"):
            code.line("if (LOCAL_ID < count) shared[LOCAL_ID] += shared[LOCAL_ID + count];")
            code.line("BARRIER();")
        with code.block("if (LOCAL_ID == 0)"):
            code.line(acc.store(c, "shared[0]", *indices))
        code.line("BARRIER();")
    writing.launch(groups * group, group)


Places = Callable[[str], Sequence[str]]
"""Returns where the vectors of all operands lie that begin at a term, the common one first."""

_CHAINS = 4
"""The vectors that are added up side by side: each addition takes as many cycles."""

_SIDE_BY_SIDE = 2
"""The rows that are read side by side: memory hands out two streams faster than one."""


def _vector_sums(
    code: Code, acc: Accumulator, totals: Sequence[str], k: int, places: Places
) -> str:
    """Write the sums of products of vectors as far as they go, and return how far that is."""
    vector, step, rows = acc.type(VECTOR), VECTOR * _CHAINS, len(totals)
    whole = k // step * step
    code.line(f"{vector} c[{rows}][{_CHAINS}];")
    for row in range(rows):
        code.line(UNROLL)
        code.line(f"for (i32 v = 0; v < {_CHAINS}; v++) c[{row}][v] = ({vector})(0);")
    with code.block(f"for (i32 k = 0; k < {whole}; k += {step})"):
        code.line(UNROLL)
        with code.block(f"for (i32 v = 0; v < {_CHAINS}; v++)"):
            found = [
                acc.load_vector(VECTOR, place, acc.dtype) for place in places(f"k + v * {VECTOR}")
            ]
            common = code.define(f"const {vector}", "common", found[0])
            for row, other in enumerate(found[1:]):
                code.line(f"c[{row}][v] += {common} * {other};")
    for row, total in enumerate(totals):
        added = " + ".join(f"c[{row}][{v}]" for v in range(_CHAINS))
        name = code.define(f"const {vector}", "sums", added)
        code.line(f"{total} = {acc.total(name)};")
    return str(whole)


def _column_parts(batch: int, columns: int, k: int, processor: Processor) -> int:
    wanted = processor.units * processor.group * 2 // max(batch * columns, 1)
    return max(1, min(wanted, k // LEAST_TERMS))


def _column_bytes(batch: int, columns: int, k: int, acc: Accumulator, processor: Processor) -> int:
    parts = 1 if processor.is_serial else _column_parts(batch, columns, k, processor)
    return 0 if parts == 1 else parts * batch * columns * acc.dtype_of_sums.itemsize


def _columns(
    lowering: Lowering,
    x: TensorDescription,
    y: TensorDescription,
    out: TensorDescription,
    acc: Accumulator,
) -> None:
    """Write the product of a vector with columns, a work item each, or one for a part of a sum."""
    k = x.shape[-1]
    parts = _column_parts(prod(out.shape[:-1]), out.shape[-1], k, lowering.processor)
    into = out if parts == 1 else lowering.scratch((parts, *out.shape), acc.dtype_of_sums)
    writing = lowering.kernel("matvec")
    code, length = writing.code, -(-k // parts)
    a, b, c = (writing.array("x", x), writing.array("y", y), writing.array("out", into, True))

    def column(indices: tuple[str, ...], form: Form) -> None:
        part = indices[0] if parts > 1 else "0"
        *at, _, j = indices[1:] if parts > 1 else indices
        total = code.define(acc.number, "total", "0")
        first, last = f"{part} * {length}", f"({part} + 1) * {length}"
        with code.block(f"for (i32 k = {first}; k < {last} && k < {k}; k++)"):
            code.line(f"{total} += {acc.load(a, *at, '0', 'k')} * {acc.load(b, *at, 'k', j)};")
        code.line(acc.store(c, total, *indices))

    each_point(writing, into.shape, column, wide=is_wide(x, y, into))
    if parts > 1:
        add_parts(lowering, into, out, acc)
