"""Shared-memory tiles: matrix products on parallel devices, a tile of sums for a work group.

The group copies a slice of both operands to local memory; each work item accumulates a small block
of the tile in registers. Operands are loaded by functions, so that they need not be matrices in
memory (implicit GEMM). Where there are fewer tiles than compute units, the sums are split
(split-k), and another kernel adds the splits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.guards import smallest
from weft_c.loops.parallel import parallel_for, unravel_index
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.matmul.epilogues import Epilogue, StoreEpilogue
from weft_c.processor import Processor
from weft_c.source.code import UNROLL
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.products import SLICE, split_k, tile_shape
from weft_tiling.sharing import GROUPS_PER_UNIT

Index = tuple[str, ...]


@dataclass(frozen=True)
class MatmulOperands:
    """The operands of a batch of products of matrices [m, k] and [k, n].

    Attributes
    ----------
    batch, m, n, k
        The lengths.
    first, second
        Functions that return an element of an operand, given the indices in the batch and in its
        two dimensions, and write the statements that this needs.
    by_rows
        Whether each operand is contiguous along its second dimension.
    kind
        The C type of indices.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    first: Callable[[KernelBuilder, Index, str, str], str]
    second: Callable[[KernelBuilder, Index, str, str], str]
    by_rows: tuple[bool, bool]
    kind: str


def partial_bytes(
    batch: int, m: int, n: int, k: int, acc: Accumulator, processor: Processor
) -> int:
    """Return the bytes of scratch memory that `multiply_shared` needs."""
    splits = split_k(batch, m, n, k, processor)
    return 0 if splits == 1 else splits * batch * m * n * acc.sum_dtype.itemsize


def multiply_shared(
    lowering: Lowering, operands: MatmulOperands, epilogue: Epilogue, title: str
) -> None:
    """Write a product of the shape (batch..., m, n) with its epilogue."""
    f, acc = operands, epilogue.acc
    splits = split_k(prod(f.batch), f.m, f.n, f.k, lowering.processor)
    if splits == 1:
        _SharedTileKernel(lowering, f, epilogue, 1, title).write()
        return
    partial = lowering.scratch((splits, *f.batch, f.m, f.n), acc.sum_dtype)
    _SharedTileKernel(lowering, f, StoreEpilogue(partial, acc), splits, title).write()
    sum_splits(lowering, partial, epilogue)


