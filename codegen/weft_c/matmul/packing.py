"""Packing: copies of matrix panels in which a register tile reads contiguous memory.

Rows that are far apart occupy a page of memory each, and often the same cache set. Packing also
converts elements to the type of the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from weft_c.lowering import Array
from weft_c.matmul.accumulators import Accumulator
from weft_c.matmul.prologues import MemoryReader, OperandReader
from weft_c.source.code import ROLLED, Address, Code

Index = tuple[str, ...]

LINE = 16
"""The elements of 4 bytes in a line of the cache."""


class LoopBounds(NamedTuple):
    """The bounds of a loop, and the type of its counter."""

    first: str
    end: str
    kind: str


def minimum(one: str, other: str) -> str:
    """Return the minimum of two integers, whose types may differ."""
    return f"({one} < {other} ? {one} : {other})"


def copy_line(
    code: Code, acc: Accumulator, source: OperandReader, row: Index, bounds: LoopBounds, target: str
) -> None:
    """Write the copy of a range of a row to a pointer."""
    first, end, kind = bounds
    length = code.define(f"const {kind}", "length", f"{end} - {first}")
    j, lanes = code.define(kind, "j", "0"), source.lanes
    if lanes > 1:
        code.line(ROLLED)
        with code.block(f"for (; {j} + {lanes} <= {length}; {j} += {lanes})"):
            vector = source.load(*row, f"{first} + {j}", lanes=lanes)
            code.line(
                acc.store_vector(code, lanes, Address(f"({target})", j), vector, acc.sum_dtype)
            )
    code.line(ROLLED)
    with code.block(f"for (; {j} < {length}; {j}++)"):
        code.line(f"({target})[{j}] = {source.load(*row, f'{first} + {j}')};")


@dataclass(frozen=True)
class RowTiles:
    """Packed tiles of rows in scratch memory.

    Row-major sources are packed row by row. Column-major sources are packed term by term, each with
    all rows of a tile.

    Attributes
    ----------
    pointer
        The pointer to the first tile.
    depth
        The capacity in terms.
    rows
        The rows of a tile.
    """

    pointer: str
    depth: int
    rows: int

    def place(self, source: OperandReader, tile: str, r: str, term: str) -> str:
        """Return the address of a term of row `r` of a tile."""
        start = f"{self.pointer} + {tile} * {self.rows * self.depth}"
        if source.is_by_rows:
            return f"{start} + {r} * {self.depth} + {term}"
        return f"{start} + {term} * {self.rows} + {r}"


def pack_tile(
    code: Code,
    acc: Accumulator,
    source: OperandReader,
    first: Index,
    terms: LoopBounds,
    tile: str,
    target: RowTiles,
) -> None:
    """Write the packing of a block of terms of a tile's rows."""
    *at, i = first
    if source.is_by_rows:
        code.line(ROLLED)
        with code.block(f"for (i32 r = 0; r < {target.rows}; r++)"):
            line = target.place(source, tile, "r", "0")
            copy_line(code, acc, source, (*at, f"{i} + r"), terms, line)
        return
    code.line(ROLLED)
    with code.block(f"for ({terms.kind} k = {terms.first}; k < {terms.end}; k++)"):
        address = target.place(source, tile, "0", f"(k - {terms.first})")
        r = _short_vectors(code, acc, source, (*at, i, "k"), address, target.rows)
        if r < target.rows:
            value = source.load(*at, f"{i} + r", "k")
            code.line(ROLLED)
            code.line(f"for (i32 r = {r}; r < {target.rows}; r++) ({address})[r] = {value};")


def _short_vectors(
    code: Code, acc: Accumulator, reader: OperandReader, first: Index, target: str, count: int
) -> int:
    """Write the copy of a column in vectors, and return the number of elements copied."""
    r = 0
    assert isinstance(reader, MemoryReader), "prologues compute by rows"
    source = reader.array
    if acc.lanes == 1 or not acc.is_plain or source.strides[-2] != 1:
        return r
    *at, i, k = first
    for lanes in (8, 4, 2):
        while r + lanes <= count:
            vector = acc.load_vector(code, lanes, source.at(*at, f"{i} + {r}", k), source.dtype)
            code.line(
                acc.store_vector(code, lanes, Address(f"({target})", str(r)), vector, acc.sum_dtype)
            )
            r += lanes
    return r


def pack_columns(
    code: Code,
    acc: Accumulator,
    source: Array,
    at: Index,
    terms: LoopBounds,
    columns: tuple[str, str],
    target: tuple[str, int],
) -> None:
    """Write the packing of a block of terms of a panel of columns.

    `columns` are the first column and their number. `target` is a pointer and the width of the
    panel, which is padded with zeros.
    """
    first, count = columns
    pointer, width = target
    k = code.name("k")
    line = f"{pointer} + ({k} - {terms.first}) * {width}"
    is_vector = source.strides[-1] == 1 and acc.lanes > 1 and acc.is_plain
    if not is_vector and source.strides[-2] == 1:
        _pack_transposed(code, acc, source, at, terms, columns, target)
        return
    code.line(ROLLED)
    with code.block(f"for ({terms.kind} {k} = {terms.first}; {k} < {terms.end}; {k}++)"):
        code.line(f"{terms.kind} j = 0;")
        if is_vector:
            code.line(ROLLED)
            address = source.at(*at, k, f"{first} + j")
            vector = acc.load_vector(code, acc.lanes, address, source.dtype)
            with code.block(f"for (; j + {acc.lanes} <= {count}; j += {acc.lanes})"):
                code.line(
                    acc.store_vector(
                        code, acc.lanes, Address(f"({line})", "j"), vector, acc.sum_dtype
                    )
                )
            if count == str(width):
                return
        value = acc.load(source, *at, k, f"{first} + j")
        padded = value if count == str(width) else f"j < {count} ? {value} : 0"
        code.line(ROLLED)
        code.line(f"for (; j < {width}; j++) ({line})[j] = {padded};")


def _pack_transposed(
    code: Code,
    acc: Accumulator,
    source: Array,
    at: Index,
    terms: LoopBounds,
    columns: tuple[str, str],
    target: tuple[str, int],
) -> None:
    """Write the packing of columns whose terms are contiguous, a line of the cache at a time.

    Columns that are a power of two apart are in few sets of the cache, so that it does not hold the
    lines of a whole panel.
    """
    first, count = columns
    pointer, width = target
    start, k = code.name("start"), code.name("k")
    line = f"({pointer} + ({k} - {terms.first}) * {width})[j]"
    head = f"for ({terms.kind} {start} = {terms.first}; {start} < {terms.end}; {start} += {LINE})"
    with code.block(head):
        end = code.define(f"const {terms.kind}", "end", minimum(f"{start} + {LINE}", terms.end))
        loop = f"for ({terms.kind} {k} = {start}; {k} < {end}; {k}++)"
        with code.block(f"for ({terms.kind} j = 0; j < {count}; j++)"):
            code.line(ROLLED)
            code.line(f"{loop} {line} = {acc.load(source, *at, k, f'{first} + j')};")
        if count != str(width):
            with code.block(f"for ({terms.kind} j = {count}; j < {width}; j++)"):
                code.line(ROLLED)
                code.line(f"{loop} {line} = 0;")
