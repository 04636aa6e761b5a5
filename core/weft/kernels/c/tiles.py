"""Tiles: products of matrices on serial devices, a tile of sums in registers at a time.

A tile has a few rows and, along them, a few vectors. Each term of its sums takes a vector of the
second operand for each of its vectors, and a number of the first for each of its rows. The loops
around it keep a panel of the second operand in the nearest cache and rows of the first in the next,
as in K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from math import isqrt, prod

from weft.description import TensorDescription
from weft.kernels.c.accumulators import VECTOR, Accumulator
from weft.kernels.c.code import Code
from weft.kernels.c.loops import decoded, serial_items, share
from weft.kernels.c.lowering import Lowering, Writing, is_wide
from weft.kernels.c.packing import (
    least,
    pack_columns,
    pack_rows,
    packed_row,
)
from weft.kernels.c.processor import Processor

UNROLL = "#pragma unroll"

DEPTH = 256
"""The terms that are added up at a time: with two vectors for each they fit the nearest cache."""

ROWS = 256
"""The rows, of `DEPTH` terms, that fit the cache after the nearest."""

NEAR = 1 << 18
"""The bytes of a matrix that is read as it lies."""

FEW = 24
"""With fewer rows, or columns, copying the other operand takes longer than it saves."""

GRAIN = 32
"""How many multiplications count as one point of a loop."""

Part = tuple[str, "Tile", int, int]
"""What is computed of a panel: its number, a tile, and the first and the number of columns."""


@dataclass(frozen=True)
class Tile:
    """The sums in registers: rows, and vectors of lanes along each."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """The columns."""
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Blocking:
    """How a product of matrices [m, k] and [k, n] is cut.

    Attributes
    ----------
    tile
        What is kept in registers.
    depth
        The terms that are added up at a time.
    down, across
        In how many parts the rows, and the columns, are cut for work items.
    items
        The work items.
    """

    tile: Tile
    depth: int
    down: int
    across: int
    items: int
    m: int

    @property
    def rows(self) -> int:
        """The most rows of a part."""
        full = self.m // self.tile.rows
        return (-(-full // self.down) + 1) * self.tile.rows


def blocking(
    batch: int, m: int, k: int, n: int, acc: Accumulator, processor: Processor
) -> Blocking:
    """Return how a product is cut."""
    tile = _best_tile(m, n, acc)
    depth = min(DEPTH, k) if acc.is_plain else k
    items = serial_items(batch * m * n * k // GRAIN, processor)
    wanted = -(-items // batch)
    rows, panels = max(m // tile.rows, 1), max(n // tile.width, 1)
    across = min(max(isqrt(wanted * n // m), 1), panels, wanted)
    at_most = max(ROWS * DEPTH // max(depth, 1), tile.rows)
    down = min(max(-(-wanted // across), -(-m // at_most)), rows)
    return Blocking(tile, depth, down, across, min(batch * down * across, items), m)


def _best_tile(m: int, n: int, acc: Accumulator) -> Tile:
    if acc.lanes == 1:
        return Tile(_even(m, 4), 8 if n > 4 else 4, 1)
    if m == 1:
        return Tile(1, 8, VECTOR)
    return Tile(_even(m, 12), 2 if n > VECTOR else 1, VECTOR)


def _even(length: int, most: int) -> int:
    """Return the least number that needs no more steps than the most does."""
    return -(-length // -(-length // most))


def tiles_bytes(batch: int, m: int, k: int, n: int, acc: Accumulator, processor: Processor) -> int:
    """Return how many bytes of scratch memory `multiply_tiles` needs at most."""
    size = 0
    for rows in {(batch, m), (1, batch * m)}:
        cut = blocking(*rows, k, n, acc, processor)
        size = max(size, cut.items * cut.depth * (cut.rows + cut.tile.width))
    return size * acc.dtype_of_sums.itemsize + 512


def multiply_tiles(
    lowering: Lowering,
    x: TensorDescription,
    y: TensorDescription,
    out: TensorDescription,
    acc: Accumulator,
) -> None:
    """Write the product of matrices [..., m, k] and [..., k, n] of equal leading dimensions."""
    _Tiling(lowering, x, y, out, acc).write()


class _Tiling(Writing):
    """The kernel that multiplies."""

    def __init__(
        self,
        lowering: Lowering,
        x: TensorDescription,
        y: TensorDescription,
        out: TensorDescription,
        acc: Accumulator,
    ) -> None:
        super().__init__(lowering, "matmul")
        self.acc = acc
        self.a, self.b = self.array("x", x), self.array("y", y)
        self.out = self.array("out", out, written=True)
        *self.batch, self.m, self.n = out.shape
        self.k = x.shape[-1]
        self.cut = blocking(prod(self.batch), self.m, self.k, self.n, acc, self.processor)
        self.tile = self.cut.tile
        self.kind = "i64" if is_wide(x, y, out) else "i32"
        self.panel = self._scratch("columns", self.tile.width) if self._packs_columns() else ""
        self.rows = self._scratch("rows", self.cut.rows) if self._packs_rows() else ""

    def _packs_columns(self) -> bool:
        if self.b.strides[-1] != 1 or not self.acc.is_plain:
            return True
        is_near = prod(self.b.lies.shape[-2:]) * self.b.dtype.itemsize <= NEAR
        return not (self.m < FEW or (is_near and self.n % VECTOR == 0))

    def _packs_rows(self) -> bool:
        is_near = prod(self.a.lies.shape[-2:]) * self.a.dtype.itemsize <= NEAR
        return self.n >= FEW and not (is_near and self.acc.is_plain)

    def _scratch(self, hint: str, rows: int) -> str:
        shape = (self.cut.items, rows * self.cut.depth)
        place = self.array(hint, self.lowering.scratch(shape, self.acc.dtype_of_sums), True)
        pointer = f"GLOBAL {self.acc.number} *const"
        return self.code.define(pointer, hint, place.at("(i32)GLOBAL_ID", "0"))

    def write(self) -> None:
        """Write the loops over parts of the result, blocks of terms, panels and tiles."""
        code, cut = self.code, self.cut
        grid = (cut.down, cut.across)
        begin, end = share(code, prod(self.batch) * prod(grid), cut.items, self.kind)
        with ExitStack() as stack:
            task = code.name("task")
            head = f"for ({self.kind} {task} = {begin}; {task} < {end}; {task}++)"
            stack.enter_context(code.block(head))
            *at, down, across = decoded(code, (*self.batch, *grid), task, self.kind)
            rows = self.part_of_rows(down)
            terms = stack.enter_context(_blocks(code, self.k, cut.depth))
            if self.rows:
                target = (self.rows, cut.depth, self.tile.rows)
                bounds = (rows[0], rows[2])
                pack_rows(code, self.acc, self.a, tuple(at), bounds, terms, target)
            self.panels(tuple(at), across, rows, terms)
        self.launch(cut.items)

    def part_of_rows(self, down: str) -> tuple[str, str, str]:
        """Write the first row of a part, the end of its whole tiles, and the end of its rows."""
        code, tile, parts = self.code, self.tile.rows, self.cut.down
        full = self.m // tile
        first = code.define("const i32", "first", f"(i32)({down} * {full} / {parts} * {tile})")
        end = f"(i32)(({down} + 1) * {full} / {parts} * {tile})"
        last = code.define("const i32", "last", end)
        if self.m % tile == 0:
            return first, last, last
        rows = f"{down} == {parts - 1} ? {self.m} : {last}"
        return first, last, code.define("const i32", "rows", rows)

    def panels(
        self, at: tuple[str, ...], across: str, rows: tuple[str, str, str], terms: tuple[str, str]
    ) -> None:
        """Write the loop over whole panels, and what is right of them."""
        code, tile, parts = self.code, self.tile, self.cut.across
        full, rest = divmod(self.n, tile.width)
        if full:
            panel = code.name("panel")
            first, last = f"{across} * {full} / {parts}", f"({across} + 1) * {full} / {parts}"
            with code.block(f"for (i32 {panel} = {first}; {panel} < {last}; {panel}++)"):
                self.column(at, rows, terms, (panel, tile, 0, tile.width))
        if not rest:
            return
        with _part(code, f"{across} == {parts - 1}", parts):
            vectors = -(-rest // tile.lanes) if self.panel else rest // tile.lanes
            if vectors:
                part = Tile(tile.rows, vectors, tile.lanes)
                self.column(at, rows, terms, (str(full), part, 0, min(rest, part.width)))
            left = rest - vectors * tile.lanes
            if left > 0:
                single = Tile(tile.rows, left, 1)
                self.column(at, rows, terms, (str(full), single, vectors * tile.lanes, left))

    def column(
        self, at: tuple[str, ...], rows: tuple[str, str, str], terms: tuple[str, str], part: Part
    ) -> None:
        """Write the loop over the tiles of a panel, and the tile of the rows that are left."""
        code, tile = self.code, self.tile
        if self.panel:
            columns = (f"{part[0]} * {tile.width}", part[3])
            target = (self.panel, part[1].width)
            pack_columns(code, self.acc, self.b, at, terms, columns, target)
        if self.m >= tile.rows:
            i = code.name("i")
            with code.block(f"for (i32 {i} = {rows[0]}; {i} < {rows[1]}; {i} += {tile.rows})"):
                self.sums(at, (i, tile.rows, rows[0]), terms, part)
        if self.m % tile.rows:
            with _part(code, f"{rows[1]} < {rows[2]}", self.cut.down):
                self.sums(at, (rows[1], self.m % tile.rows, rows[0]), terms, part)

    def sums(
        self, at: tuple[str, ...], rows: tuple[str, int, str], terms: tuple[str, str], part: Part
    ) -> None:
        """Write one tile: add terms up, and put the sums where they belong."""
        code, acc = self.code, self.acc
        i, count, _ = rows
        number, tile, offset, width = part
        vector = acc.type(tile.lanes)
        code.line(f"{vector} c[{count}][{tile.vectors}];")
        self.each_sum(count, tile, f"c[r][v] = ({vector})(0);")
        with code.block(f"for (i32 k = {terms[0]}; k < {terms[1]}; k++)"):
            self.term(at, rows, terms[0], part)
        if width < tile.width or not (acc.is_plain or tile.lanes == 1):
            self.store_singly(at, rows, terms[0], part)
            return
        column = f"{number} * {self.tile.width} + {offset} + v * {tile.lanes}"
        place = self.out.at(*at, f"{i} + r", column)
        if self.k > self.cut.depth:
            old = acc.load_vector(tile.lanes, place, self.out.dtype)
            self.each_sum(count, tile, f"if ({terms[0]}) c[r][v] += {old};")
        store = acc.store_vector(tile.lanes, place, "c[r][v]", self.out.dtype)
        self.each_sum(count, tile, store)

    def term(self, at: tuple[str, ...], rows: tuple[str, int, str], first: str, part: Part) -> None:
        """Write one term of all sums of a tile."""
        code, acc = self.code, self.acc
        i, count, begin = rows
        _, tile, _, _ = part
        code.line(f"{acc.type(tile.lanes)} b[{tile.vectors}];")
        code.line(UNROLL)
        found = self.vector(at, first, part)
        code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) b[v] = {found};")
        if self.rows:
            target = (self.rows, self.cut.depth, self.tile.rows)
            value = packed_row(self.a, f"({i} - {begin})", first, "k", target)
        else:
            value = acc.load(self.a, *at, f"{i} + r", "k")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {count}; r++)"):
            code.line(f"const {acc.number} a = {value};")
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) c[r][v] += a * b[v];")

    def vector(self, at: tuple[str, ...], first: str, part: Part) -> str:
        """Return a vector of the second operand."""
        number, tile, offset, _ = part
        if self.panel:
            place = f"{self.panel} + (k - {first}) * {tile.width} + v * {tile.lanes}"
            return self.acc.load_vector(tile.lanes, place, self.acc.dtype_of_sums)
        column = f"{number} * {self.tile.width} + {offset} + v * {tile.lanes}"
        return self.acc.load_vector(tile.lanes, self.b.at(*at, "k", column), self.b.dtype)

    def each_sum(self, rows: int, tile: Tile, statement: str) -> None:
        """Write a statement for every vector of sums."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {rows}; r++)"):
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) {statement}")

    def store_singly(
        self, at: tuple[str, ...], rows: tuple[str, int, str], first: str, part: Part
    ) -> None:
        """Write how sums are put back one by one: they need conversion, or are too many."""
        code, acc = self.code, self.acc
        i, count, _ = rows
        number, tile, offset, width = part
        code.line(f"{acc.number} line[{tile.width}];")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {count}; r++)"):
            code.line(UNROLL)
            place = f"line + v * {tile.lanes}"
            store = f"vstore{tile.lanes}(c[r][v], 0, {place})" if tile.lanes > 1 else ""
            statement = store or "line[v] = c[r][v]"
            code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) {statement};")
            with code.block(f"for (i32 j = 0; j < {width}; j++)"):
                indices = (*at, f"{i} + r", f"{number} * {self.tile.width} + {offset} + j")
                if self.k > self.cut.depth:
                    code.line(f"if ({first}) line[j] += {acc.load(self.out, *indices)};")
                code.line(acc.store(self.out, "line[j]", *indices))


def _part(code: Code, condition: str, parts: int) -> AbstractContextManager[None]:
    """Open a block for one part of several, or a plain one if it is the only one."""
    return code.block(f"if ({condition})" if parts > 1 else "")


@contextmanager
def _blocks(code: Code, k: int, depth: int) -> Iterator[tuple[str, str]]:
    """Open a loop over blocks of terms, if there are several; gives the first term and the end."""
    if k <= depth:
        yield "0", str(k)
        return
    first = code.name("k")
    with code.block(f"for (i32 {first} = 0; {first} < {k}; {first} += {depth})"):
        yield first, code.define("const i32", "end", least(f"{first} + {depth}", str(k)))