def sum_splits(lowering: Lowering, partial: TensorDescription, epilogue: Epilogue) -> None:
    """Write the sum over the splits, the first dimension of `partial`, with an epilogue."""
    builder = epilogue.begin(lowering, "add_parts")
    source = builder.array("partial", partial)

    def add(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        total = builder.code.define(epilogue.acc.scalar_type, "total", "0")
        with builder.code.block(f"for (i32 part = 0; part < {partial.shape[0]}; part++)"):
            builder.code.line(f"{total} += {source.get('part', *indices)};")
        epilogue.write(builder, emitter, indices, total)

    parallel_for(builder, epilogue.shape, add, wide=is_wide(partial, *epilogue.tensors))


class _SharedTileKernel:
    """Builds the kernel of a product."""

    def __init__(
        self,
        lowering: Lowering,
        operands: MatmulOperands,
        epilogue: Epilogue,
        splits: int,
        title: str,
    ) -> None:
        self.builder = epilogue.begin(lowering, title)
        self.code, self.processor = self.builder.code, self.builder.processor
        self.operands, self.epilogue, self.splits = operands, epilogue, splits
        self.acc = epilogue.acc
        self.shape = tile_shape(operands.m, operands.n, self.processor)

    def write(self) -> None:
        """Write the loop over tiles."""
        code, f, shape = self.code, self.operands, self.shape
        down, across = -(-f.m // shape.rows), -(-f.n // shape.columns)
        grid = (self.splits, *f.batch, down, across)
        tiles = prod(grid)
        groups = smallest(tiles, self.processor.units * GROUPS_PER_UNIT)
        group = self.processor.group
        code.declare(f"LOCAL {self.acc.scalar_type} left[{SLICE}][{shape.rows + 1}];")
        code.declare(f"LOCAL {self.acc.scalar_type} right[{SLICE}][{shape.columns + 1}];")
        code.declare(f"const i32 down = LOCAL_ID / {shape.across};")
        code.declare(f"const i32 across = LOCAL_ID % {shape.across};")
        with code.block(f"for (i64 tile = GROUP_ID; tile < {tiles}; tile += {groups})"):
            part, *at, row, column = unravel_index(code, grid, "tile", "i64")
            code.line(f"const {f.kind} row0 = {row} * {shape.rows};")
            code.line(f"const {f.kind} column0 = {column} * {shape.columns};")
            length = -(-f.k // self.splits)
            code.line(f"const {f.kind} begin = {part} * {length};")
            bound = f"begin + {length}"
            code.line(f"const {f.kind} end = {bound} < {f.k} ? {bound} : {f.k};")
            self.tile(tuple(at), part)
        self.builder.launch(groups * group, group)

    def tile(self, at: Index, part: str) -> None:
        """Write one tile: accumulate slice by slice, and write the epilogue."""
        code, f, shape, block = self.code, self.operands, self.shape, self.shape.block
        code.line(f"{self.acc.scalar_type} c[{block}][{block}];")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {block}; r++)"):
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {block}; v++) c[r][v] = 0;")
        with code.block(f"for ({f.kind} k0 = begin; k0 < end; k0 += {SLICE})"):
            self.copy(at, "left", shape.rows, is_first=True)
            self.copy(at, "right", shape.columns, is_first=False)
            code.line("BARRIER();")
            self.multiply()
            code.line("BARRIER();")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {block}; r++)"):
            code.line(UNROLL)
            with code.block(f"for (i32 v = 0; v < {block}; v++)"):
                code.line(f"const {f.kind} i = row0 + down + r * {shape.down};")
                code.line(f"const {f.kind} j = column0 + across + v * {shape.across};")
                with code.block(f"if (i < {f.m} && j < {f.n})"):
                    indices = (*((part,) if self.splits > 1 else ()), *at, "i", "j")
                    self.epilogue.write(
                        self.builder, ValueEmitter(self.builder.code), indices, "c[r][v]"
                    )

    def copy(self, at: Index, name: str, length: int, is_first: bool) -> None:
        """Write the copy of a slice; neighboring work items read contiguous elements."""
        code, f, group = self.code, self.operands, self.processor.group
        by_rows = f.by_rows[0] if is_first else not f.by_rows[1]
        head = f"for (i32 e = LOCAL_ID; e < {SLICE * length}; e += {group})"
        with code.block(head):
            within, across = (f"e % {SLICE}", f"e / {SLICE}")
            if not by_rows:
                within, across = (f"e / {length}", f"e % {length}")
            code.line(f"const i32 term = {within}, other = {across};")
            origin, bound = ("row0", f.m) if is_first else ("column0", f.n)
            code.line(f"const {f.kind} k = k0 + term, o = {origin} + other;")
            code.line(f"{self.acc.scalar_type} found = 0;")
            with code.block(f"if (k < end && o < {bound})"):
                load, place = (f.first, ("o", "k")) if is_first else (f.second, ("k", "o"))
                code.line(f"found = {load(self.builder, at, *place)};")
            code.line(f"{name}[term][other] = found;")

    def multiply(self) -> None:
        """Write the update of a block of sums by a slice."""
        code, shape, block, number = self.code, self.shape, self.shape.block, self.acc.scalar_type
        with code.block(f"for (i32 term = 0; term < {SLICE}; term++)"):
            code.line(f"{number} a[{block}], b[{block}];")
            code.line(UNROLL)
            with code.block(f"for (i32 r = 0; r < {block}; r++)"):
                code.line(f"a[r] = left[term][down + r * {shape.down}];")
                code.line(f"b[r] = right[term][across + r * {shape.across}];")
            code.line(UNROLL)
            with code.block(f"for (i32 r = 0; r < {block}; r++)"):
                code.line(UNROLL)
                code.line(f"for (i32 v = 0; v < {block}; v++) c[r][v] += a[r] * b[v];")
