"""Packing: parts of matrices, copied so that a tile of registers reads what lies together.

A page of memory and a set of a cache hold neighbours: rows that are far apart would take a page
each, and often the same set. Elements get the type of the sums on their way.
"""

from __future__ import annotations

from weft.kernels.c.accumulators import VECTOR, Accumulator
from weft.kernels.c.code import Code
from weft.kernels.c.lowering import Array

Place = tuple[str, ...]
Bounds = tuple[str, str]


def least(one: str, other: str) -> str:
    """Return the lesser of two numbers, whose types may differ."""
    return f"({one} < {other} ? {one} : {other})"


def is_by_rows(source: Array) -> bool:
    """Whether neighbours along the last dimension lie together."""
    return source.strides[-1] == 1


def copy_line(
    code: Code, acc: Accumulator, source: Array, row: Place, bounds: Bounds, target: str
) -> None:
    """Write the copy of a part of a row to a pointer."""
    first, end = bounds
    length = code.define("const i32", "length", f"{end} - {first}")
    j = code.define("i32", "j", "0")
    if acc.lanes > 1 and acc.is_plain and is_by_rows(source):
        with code.block(f"for (; {j} + {VECTOR} <= {length}; {j} += {VECTOR})"):
            found = acc.load_vector(VECTOR, source.at(*row, f"{first} + {j}"), source.dtype)
            code.line(f"vstore{VECTOR}({found}, 0, {target} + {j});")
    with code.block(f"for (; {j} < {length}; {j}++)"):
        code.line(f"({target})[{j}] = {acc.load(source, *row, f'{first} + {j}')};")


def pack_rows(
    code: Code,
    acc: Accumulator,
    source: Array,
    at: Place,
    rows: Bounds,
    terms: Bounds,
    target: tuple[str, int, int],
) -> None:
    """Write the copy of some terms of some rows.

    The target is a pointer, the distance of rows, and the rows of a tile. What lies by columns in
    memory is packed by tiles: for each term all of a tile's rows.
    """
    pointer, depth, tile = target
    i = code.name("i")
    if is_by_rows(source):
        with code.block(f"for (i32 {i} = {rows[0]}; {i} < {rows[1]}; {i}++)"):
            line = f"{pointer} + ({i} - {rows[0]}) * {depth}"
            copy_line(code, acc, source, (*at, i), terms, line)
        return
    code.line(f"i32 {i} = {rows[0]};")
    place = f"{pointer} + ({i} - {rows[0]}) * {depth} + (k - {terms[0]}) * {tile}"
    value = acc.load(source, *at, f"{i} + r", "k")
    with (
        code.block(f"for (; {i} + {tile} <= {rows[1]}; {i} += {tile})"),
        code.block(f"for (i32 k = {terms[0]}; k < {terms[1]}; k++)"),
    ):
        r = _short_vectors(code, acc, source, (*at, i, "k"), place, tile)
        code.line(f"for (i32 r = {r}; r < {tile}; r++) ({place})[r] = {value};")
    with (
        code.block(f"if ({i} < {rows[1]})"),
        code.block(f"for (i32 k = {terms[0]}; k < {terms[1]}; k++)"),
    ):
        code.line(f"for (i32 r = 0; r < {rows[1]} - {i}; r++) ({place})[r] = {value};")


def _short_vectors(
    code: Code, acc: Accumulator, source: Array, first: Place, target: str, count: int
) -> int:
    """Write the copy of a column's elements as far as vectors go, and return how far that is."""
    r = 0
    if acc.lanes == 1 or not acc.is_plain or source.strides[-2] != 1:
        return r
    *at, i, k = first
    for lanes in (8, 4, 2):
        while r + lanes <= count:
            found = acc.load_vector(lanes, source.at(*at, f"{i} + {r}", k), source.dtype)
            code.line(f"vstore{lanes}({found}, 0, {target} + {r});")
            r += lanes
    return r


def packed_row(source: Array, i: str, first: str, term: str, target: tuple[str, int, int]) -> str:
    """Return the place of row r of a tile that begins so far from the first that was packed."""
    pointer, depth, tile = target
    if is_by_rows(source):
        return f"{pointer}[({i} + r) * {depth} + {term} - {first}]"
    return f"{pointer}[{i} * {depth} + ({term} - {first}) * {tile} + r]"


def pack_columns(
    code: Code,
    acc: Accumulator,
    source: Array,
    at: Place,
    terms: Bounds,
    columns: tuple[str, int],
    target: tuple[str, int],
) -> None:
    """Write the copy of some terms of a number of columns, with zeros up to the target's width."""
    first, count = columns
    pointer, width = target
    k = code.name("k")
    line = f"{pointer} + ({k} - {terms[0]}) * {width}"
    if not is_by_rows(source):
        _turn(code, acc, source, at, terms, columns, target)
    with code.block(f"for (i32 {k} = {terms[0]}; {k} < {terms[1]}; {k}++)"):
        j = 0
        while is_by_rows(source) and acc.lanes > 1 and acc.is_plain and j + VECTOR <= count:
            place = source.at(*at, k, f"{first} + {j}")
            found = acc.load_vector(VECTOR, place, source.dtype)
            code.line(f"vstore{VECTOR}({found}, 0, {line} + {j});")
            j += VECTOR
        if is_by_rows(source) and j < count:
            value = acc.load(source, *at, k, f"{first} + j")
            code.line(f"for (i32 j = {j}; j < {count}; j++) ({line})[j] = {value};")
        if count < width:
            code.line(f"for (i32 j = {count}; j < {width}; j++) ({line})[j] = 0;")


def _turn(
    code: Code,
    acc: Accumulator,
    source: Array,
    at: Place,
    terms: Bounds,
    columns: tuple[str, int],
    target: tuple[str, int],
) -> None:
    """Write the copy of columns that lie together in memory."""
    first, count = columns
    pointer, width = target
    k = code.name("k")
    with (
        code.block(f"for (i32 {k} = {terms[0]}; {k} < {terms[1]}; {k}++)"),
        code.block(f"for (i32 j = 0; j < {count}; j++)"),
    ):
        value = acc.load(source, *at, k, f"{first} + j")
        code.line(f"{pointer}[({k} - {terms[0]}) * {width} + j] = {value};")
