"""Accumulator: the type in which matrix products accumulate, and its conversions.

Floats of 16 bits accumulate in float32, integers as unsigned ones, so that overflow wraps around.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.ir import dtypes
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft_c.lowering import Array
from weft_c.processor import Processor
from weft_c.source.code import Address, Code
from weft_c.source.functions import ctype
from weft_c.source.values import ValueEmitter

VECTOR = 16
"""The lanes of a vector on devices that have them."""


@dataclass(frozen=True)
class Accumulator:
    """The type of the accumulators of a matrix product.

    Attributes
    ----------
    dtype
        The dtype of the operands.
    sum_dtype
        The dtype of the sums in scratch memory.
    lanes
        The sums in a variable: the lanes of a vector, or 1.
    registers
        The vectors of sums that fit in registers.
    is_of_words
        Whether factors are words of four numbers of 8 bits.
    """

    dtype: DType
    sum_dtype: DType
    lanes: int
    registers: int
    is_of_words: bool = False

    def tile_rows(self, vectors: int) -> int:
        """Return the most rows of a tile of sums with some vectors along each.

        A term broadcasts a number for each row. Where registers are plenty, they hold two more sums
        than beside the operands of other tiles.
        """
        return (self.registers + (2 if self.registers > 16 else 0)) // vectors

    @property
    def scalar_type(self) -> str:
        """The C type of one sum."""
        return ctype(self.sum_dtype)

    def type(self, lanes: int) -> str:
        """The C type of a vector of sums; of one sum for 1 lane."""
        return f"{self.scalar_type}x{lanes}" if lanes > 1 else self.scalar_type

    @property
    def is_plain(self) -> bool:
        """Whether operands and sums have the same size, so that vectors need no conversion."""
        return self.dtype.itemsize == self.sum_dtype.itemsize

    def load(self, source: Array, *indices: str | int) -> str:
        """Return an element of an array in the accumulator's type."""
        return self.widened(source.dtype, source.get(*indices))

    def widened(self, dtype: DType, value: str) -> str:
        """Return a value in a register in the accumulator's type."""
        return value if dtypes.is_float(dtype) else f"({self.scalar_type})({value})"

    def declare_vectors(self, code: Code) -> None:
        """Declare the types of vectors in memory, aligned as their elements.

        Compilers take far longer to compile ``vload`` and ``vstore``.
        """
        for lanes in (2, 4, 8, 16) if self.lanes > 1 else ():
            attribute = f"__attribute__((aligned({self.sum_dtype.itemsize})))"
            code.declare(f"typedef {self.type(lanes)} {self._type_in_memory(lanes)} {attribute};")

    def _type_in_memory(self, lanes: int) -> str:
        return f"near_{self.type(lanes)}"

    def load_vector(self, code: Code, lanes: int, address: Address, dtype: DType) -> str:
        """Return a vector of contiguous elements of the accumulator's size."""
        if lanes == 1:
            return self.widened(dtype, ValueEmitter(code).load(dtype, address))
        return f"*(GLOBAL const {self._type_in_memory(lanes)} *)({address})"

    def store(self, target: Array, value: str, *indices: str | int) -> str:
        """Return the statement that stores a sum in an array."""
        if target.dtype.kind in "iu":
            value = f"({ctype(target.dtype)})({value})"
        return target.set(value, *indices)

    def store_vector(
        self, code: Code, lanes: int, address: Address, value: str, dtype: DType
    ) -> str:
        """Return the statement that stores a vector of contiguous elements."""
        if lanes == 1:
            text = f"({ctype(dtype)})({value})" if dtype.kind in "iu" else value
            return ValueEmitter(code).store(dtype, address, text)
        return f"*(GLOBAL {self._type_in_memory(lanes)} *)({address}) = {value};"

    def zero(self, lanes: int) -> str:
        """Return the initial value of a vector of sums, or of one sum."""
        return f"SPLAT({self.type(lanes)}, 0)" if lanes > 1 else "0"

    def add_product(self, total: str, x: str, y: str) -> str:
        """Return the statement that adds a scalar times a vector to a vector of sums."""
        if self.is_of_words:
            return f"{total} = DOT4({total}, {x}, {y});"
        return f"{total} += {x} * {y};"

    def value(self, emitter: ValueEmitter, total: str) -> str:
        """Return a sum, or a vector of sums, as a value of the operands' dtype in a register."""
        return emitter.signed(self.dtype, total)

    def horizontal_sum(self, vector: str) -> str:
        """Return the sum of the lanes of a vector, added pairwise."""
        parts = [f"LANE({vector}, {lane:x})" for lane in range(self.lanes)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [f"({a} + {b})" for a, b in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]


def accumulator(dtype: DType, processor: Processor) -> Accumulator:
    """Return the accumulator for products of a dtype on a processor."""
    if dtypes.is_float(dtype):
        sums = dtypes.accumulator_dtype(dtype)
    else:
        sums = dtypes.uint64 if dtype.itemsize == 8 else dtypes.uint32
    lanes = processor.lanes if sums.itemsize == 4 else 1
    return Accumulator(dtype, sums, lanes, processor.vector_registers)


def accumulator_of(op: Op, processor: Processor) -> Accumulator:
    """Return the accumulator for a contraction, which may be of words, on a processor."""
    is_of_words = op.args[0].dtype != op.dtype
    return replace(accumulator(op.dtype, processor), is_of_words=is_of_words)
