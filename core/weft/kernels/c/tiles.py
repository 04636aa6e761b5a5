"""Tiles: products of matrices on serial devices, a tile of sums in registers at a time.

A tile has a few rows and, along them, a few vectors. Each term of its sums takes a vector of the
second operand for each of its vectors, and a number of the first for each of its rows. The loops
around it keep a panel of the second operand in the nearest cache and rows of the first in the next,
as in K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import isqrt, prod

from weft.description import TensorDescription
from weft.kernels.c.accumulators import VECTOR, Accumulator
from weft.kernels.c.code import Code
from weft.kernels.c.loops import decoded, serial_items, share
from weft.kernels.c.lowering import Lowering, Writing, is_wide
from weft.kernels.c.packing import ROLLED, UNROLL, RowTiles, least, pack_columns, pack_tile
from weft.kernels.c.processor import Processor

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

VECTOR_GRAIN = 4
"""The same for the product with a vector, which takes as long as reading the matrix."""

LEAST_ROWS, MOST_ROWS = 4, 12
"""The rows of a tile that hide how long an addition takes, and those that registers hold.

Small products take few, whose text compiles sooner.
"""

SMALL = 64**3
"""The multiplications up to which one work item makes a product: a launch takes as long."""


@dataclass(frozen=True)
class Panel:
    """Columns as wide as a tile.

    Attributes
    ----------
    first, count
        The first column, and how many are columns of the result.
    terms
        The first term that is added up, and the end.
    pointer, pitch
        Where the first term's elements are, and the distance of terms.
    """

    first: str
    count: str
    terms: tuple[str, str]
    pointer: str
    pitch: int | str


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
        return -(-self.tiles // self.down) * self.tile.rows

    @property
    def tiles(self) -> int:
        """The tiles from the first row to the last, which may overlap the one before."""
        return -(-self.m // self.tile.rows)


def blocking(
    batch: int, m: int, k: int, n: int, acc: Accumulator, processor: Processor
) -> Blocking:
    """Return how a product is cut."""
    work = batch * m * n * k
    tile = _best_tile(m, n, acc, LEAST_ROWS if work <= SMALL else MOST_ROWS)
    depth = min(DEPTH, k) if acc.is_plain else k
    if m == 1:
        items = serial_items(work // VECTOR_GRAIN, processor)
    else:
        items = 1 if work <= SMALL else serial_items(work // GRAIN, processor)
    wanted = -(-items // batch)
    rows, panels = -(-m // tile.rows), -(-n // tile.width)
    across = min(max(isqrt(wanted * n // m), 1), panels, wanted)
    at_most = max(ROWS * DEPTH // max(depth, 1), tile.rows)
    down = min(max(-(-wanted // across), -(-m // at_most)), rows)
    return Blocking(tile, depth, down, across, min(batch * down * across, items), m)


def _best_tile(m: int, n: int, acc: Accumulator, rows: int) -> Tile:
    if acc.lanes == 1:
        return Tile(_even(m, 4), 8 if n > 4 else 4, 1)
    if m == 1:
        return Tile(1, min(8, -(-n // VECTOR)), VECTOR)
    return Tile(_even(m, rows), 2 if n > VECTOR else 1, VECTOR)


def _even(length: int, most: int) -> int:
    """Return the least number that needs no more steps than the most does."""
    return -(-length // -(-length // most))


def tiles_bytes(batch: int, m: int, k: int, n: int, acc: Accumulator, processor: Processor) -> int:
    """Return how many bytes of scratch memory `multiply_tiles` needs at most."""
    size = 0
    for rows in {(batch, m), (1, batch * m)}:
        cut = blocking(*rows, k, n, acc, processor)
        tile, depth = cut.tile, cut.depth
        elements = depth * (cut.rows + tile.width) + tile.rows * tile.width
        size = max(size, cut.items * elements)
    return size * acc.dtype_of_sums.itemsize + 768


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
        acc.declare_vectors(self.code)
        self.a, self.b = self.array("x", x), self.array("y", y)
        self.out = self.array("out", out, written=True)
        *self.batch, self.m, self.n = out.shape
        self.k = x.shape[-1]
        self.cut = blocking(prod(self.batch), self.m, self.k, self.n, acc, self.processor)
        self.tile = self.cut.tile
        self.kind = "i64" if is_wide(x, y, out) else "i32"
        self.packs_columns = self._packs_columns()
        has_panel = self.packs_columns or self.n % self.tile.width
        depth, width = self.cut.depth, self.tile.width
        self.panel = self._scratch("columns", width * depth) if has_panel else ""
        self.packed: RowTiles | None = None
        if self._packs_rows():
            pointer = self._scratch("rows", self.cut.rows * depth)
            self.packed = RowTiles(pointer, depth, self.tile.rows)
        has_rest = self.m % self.tile.rows or self.n % width
        is_plain = acc.is_plain and self.out.strides[-1] == 1
        fits = is_plain and not has_rest and self.k <= depth
        self.aside = "" if fits else self._scratch("aside", self.tile.rows * width)

    def _packs_columns(self) -> bool:
        if self.b.strides[-1] != 1 or not self.acc.is_plain:
            return True
        is_near = prod(self.b.lies.shape[-2:]) * self.b.dtype.itemsize <= NEAR
        return self.m >= FEW and not is_near

    def _packs_rows(self) -> bool:
        is_near = prod(self.a.lies.shape[-2:]) * self.a.dtype.itemsize <= NEAR
        return self.n >= FEW and not (is_near and self.acc.is_plain)

    def _scratch(self, hint: str, elements: int) -> str:
        shape = (self.cut.items, elements)
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
            tiles = self.part(down, cut.tiles, cut.down)
            terms = stack.enter_context(_blocks(code, self.k, cut.depth))
            if self.packed:
                with self.each_tile(tiles) as (tile, i):
                    place = f"({tile} - {tiles[0]})"
                    pack_tile(code, self.acc, self.a, (*at, i), terms, place, self.packed)
            panels = self.part(across, -(-self.n // self.tile.width), cut.across)
            with code.block(f"for (i32 panel = {panels[0]}; panel < {panels[1]}; panel++)"):
                panel = self.columns(tuple(at), terms)
                with self.each_tile(tiles) as (tile, i):
                    self.sums(tuple(at), (tile, tiles[0], i), panel)
        self.launch(cut.items)

    def part(self, number: str, count: int, parts: int) -> tuple[str, str]:
        """Write the first of a part of so many things, and the end."""
        if parts == 1:
            return "0", str(count)
        first = self.code.define("const i32", "first", f"(i32)({number} * {count} / {parts})")
        end = f"(i32)(({number} + 1) * {count} / {parts})"
        return first, self.code.define("const i32", "end", end)

    @contextmanager
    def each_tile(self, tiles: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """Open a loop over tiles of rows; gives the number and the first row of one."""
        code, tile = self.code, self.code.name("tile")
        with code.block(f"for (i32 {tile} = {tiles[0]}; {tile} < {tiles[1]}; {tile}++)"):
            start, rows = f"{tile} * {self.tile.rows}", self.tile.rows
            if self.m % rows:
                start = least(start, str(self.m - rows))
            yield tile, code.define("const i32", "i", start)

    def columns(self, at: tuple[str, ...], terms: tuple[str, str]) -> Panel:
        """Write where the columns of a panel are: packed, or as they lie if all of it is there."""
        code, width, acc = self.code, self.tile.width, self.acc
        first = code.define("const i32", "column", f"panel * {width}")
        count = str(width)
        if self.n % width:
            count = code.define("const i32", "count", least(count, f"{self.n} - {first}"))
        target, pitch = (self.panel, width), self.b.strides[-2]
        if self.packs_columns:
            pack_columns(code, acc, self.b, at, terms, (first, count), target)
            return Panel(first, count, terms, self.panel, width)
        pointer = f"GLOBAL const {acc.number} *"
        there = f"({pointer})({self.b.at(*at, terms[0], first)})"
        if count == str(width):
            return Panel(first, count, terms, code.define(pointer, "b", there), pitch)
        there = code.define(pointer, "b", there)
        name = code.define("i32", "pitch", str(pitch))
        with code.block(f"if ({count} < {width})"):
            pack_columns(code, acc, self.b, at, terms, (first, count), target)
            code.line(f"{there} = {self.panel};")
            code.line(f"{name} = {width};")
        return Panel(first, count, terms, there, name)

    def sums(self, at: tuple[str, ...], tile: tuple[str, str, str], panel: Panel) -> None:
        """Write one tile: add terms up, and put the sums where they belong."""
        code, acc = self.code, self.acc
        number, _, i = tile
        vector = acc.type(self.tile.lanes)
        code.line(f"{vector} c[{self.tile.rows}][{self.tile.vectors}];")
        self.each_sum(f"c[r][v] = ({vector})(0);")
        with code.block(f"for (i32 k = {panel.terms[0]}; k < {panel.terms[1]}; k++)"):
            self.term(at, tile, panel)
        self.store(at, (number, i), panel)

    def term(self, at: tuple[str, ...], tile: tuple[str, str, str], panel: Panel) -> None:
        """Write one term of all sums of a tile."""
        code, acc = self.code, self.acc
        number, first, i = tile
        lanes, vectors = self.tile.lanes, self.tile.vectors
        code.line(f"{acc.type(lanes)} b[{vectors}];")
        code.line(UNROLL)
        term = f"(k - {panel.terms[0]})"
        place = f"{panel.pointer} + {term} * {panel.pitch} + v * {lanes}"
        found = acc.load_vector(lanes, place, acc.dtype_of_sums)
        code.line(f"for (i32 v = 0; v < {vectors}; v++) b[v] = {found};")
        value = acc.load(self.a, *at, f"{i} + r", "k")
        if self.packed:
            value = f"*({self.packed.place(self.a, f'({number} - {first})', 'r', term)})"
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {self.tile.rows}; r++)"):
            code.line(f"const {acc.number} a = {value};")
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {vectors}; v++) c[r][v] += a * b[v];")

    def each_sum(self, statement: str) -> None:
        """Write a statement for every vector of sums."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {self.tile.rows}; r++)"):
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {self.tile.vectors}; v++) {statement}")

    def store(self, at: tuple[str, ...], tile: tuple[str, str], panel: Panel) -> None:
        """Write how sums are put where they belong, or aside if that is not for all of them."""
        code, acc, lanes = self.code, self.acc, self.tile.lanes
        number, i = tile
        place, dtype = self.out.at(*at, f"{i} + r", f"{panel.first} + v * {lanes}"), self.out.dtype
        if self.aside:
            place = f"{self.aside} + r * {self.tile.width} + v * {lanes}"
            dtype = acc.dtype_of_sums
        self.each_sum(acc.store_vector(lanes, place, "c[r][v]", dtype))
        if not self.aside:
            return
        known = code.define("const i32", "known", f"{number} * {self.tile.rows} - {i}")
        code.line(ROLLED)
        with code.block(f"for (i32 r = {known}; r < {self.tile.rows}; r++)"):
            self.copy_row((*at, f"{i} + r"), panel)

    def copy_row(self, row: tuple[str, ...], panel: Panel) -> None:
        """Write how a row of sums is put in its place, or added to what is there."""
        code, width, lanes = self.code, self.tile.width, self.tile.lanes
        sums = f"{self.aside} + r * {width}"
        if not self.acc.is_plain or self.out.strides[-1] != 1 or self.n < width or lanes == 1:
            self.copy_rest(row, sums, "0", panel)
            return
        whole = panel.count if self.n % width else str(width)
        code.line(ROLLED)
        with code.block(f"for (i32 j = 0; j + {lanes} <= {whole}; j += {lanes})"):
            place = self.out.at(*row, f"{panel.first} + j")
            total = self.acc.load_vector(lanes, f"{sums} + j", self.acc.dtype_of_sums)
            if self.k > self.cut.depth:
                total = code.define(f"{self.acc.type(lanes)}", "total", total)
                old = self.acc.load_vector(lanes, place, self.out.dtype)
                code.line(f"if ({panel.terms[0]}) {total} += {old};")
            code.line(self.acc.store_vector(lanes, place, total, self.out.dtype))
        if self.n % lanes:
            self.copy_rest(row, sums, f"{whole} / {lanes} * {lanes}", panel)

    def copy_rest(self, row: tuple[str, ...], sums: str, first: str, panel: Panel) -> None:
        """Write how sums are put in their places one by one."""
        code = self.code
        code.line(ROLLED)
        with code.block(f"for (i32 j = {first}; j < {panel.count}; j++)"):
            indices = (*row, f"{panel.first} + j")
            code.line(f"{self.acc.number} total = ({sums})[j];")
            if self.k > self.cut.depth:
                old = self.acc.load(self.out, *indices)
                code.line(f"if ({panel.terms[0]}) total += {old};")
            code.line(self.acc.store(self.out, "total", *indices))


@contextmanager
def _blocks(code: Code, k: int, depth: int) -> Iterator[tuple[str, str]]:
    """Open a loop over blocks of terms, if there are several; gives the first term and the end."""
    if k <= depth:
        yield "0", str(k)
        return
    first = code.name("k")
    with code.block(f"for (i32 {first} = 0; {first} < {k}; {first} += {depth})"):
        yield first, code.define("const i32", "end", least(f"{first} + {depth}", str(k)))
