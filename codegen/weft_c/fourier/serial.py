"""Transforms on serial devices: in vectors along a row, or of as many rows as a vector has lanes.

Intermediate results are in scratch memory, the real parts before the imaginary ones. There, element
e of row r of a block of rows is number e rows + r.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.guards import is_traced, smallest
from weft.support.backports import override
from weft_c.fourier.mixed_radix import MixedRadixOp, Stage
from weft_c.fourier.places import Elements, Pairs, Parts, Place, Swapped
from weft_c.fourier.steps import Transform
from weft_c.fourier.vectors import Vectors
from weft_c.loops.parallel import unravel_index, work_item_bounds
from weft_c.lowering import Array, Lowering
from weft_c.processor import Processor
from weft_c.source.functions import ctype
from weft_tiling.sharing import serial_items

MIN_ROW = 64
"""The shortest transform whose elements fill vectors, where there are other rows to do so."""

MAX_BLOCK = 1 << 16
"""The most elements of a block of rows."""

PADDING = 512
"""The elements between real and imaginary parts, which would else be a power of 2 apart.

Elements that a stage reads together would all be in the same set of the first-level cache.
"""


def lanes_of(dtype: DType, processor: Processor) -> int:
    """Return the lanes of a vector of a dtype."""
    return max(1, processor.lanes * 4 // dtype.itemsize)


def scratch_elements(op: MixedRadixOp, processor: Processor) -> int:
    """Return the elements of a work item's scratch memory: parts of two blocks of rows."""
    n = op.length
    block = max(n, min(MAX_BLOCK, n * lanes_of(op.dtype, processor)))
    return 4 * (-(-block // 64) * 64 + PADDING)


class SerialTransform(Transform):
    """Builds the kernel of a transform on a serial device."""

    def __init__(
        self, op: MixedRadixOp, lowering: Lowering, x: TensorDescription, out: TensorDescription
    ) -> None:
        super().__init__(op, lowering, x, out)
        most = lanes_of(op.dtype, self.processor)
        self.block = self._rows_of_block(most)
        self.rows_in_vectors = self.block > 1
        self.lanes = self.block if self.rows_in_vectors else most
        self.rows: list[str] = []

    def _rows_of_block(self, lanes: int) -> int:
        """Return the rows of a block: one, or as many as vectors have lanes."""
        are_rows = all(each.strides[-2:] == (2, 1) for each in (self.x, self.out))
        if not is_traced(self.count) and self.count == 1:
            return 1
        if are_rows and self.n >= MIN_ROW and self.n % 8 == 0:
            return 1
        most = _power_of_two(max(1, min(lanes, MAX_BLOCK // self.n)))
        return most if is_traced(self.count) else min(most, 1 << (self.count - 1).bit_length())

    def write(self) -> None:
        """Write the loop over blocks of rows, and launch the kernel."""
        blocks = -(-self.count // self.block)
        work = prod(self.outer) * blocks * self.block * self.n * len(self.stages)
        items = smallest(serial_items(work, self.processor), self.processor.units)
        slots = scratch_elements(self.op, self.processor)
        memory = self.lowering.scratch((self.processor.units, slots), self.op.dtype)
        array = self.builder.array("scratch", memory, written=True)
        pointer = f"GLOBAL {ctype(self.op.dtype)} *"
        first = self.code.define(pointer, "s", array.at("GLOBAL_ID", "0"))
        second = self.code.define(pointer, "s", f"{first} + {slots // 2}")
        self.scratch = [self._block_at(each, slots // 4) for each in (first, second)]
        grid = (*self.outer, blocks)
        begin, end = work_item_bounds(self.code, prod(grid), items, self.kind)
        with self.code.loop(self.kind, "number", begin, end):
            self._write_block(*unravel_index(self.code, grid, "number", self.kind))
        self.builder.launch(items)

    def _block_at(self, pointer: str, distance: int) -> Parts:
        times = f" * {self.block}" if self.rows_in_vectors else ""
        return Parts(lambda e: f"{pointer} + ({e}){times}", distance)

    def _write_block(self, *at: str) -> None:
        *outer, number = at
        self.rows = self._row_numbers(number)
        self.row = self.rows[0]
        is_inverse, takes_pairs = self.op.sign > 0, not self.op.has_factors and not self.op.is_real
        source: Place
        if self._is_transposed(self.x):
            source = self._read_rows(outer)
        else:
            source = self._place(self.x, outer)
        if is_inverse and takes_pairs:
            source = Swapped(source)
        becomes_rows = self._is_transposed(self.out)
        target = self._place(self.out, outer)
        if is_inverse:
            target = Swapped(target)
        found = self.write_steps(source, None if becomes_rows else target)
        if becomes_rows:
            self._write_rows(outer, Swapped(found) if is_inverse else found)

    @override
    def spare(self, place: Place) -> Parts:
        if isinstance(place, Swapped):
            place = place.place
        return self.scratch[1] if place is self.scratch[0] else self.scratch[0]

    def _row_numbers(self, number: str) -> list[str]:
        """Define the numbers of a block's rows; the last ones may occur twice."""
        code, rows = self.code, self.block
        if rows == 1:
            return [number]
        kind = f"const {self.kind}"
        first = code.define(kind, "row", f"{number} * {rows}")
        if not self._has_whole_blocks:
            last = f"{self.count} - 1"
            return [code.define(kind, "row", _smaller(f"{first} + {n}", last)) for n in range(rows)]
        if self.count % rows:
            first = code.define(kind, "row", _smaller(first, str(self.count - rows)))
        return [first, *[f"({first} + {n})" for n in range(1, rows)]]

    @property
    def _has_whole_blocks(self) -> bool:
        """Whether the rows of a block are always neighbors."""
        return not is_traced(self.count) and self.count >= self.block

    def _place(self, array: Array, outer: Sequence[str]) -> Place:
        """Return where an array's elements are."""
        row, step, part = array.strides[-3:]
        rows = self.rows
        are_neighbors = row == 2 and self._has_whole_blocks if self.rows_in_vectors else step == 2
        if part == 1 and are_neighbors:
            return Pairs(f"({array.at(*outer, rows[0], '0', '0')})", step)
        if self.rows_in_vectors:
            return Elements(array, lambda e, lane: (*outer, rows[lane], f"({e})"))
        return Elements(array, lambda e, lane: (*outer, rows[0], f"({e} + {lane})"))

    # Rows to columns and back

    def _is_transposed(self, array: Array) -> bool:
        """Whether rows of an array, which are side by side in vectors, are transposed."""
        is_row = array.strides[-2:] == (2, 1)
        return self.rows_in_vectors and is_row and 2 * array.layout.shape[-2] >= self.block

    def _read_rows(self, outer: Sequence[str]) -> Parts:
        """Write the transposition of rows to scratch memory."""
        vectors, place = Vectors(self.code, self.op.dtype, self.block), self.scratch[0]
        starts = self._row_starts(self.x, outer, "const ")
        with self._along("f", 2 * self.op.given, self.block) as f:
            loaded = [vectors.define(vectors.load(f"{each} + {f}")) for each in starts]
            e = self.code.define("const i32", "e", f"{f} / 2")
            for number, column in enumerate(vectors.interleaved(loaded)):
                vectors.store(place.address(f"{e} + {number // 2}", number % 2), column)
        return place

    def _write_rows(self, outer: Sequence[str], place: Place) -> None:
        """Write the transposition of scratch memory to rows."""
        vectors = Vectors(self.code, self.op.dtype, self.block)
        starts = self._row_starts(self.out, outer, "")
        with self._along("f", 2 * self.op.kept, self.block) as f:
            e = self.code.define("const i32", "e", f"{f} / 2")
            columns = [
                part for n in range(self.block // 2) for part in place.load(vectors, f"{e} + {n}")
            ]
            for start, row in zip(starts, vectors.interleaved(columns), strict=True):
                vectors.store(f"{start} + {f}", row)

    def _row_starts(self, array: Array, outer: Sequence[str], const: str) -> list[str]:
        kind = f"GLOBAL {const}{ctype(array.dtype)} *"
        return [
            self.code.define(kind, "start", array.at(*outer, row, "0", "0")) for row in self.rows
        ]

    # Loops

    @contextmanager
    @override
    def elements(self, count: int, source: Place) -> Iterator[tuple[Vectors, str]]:
        lanes = self.lanes if self.rows_in_vectors else _power_of_two(min(self.lanes, count))
        with self._along("e", count, lanes // self.block) as e:
            yield Vectors(self.code, self.op.dtype, lanes), e

    @override
    def write_stage(self, stage: Stage, source: Place, target: Place) -> None:
        radix, rest, done, first_root = stage
        if not self.rows_in_vectors and done == 1 and rest > 1:
            self._write_first_stage(stage, source, target)
            return
        lanes = self.lanes if self.rows_in_vectors else _power_of_two(min(self.lanes, done))
        vectors, scalars = (Vectors(self.code, self.op.dtype, n) for n in (lanes, 1))
        butterfly = self.butterfly(vectors)
        with self._along("p", rest, 1) as p:
            roots = [
                self.root(scalars, first_root + 2 * k * rest, rest, p)
                for k in range(radix - 1)
                if rest > 1
            ]
            with self._along("q", done, lanes // self.block) as q:
                loaded = [
                    source.load(vectors, f"{q} + {done} * ({p} + {rest * j})") for j in range(radix)
                ]
                for k, value in enumerate(butterfly.transform(loaded)):
                    e = f"{q} + {done} * ({radix} * {p} + {k})"
                    if rest == 1:
                        value = self.finished(vectors, value, e)
                    elif k:
                        value = butterfly.product(value, roots[k - 1])
                    target.store(vectors, e, value)

    def _write_first_stage(self, stage: Stage, source: Place, target: Place) -> None:
        """Write the first stage along a row, whose vectors have neighboring p."""
        radix, rest, _, first_root = stage
        lanes = _power_of_two(min(self.lanes, rest))
        vectors = Vectors(self.code, self.op.dtype, lanes)
        butterfly = self.butterfly(vectors)
        assert isinstance(target, Parts), "there is another stage"
        with self._along("p", rest, lanes) as p:
            loaded = [source.load(vectors, f"{p} + {rest * j}") for j in range(radix)]
            found = butterfly.transform(loaded)
            for k in range(1, radix):
                root = self.root(vectors, first_root + 2 * (k - 1) * rest, rest, p)
                found[k] = butterfly.product(found[k], root)
            for part in range(2):
                values = [each[part] for each in found]
                start = target.address(f"{radix} * {p}", part)
                if radix == _power_of_two(radix):
                    for number, value in enumerate(vectors.interleaved(values)):
                        vectors.store(f"{start} + {number * lanes}", value)
                else:
                    for place in range(lanes * radix):
                        lane, k = divmod(place, radix)
                        value = vectors.lane(values[k], lane)
                        self.code.line(f"*({start} + {place}) = {value};")

    @contextmanager
    def _along(self, hint: str, count: int, step: int) -> Iterator[str]:
        """Write a loop in steps, the last of which overlaps the one before for a remainder."""
        if count == step:
            with self.code.block():
                yield "0"
            return
        name = self.code.name(hint)
        with self.code.loop("i32", name, 0, count, step):
            if count % step:
                name = self.code.define("const i32", hint, _smaller(name, str(count - step)))
            yield name


def _power_of_two(count: int) -> int:
    """Return the largest power of 2 that is not above a number."""
    return 1 << (count.bit_length() - 1)


def _smaller(x: str, y: str) -> str:
    return f"{x} < {y} ? {x} : {y}"
