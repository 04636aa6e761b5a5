"""Register tiles: matrix products on serial devices with a tile of sums in registers.

A tile has a few rows, and a few vectors along each. Each term of its sums loads a vector of the
second operand for each of its vectors, and a scalar of the first for each of its rows. The loops
around it keep a panel of the second operand in the first-level cache and rows of the first operand
in the second-level cache, as in K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.guards import is_multiple
from weft_c.loops.parallel import part_bounds, unravel_index, work_item_bounds
from weft_c.lowering import Array, Lowering
from weft_c.matmul.blocking import MAX_UNPACKED_BYTES, MIN_PACKED_ROWS, blocking, packs_rows
from weft_c.matmul.epilogues import Epilogue
from weft_c.matmul.packing import LoopBounds, RowTiles, minimum, pack_columns, pack_tile
from weft_c.matmul.prologues import Prologue, reader
from weft_c.source.code import ROLLED, UNROLL, Address
from weft_c.source.functions import ctype
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.counters import needs_wide_counter


@dataclass(frozen=True)
class Panel:
    """A panel of columns of the second operand, as wide as a tile.

    Attributes
    ----------
    first
        The first column.
    span
        The bounds, relative to the first column, of the columns that no other panel has stored.
    terms
        The bounds of the terms.
    pointer, dtype
        The address of the first term's elements, and their dtype.
    pitch, step
        The strides of terms and of columns, in elements.
    """

    first: str
    span: tuple[str, str]
    terms: LoopBounds
    pointer: str
    dtype: DType
    pitch: int
    step: int


def multiply_tiles(
    lowering: Lowering,
    x: TensorDescription,
    y: TensorDescription,
    epilogue: Epilogue,
    prologue: Prologue | None,
    title: str,
    is_packed: bool = False,
) -> None:
    """Write the product of matrices [..., m, k] and [..., k, n] of equal batch dimensions.

    If it `is_packed`, the second operand is the panels of one matrix.
    """
    RegisterTileKernel(lowering, x, y, epilogue, prologue, title, is_packed).write()


class RegisterTileKernel:
    """Builds the kernel of a product."""

    def __init__(
        self,
        lowering: Lowering,
        x: TensorDescription,
        y: TensorDescription,
        epilogue: Epilogue,
        prologue: Prologue | None,
        title: str,
        is_packed: bool,
    ) -> None:
        self.lowering, self.epilogue, self.is_packed = lowering, epilogue, is_packed
        self.builder = epilogue.begin(lowering, title)
        self.code, self.processor = self.builder.code, self.builder.processor
        self.acc = acc = epilogue.acc
        acc.declare_vectors(self.code)
        self.a, self.b = reader(acc, self.builder, x, prologue), self.builder.array("y", y)
        *self.batch, self.m, self.n = epilogue.shape
        self.k = x.shape[-1]
        lengths = prod(self.batch), self.m, self.k, self.n
        is_stored = epilogue.target is not None
        lanes = acc.lanes if self.m > 1 or self._has_vectors() else 1
        panel = y.shape[-1] if is_packed else 0
        self.cut = blocking(lengths, acc, self.processor, is_stored, lanes, panel)
        self.tile = self.cut.tile
        depth, width = self.cut.depth, self.tile.width
        is_deep = needs_wide_counter(depth * max(width, self.cut.rows))
        read = (x,) if prologue is None else prologue.nest.tensors
        self.kind = index_type(is_deep or is_wide(*read, y, *epilogue.tensors))
        self.packs_columns = self._packs_columns()
        self.panel = self._scratch("columns", width * depth) if self.packs_columns else ""
        self.packed: RowTiles | None = None
        if prologue or packs_rows(self.m, self.k, self.n, acc, panel):
            pointer = self._scratch("rows", self.cut.rows * depth)
            self.packed = RowTiles(pointer, depth, self.tile.rows)
        has_rest = not (is_multiple(self.m, self.tile.rows) and is_multiple(self.n, width))
        self.in_vectors = epilogue.takes_vectors(self.builder)
        # The epilogue is written once for a tile, not for each of its vectors.
        fits = is_stored and self.in_vectors and not has_rest and self.k <= depth
        self.spilled_sums = "" if fits else self._scratch("spilled", self.tile.rows * width)
        self.partial_sums = self._partial_sum_array() if self.k > depth else None

    def _has_vectors(self) -> bool:
        """Whether vectors of columns are in memory, just as they are multiplied."""
        return self.b.strides[-1] == 1 and self.acc.is_plain

    def _packs_columns(self) -> bool:
        """Whether panels of columns are packed here: not for one row, which reads them once."""
        if self.m == 1 or self.is_packed:
            return False
        if self.n < self.tile.width or not self._has_vectors():
            return True
        is_near = prod(self.b.layout.shape[-2:]) * self.b.dtype.itemsize <= MAX_UNPACKED_BYTES
        return self.m >= MIN_PACKED_ROWS and not is_near

    def _scratch(self, hint: str, elements: int) -> str:
        shape = (self.cut.items, elements)
        layout = self.lowering.scratch(shape, self.acc.sum_dtype)
        array = self.builder.array(hint, layout, written=True)
        pointer = f"GLOBAL {self.acc.scalar_type} *const"
        return self.code.define(pointer, hint, array.at("GLOBAL_ID", "0"))

    def _partial_sum_array(self) -> Array:
        """Return the array of partial sums between blocks of terms: the target if it is stored."""
        layout = self.epilogue.target
        if layout is None:
            layout = self.lowering.scratch(self.epilogue.shape, self.acc.sum_dtype)
        return self.builder.array("partial", layout, written=True)

    def write(self) -> None:
        """Write the loops over parts of the result, blocks of terms, panels and tiles."""
        code, cut = self.code, self.cut
        grid = (cut.down, cut.across)
        begin, end = work_item_bounds(code, prod(self.batch) * prod(grid), cut.items, self.kind)
        with ExitStack() as stack:
            task = code.name("task")
            head = f"for ({self.kind} {task} = {begin}; {task} < {end}; {task}++)"
            stack.enter_context(code.block(head))
            *at, down, across = unravel_index(code, (*self.batch, *grid), task, self.kind)
            tiles = self.part(cut.tiles, down, cut.down)
            terms = stack.enter_context(self.blocks())
            if self.packed:
                with self.each_tile(tiles) as (tile, i):
                    tile_number = f"({tile} - {tiles[0]})"
                    pack_tile(code, self.acc, self.a, (*at, i), terms, tile_number, self.packed)
            panels = self.part(-(-self.n // self.tile.width), across, cut.across)
            first, last = panels
            with code.block(f"for ({self.kind} panel = {first}; panel < {last}; panel++)"):
                panel = self.columns(tuple(at), terms)
                with self.each_tile(tiles) as (tile, i):
                    self.sums(tuple(at), (tile, tiles[0], i), panel)
        self.builder.launch(cut.items)

    def part(self, count: int, number: str, parts: int) -> tuple[str, str]:
        """Write the bounds of part `number` of `count` iterations."""
        return part_bounds(self.code, count, f"(i64){number}", str(parts), self.kind)

    @contextmanager
    def blocks(self) -> Iterator[LoopBounds]:
        """Open a loop over blocks of terms if there are several; yields the bounds of a block."""
        k, depth, kind, code = self.k, self.cut.depth, self.kind, self.code
        if k <= depth:
            yield LoopBounds("0", str(k), kind)
            return
        first = code.name("k")
        with code.block(f"for ({kind} {first} = 0; {first} < {k}; {first} += {depth})"):
            end = minimum(f"{first} + {depth}", str(k))
            yield LoopBounds(first, code.define(f"const {kind}", "end", end), kind)

    @contextmanager
    def each_tile(self, tiles: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Open a loop over tiles of rows; yields the index and the first row of a tile."""
        code, tile = self.code, self.code.name("tile")
        head = f"for ({self.kind} {tile} = {tiles[0]}; {tile} < {tiles[1]}; {tile}++)"
        with code.block(head):
            start, rows = f"{tile} * {self.tile.rows}", self.tile.rows
            if not is_multiple(self.m, rows):
                start = minimum(start, str(self.m - rows))
            yield tile, code.define(f"const {self.kind}", "i", start)

    def columns(self, at: tuple[str, ...], terms: LoopBounds) -> Panel:
        """Write the address of a panel, packed and zero-padded or in place.

        In place, the last panel overlaps its predecessor.
        """
        code, width, acc, b = self.code, self.tile.width, self.acc, self.b
        start, rest = f"panel * {width}", not is_multiple(self.n, width)
        if self.is_packed:
            first = code.define(f"const {self.kind}", "column", start)
            end = minimum(str(width), f"{self.n} - {first}") if rest else str(width)
            packed = b.at("0", "panel", terms.first, "0")
            pointer = code.define(f"GLOBAL const {ctype(b.dtype)} *", "b", packed)
            return Panel(first, ("0", end), terms, pointer, b.dtype, width, 1)
        overlaps = rest and not self.packs_columns
        first_column = minimum(start, str(self.n - width)) if overlaps else start
        first = code.define(f"const {self.kind}", "column", first_column)
        if self.packs_columns:
            count = str(width)
            if rest:
                kind, left = f"const {self.kind}", f"{self.n} - {first}"
                count = code.define(kind, "count", minimum(count, left))
            self.pack_columns(at, terms, (first, count))
            return Panel(first, ("0", count), terms, self.panel, acc.sum_dtype, width, 1)
        known = "0"
        if overlaps:
            known = code.define(f"const {self.kind}", "known", f"{start} - {first}")
        pointer = f"GLOBAL const {ctype(b.dtype)} *"
        there = code.define(pointer, "b", b.at(*at, terms.first, first))
        pitch, step = b.strides[-2:]
        return Panel(first, (known, str(width)), terms, there, b.dtype, pitch, step)

    def pack_columns(
        self, at: tuple[str, ...], terms: LoopBounds, columns: tuple[str, str]
    ) -> None:
        """Write the packing of a block of terms of some columns, the first and their number."""
        panel = self.panel, self.tile.width
        pack_columns(self.code, self.acc, self.b, at, terms, columns, panel)

    def sums(self, at: tuple[str, ...], tile: tuple[str, str, str], panel: Panel) -> None:
        """Write one tile: accumulate the terms, and process the sums."""
        code, acc = self.code, self.acc
        number, _, i = tile
        vector = acc.type(self.tile.lanes)
        code.line(f"{vector} c[{self.tile.rows}][{self.tile.vectors}];")
        with self.each_sum():
            code.line(f"c[r][v] = {acc.zero(self.tile.lanes)};")
        head = f"for ({self.kind} k = {panel.terms.first}; k < {panel.terms.end}; k++)"
        with code.block(head):
            self.term(at, tile, panel)
        self.store(at, (number, i), panel)

    def term(self, at: tuple[str, ...], tile: tuple[str, str, str], panel: Panel) -> None:
        """Write the update of all sums of a tile by one term."""
        code, acc = self.code, self.acc
        number, first, i = tile
        lanes, vectors = self.tile.lanes, self.tile.vectors
        code.line(f"{acc.type(lanes)} b[{vectors}];")
        code.line(UNROLL)
        term = f"(k - {panel.terms.first})"
        address = Address(panel.pointer, f"{term} * {panel.pitch} + v * {lanes * panel.step}")
        vector = acc.load_vector(code, lanes, address, panel.dtype)
        code.line(f"for ({self.kind} v = 0; v < {vectors}; v++) b[v] = {vector};")
        if self.packed:
            value = f"*({self.packed.place(self.a, f'({number} - {first})', 'r', term)})"
        else:
            value = self.a.load(*at, f"{i} + r", "k")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {self.tile.rows}; r++)"):
            code.line(f"const {acc.scalar_type} a = {value};")
            code.line(UNROLL)
            added = acc.add_product("c[r][v]", "a", "b[v]")
            code.line(f"for (i32 v = 0; v < {vectors}; v++) {added}")

    @contextmanager
    def each_sum(self) -> Iterator[None]:
        """Open loops over the vectors of sums, ``c[r][v]``."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {self.tile.rows}; r++)"):
            code.line(UNROLL)
            with code.block(f"for (i32 v = 0; v < {self.tile.vectors}; v++)"):
                yield

    def store(self, at: tuple[str, ...], tile: tuple[str, str], panel: Panel) -> None:
        """Write the epilogue of a tile's sums, spilled to memory first unless all are stored."""
        code, acc, lanes = self.code, self.acc, self.tile.lanes
        number, i = tile
        if not self.spilled_sums:
            with self.each_sum():
                indices = (*at, f"{i} + r", f"{panel.first} + v * {lanes}")
                self.epilogue.write(
                    self.builder, ValueEmitter(self.code, lanes), indices, "c[r][v]"
                )
            return
        with self.each_sum():
            address = Address(self.spilled_sums, f"r * {self.tile.width} + v * {lanes}")
            code.line(acc.store_vector(code, lanes, address, "c[r][v]", acc.sum_dtype))
        kind = f"const {self.kind}"
        known = code.define(kind, "known", f"{number} * {self.tile.rows} - {i}")
        begin, end = panel.span
        is_vector = self.in_vectors and 1 < lanes <= self.n
        if is_vector:
            whole = f"{begin} + ({end} - {begin}) / {lanes} * {lanes}"
            whole = code.define(kind, "whole", whole)
            self.write_columns(
                ValueEmitter(self.code, lanes), (*at, i), known, (begin, whole), panel
            )
            begin = whole
        if not is_vector or not is_multiple(self.n, lanes):
            self.write_columns(ValueEmitter(self.code), (*at, i), known, (begin, end), panel)

    def write_columns(
        self,
        emitter: ValueEmitter,
        first: tuple[str, ...],
        known: str,
        span: tuple[str, str],
        panel: Panel,
    ) -> None:
        """Write the epilogue of spilled sums in a range of columns.

        Rows before `known` overlap the previous tile, and are skipped. The inner loop is along a
        column, in which column-wise operands are loop-invariant.
        """
        code, (*at, i) = self.code, first
        code.line(ROLLED)
        with code.block(f"for ({self.kind} j = {span[0]}; j < {span[1]}; j += {emitter.lanes})"):
            code.line(ROLLED)
            with code.block(f"for ({self.kind} r = {known}; r < {self.tile.rows}; r++)"):
                sums = Address(self.spilled_sums, f"r * {self.tile.width} + j")
                self.finish(emitter, (*at, f"{i} + r", f"{panel.first} + j"), sums, panel)

    def finish(
        self, emitter: ValueEmitter, indices: tuple[str, ...], sums: Address, panel: Panel
    ) -> None:
        """Write the epilogue of a sum; sums of all but the last block of terms are kept."""
        code, acc, lanes = self.code, self.acc, emitter.lanes
        vector = acc.load_vector(code, lanes, sums, acc.sum_dtype)
        total = code.define(acc.type(lanes), "total", vector)
        if self.partial_sums is not None:
            first, end, _ = panel.terms
            address, dtype = self.partial_sums.at(*indices), self.partial_sums.dtype
            code.line(f"if ({first}) {total} += {acc.load_vector(code, lanes, address, dtype)};")
            if self.epilogue.target is None:
                with code.block(f"if ({end} < {self.k})"):
                    code.line(acc.store_vector(code, lanes, address, total, dtype))
                    code.line("continue;")
        self.epilogue.write(self.builder, emitter, indices, total)
