"""Row streams: products of a row by a large matrix on serial devices, which memory bounds.

A work item computes a range of the columns. It adds a few rows of the matrix at a time to sums in
a cache, so that it reads each row as one long stream, which processors prefetch. A
tile of sums in registers would read a short piece of every row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from weft.ir.description import TensorDescription
from weft_c.loops.parallel import part_bounds, unravel_index, work_item_bounds
from weft_c.lowering import Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.matmul.blocking import VECTOR_GRAIN
from weft_c.matmul.epilogues import Epilogue
from weft_c.matmul.packing import minimum
from weft_c.processor import Processor
from weft_c.source.code import ROLLED, Address
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.sharing import serial_items

MIN_BYTES = 1 << 18
"""The bytes of a matrix from which it is streamed: smaller ones stay in the second-level cache."""

COLUMNS = 16384
"""The most sums at a time, which stay in the second-level cache; long rows are prefetched best."""

ROWS = 8
"""The rows that are added at a time: as many streams as processors prefetch with ease."""


def suits_streams(y: TensorDescription, acc: Accumulator) -> bool:
    """Whether a product of a row is worth streams: of a large row-major matrix, in vectors."""
    k, n = y.shape[-2:]
    has_vectors = acc.lanes > 1 and acc.is_plain and y.strides[-1] == y.dtype.itemsize
    return has_vectors and n >= acc.lanes and k * n * y.dtype.itemsize >= MIN_BYTES


def items_of(batch: int, k: int, n: int, processor: Processor) -> int:
    """Return the number of work items: few, since narrow ranges of columns are short streams."""
    most = max(processor.units, batch * (n // COLUMNS))
    return min(serial_items(batch * k * n // VECTOR_GRAIN, processor), most)


def stream_bytes(batch: int, k: int, n: int, acc: Accumulator, processor: Processor) -> int:
    """Return the bytes of scratch memory."""
    return items_of(batch, k, n, processor) * min(n, COLUMNS) * acc.sum_dtype.itemsize


def multiply_streams(
    lowering: Lowering, x: TensorDescription, y: TensorDescription, epilogue: Epilogue, title: str
) -> None:
    """Write the product of rows [..., 1, k] and matrices [..., k, n] of equal batch dimensions."""
    RowStreamKernel(lowering, x, y, epilogue, title).write()


class RowStreamKernel:
    """Builds the kernel of a product."""

    def __init__(
        self,
        lowering: Lowering,
        x: TensorDescription,
        y: TensorDescription,
        epilogue: Epilogue,
        title: str,
    ) -> None:
        self.epilogue = epilogue
        self.builder = epilogue.begin(lowering, title)
        self.code, self.acc = self.builder.code, epilogue.acc
        self.acc.declare_vectors(self.code)
        *self.batch, _, self.n = epilogue.shape
        self.k = x.shape[-1]
        self.a, self.b = self.builder.array("x", x), self.builder.array("y", y)
        self.items = items_of(prod(self.batch), self.k, self.n, lowering.processor)
        layout = lowering.scratch((self.items, min(self.n, COLUMNS)), self.acc.sum_dtype)
        address = self.builder.array("sums", layout, written=True).at("GLOBAL_ID", "0")
        self.sums = self.code.define(f"GLOBAL {self.acc.scalar_type} *const", "sums", address)
        self.kind = index_type(is_wide(x, y, *epilogue.tensors))

    def write(self) -> None:
        """Write the loops over ranges of columns, and over those that are summed at once."""
        code, lanes, kind = self.code, self.acc.lanes, self.kind
        parts = -(-self.items // prod(self.batch))
        grid = (*self.batch, parts)
        begin, end = work_item_bounds(code, prod(grid), self.items, kind)
        with code.block(f"for ({kind} task = {begin}; task < {end}; task++)"):
            *at, part = unravel_index(code, grid, "task", kind)
            vectors = -(-self.n // lanes)
            first, last = part_bounds(code, vectors, f"(i64){part}", str(parts), kind)
            low = code.define(f"const {kind}", "low", f"{first} * {lanes}")
            high = code.define(f"const {kind}", "high", minimum(f"{last} * {lanes}", str(self.n)))
            with code.block(f"for ({kind} j = {low}; j < {high}; j += {COLUMNS})"):
                length = minimum(str(COLUMNS), f"{high} - j")
                count = code.define("const i32", "count", length)
                self.each_vector(count, self.clear)
                self.add_rows(tuple(at), count)
                self.finish(tuple(at), count)
        self.builder.launch(self.items)

    def add_rows(self, at: tuple[str, ...], count: str) -> None:
        """Write the loops over rows, several at a time, and over the rest."""
        whole = self.k // ROWS * ROWS
        for rows, first, last in ((ROWS, 0, whole), (1, whole, self.k)):
            if first < last:
                head = f"for ({self.kind} k = {first}; k < {last}; k += {rows})"
                with self.code.block(head):
                    self.add(at, rows, count)

    def add(self, at: tuple[str, ...], rows: int, count: str) -> None:
        """Write the addition of a few rows to the sums."""
        code, acc = self.code, self.acc
        for row in range(rows):
            factor = acc.load(self.a, *at, "0", f"(k + {row})")
            code.line(f"const {acc.scalar_type} a{row} = {factor};")
            pointer = f"GLOBAL const {acc.scalar_type} *const"
            address = self.b.at(*at, f"(k + {row})", "j")
            code.line(f"{pointer} b{row} = (GLOBAL const {acc.scalar_type} *)({address});")

        def write(lanes: int, address: Address) -> None:
            total = code.define(acc.type(lanes), "total", self.vector(lanes, address))
            for row in range(rows):
                term = self.vector(lanes, Address(f"b{row}", address.index))
                code.line(f"{total} += a{row} * {term};")
            code.line(acc.store_vector(code, lanes, address, total, acc.sum_dtype))

        self.each_vector(count, write)

    def clear(self, lanes: int, address: Address) -> None:
        """Write the initial value of sums."""
        zero = self.acc.zero(lanes)
        self.code.line(self.acc.store_vector(self.code, lanes, address, zero, self.acc.sum_dtype))

    def finish(self, at: tuple[str, ...], count: str) -> None:
        """Write the epilogue of complete sums."""
        in_vectors = self.epilogue.takes_vectors(self.builder)

        def write(lanes: int, address: Address) -> None:
            kind = f"const {self.acc.type(lanes)}"
            total = self.code.define(kind, "total", self.vector(lanes, address))
            index = (*at, "0", f"j + {address.index}")
            self.epilogue.write(self.builder, ValueEmitter(self.code, lanes), index, total)

        self.each_vector(count, write, in_vectors)

    def vector(self, lanes: int, address: Address) -> str:
        """Return the elements at an address."""
        return self.acc.load_vector(self.code, lanes, address, self.acc.sum_dtype)

    def each_vector(
        self, count: str, write: Callable[[int, Address], None], in_vectors: bool = True
    ) -> None:
        """Write a loop over the sums in vectors, and one over the rest."""
        name = self.code.define("i32", "c", "0")
        for lanes in (self.acc.lanes, 1) if in_vectors else (1,):
            self.code.line(ROLLED)
            with self.code.block(f"for (; {name} + {lanes} <= {count}; {name} += {lanes})"):
                write(lanes, Address(self.sums, name))
