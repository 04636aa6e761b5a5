"""Products with matrices of few bits, whose codes are unpacked inside of the product.

A product of a row streams the words of codes, as `row_streams` streams floats, and multiplies them
as integers: the row is in fixed point, in digits of 8 bits. Another product unpacks a panel of
columns into the scratch memory from which register tiles read it.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import numpy as np

from weft.ir.axes import Axes, make_axes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType, float32, uint32
from weft.ir.op import Op
from weft.nn.quantization import WORD, DequantizeOp, matrix_of
from weft.ops.products.linalg import ContractionOp, MatmulOp
from weft.ops.shape.movement import BroadcastOp
from weft.support.backports import override
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.matmul.accumulators import accumulator
from weft_c.matmul.blocking import tiles_bytes
from weft_c.matmul.epilogues import Epilogue, StoreEpilogue
from weft_c.matmul.packing import LoopBounds
from weft_c.matmul.products import Product
from weft_c.matmul.register_tiles import RegisterTileKernel
from weft_c.matmul.row_streams import RowStreamKernel, stream_bytes
from weft_c.processor import Processor
from weft_c.source.code import UNROLL, Address, Code
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter

TERMS = 32
"""The most terms that have one exponent in fixed point, and are added to sums at a time.

Their digits are 24 words, which stay in registers while a row of words is read.
"""

DIGITS = 3
"""The digits of a number in fixed point."""

DIGIT_BITS = 8
"""The bits of a digit, which is signed."""

FRACTION = DIGITS * DIGIT_BITS - 3
"""The bits after the first one of the largest number: the last digit of it stays small."""

LEAST_EXPONENT = FRACTION + 2
"""The least biased exponent of a float32 whose last bit in fixed point is a float32 too."""


class GroupedMatmulOp(ContractionOp):
    """The product of float32 [..., k] with a matrix [k, n] of codes of few bits.

    The other operands are those of `DequantizeOp`.

    Attributes
    ----------
    bits
        The bits of a code.
    """

    bits: int

    @override
    def infer(self) -> tuple[Axes, DType]:
        x, codes, _, _ = self.args
        return Axes((*x.axes[:-1], *make_axes((codes.axes[-1].length,)))), x.dtype

    @override
    def reference(self, x: Any, codes: Any, scales: Any, zeros: Any) -> Any:
        return np.matmul(x, matrix_of(codes, scales, zeros, self.bits))

    @property
    def flops(self) -> int:
        """Two for each product."""
        return 2 * int(self.axes.size) * int(self.args[0].axes.shape[-1])

    @override
    def operand_map(self, index: int, places: Any) -> tuple[int | None, ...]:
        return (*places[:-1], None) if index == 0 else (None, None)


def takes_codes(processor: Processor) -> bool:
    """Whether products unpack codes: on serial devices with vectors, which multiply bytes."""
    is_vector = processor.is_serial and accumulator(float32, processor).lanes > 1
    return is_vector and processor.dialect.has_dot4


def legalized_grouped(op: MatmulOp, processor: Processor) -> Op | None:
    """Return the product with codes in the place of one with the matrix that they stand for."""
    x, matrix = op.args
    matrix = matrix.args[0] if isinstance(matrix, BroadcastOp) else matrix
    if not isinstance(matrix, DequantizeOp) or matrix.rank != 2 or op.dtype != float32:
        return None
    if not takes_codes(processor) or not op.axes.is_static or not op.axes.size * matrix.axes.size:
        return None
    return GroupedMatmulOp(x, *matrix.args, bits=matrix.bits)


@rules.on_type(GroupedMatmulOp)
def grouped_matmul(op: GroupedMatmulOp, lowering: Lowering) -> None:
    """Lower a product that stores its sums."""
    epilogue = StoreEpilogue(lowering.out, accumulator(op.dtype, lowering.processor))
    x, codes, scales, zeros = lowering.args
    write_grouped(op, lowering, x, codes, scales, zeros, epilogue)


@needs_scratch(GroupedMatmulOp)
def grouped_bytes(op: GroupedMatmulOp, processor: Processor) -> int:
    """Return the bytes of scratch memory of a product, fused or not."""
    *leading, m, k = op.args[0].axes.shape
    batch, n = prod(leading), op.axes.shape[-1]
    acc = accumulator(op.dtype, processor)
    # Three bytes of digits for each term, and two factors for as few as four.
    row = (DIGITS + 2) * batch * k + 1024
    streamed = stream_bytes(batch, k, n, acc, processor) + row if m == 1 else 0
    tiles = (
        tiles_bytes((b, i, k, n), acc, processor, is_stored=False, has_prologue=False)
        for b, i in ((1, batch * m), (batch, m))
        if i > 1
    )
    return max(streamed, *tiles, 0)


def write_grouped(
    op: GroupedMatmulOp,
    lowering: Lowering,
    x: TensorDescription,
    codes: TensorDescription,
    scales: TensorDescription,
    zeros: TensorDescription,
    epilogue: Epilogue,
) -> None:
    """Write the kernel of a product, with an epilogue of its sums."""
    product = Product(x, codes, epilogue, is_packed=True).with_folded_batch()
    kind = _StreamKernel if product.epilogue.shape[-2] == 1 else _TileKernel
    kind(lowering, product, _Codes(op.bits, codes, scales, zeros)).write()


class _Codes:
    """The words, scales and zero points of a matrix in a kernel."""

    def __init__(
        self,
        bits: int,
        codes: TensorDescription,
        scales: TensorDescription,
        zeros: TensorDescription,
    ) -> None:
        self.bits, self.count = bits, WORD // bits
        self.layouts = codes, scales, zeros
        self.group = codes.shape[0] * self.count // scales.shape[0]
        rows = [layout.strides[-1] for layout in self.layouts]
        sizes = [layout.dtype.itemsize for layout in self.layouts]
        self.in_vectors = all(a in (0, b) for a, b in zip(rows, sizes, strict=True)) and rows[0] > 0
        self.arrays: tuple[Array, ...] = ()

    def begin(self, builder: KernelBuilder) -> None:
        """Add the arrays to a kernel."""
        names = "codes", "scales", "zeros"
        self.arrays = tuple(map(builder.array, names, self.layouts))

    def load(self, code: Code, lanes: int, which: int, row: str, column: str) -> str:
        """Return words, or scales or zero points as float32, of a vector of columns."""
        array = self.arrays[which]
        emitter = ValueEmitter(code, lanes if array.strides[-1] else 1)
        value = emitter.load(array.dtype, array.at(row, column))
        if which:
            value = emitter.converted(array.dtype, float32, value)
        if lanes > emitter.lanes:
            value = ValueEmitter(code, lanes).spread(float32, value)
        return value

    def define(
        self, code: Code, lanes: int, row: str, group: str, column: str
    ) -> tuple[str, str, str]:
        """Define words, scales and zero points of a vector of columns, and return their names."""
        kinds = words_type(lanes), *[f"f32x{lanes}" if lanes > 1 else "f32"] * 2
        words, scale, zero = (
            code.define(f"const {kind}", "c", self.load(code, lanes, which, place, column))
            for which, (kind, place) in enumerate(zip(kinds, (row, group, group), strict=True))
        )
        return words, scale, zero

    def numbers(self, lanes: int, words: str, place: int) -> str:
        """Return the code of each word that begins at a bit, as float32."""
        text = f"({words} >> {place} & {2**self.bits - 1}u)"
        if lanes > 1:
            return f"convert_float{lanes}(as_int{lanes}({text}))"
        return f"(f32)(i32){text}"

    def bytes(self, words: str, part: int) -> str:
        """Return words with a code in each byte: one of those that a byte holds."""
        mask = (2**self.bits - 1) * 0x01010101
        return words if self.bits == DIGIT_BITS else f"{words} >> {part * self.bits} & {mask}u"


class _FixedPoint:
    """A row in fixed point in scratch memory.

    Some terms have a common exponent, their sum, and words of digits for each byte of codes.
    """

    def __init__(self, lowering: Lowering, x: TensorDescription, codes: _Codes) -> None:
        self.x, self.parts = x, DIGIT_BITS // codes.bits
        self.rows = gcd(codes.group, TERMS) // codes.count
        self.terms = self.rows * codes.count
        *batch, _, k = x.shape
        self.shape = (*batch, k // self.terms)
        self.words = self.terms // 4
        self.digits = lowering.scratch((*self.shape, DIGITS * self.words), uint32)
        self.scales = lowering.scratch((*self.shape, 2), float32)
        self.lowering = lowering

    def write(self) -> None:
        """Write the kernel that makes it."""
        builder = self.lowering.kernel("fixed_point")
        code, x = builder.code, builder.array("x", self.x)
        digits = builder.array("digits", self.digits, written=True)
        scales = builder.array("scales", self.scales, written=True)

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            *outer, block = at
            code.line(f"f32 whole = 0, most = 0, x[{self.terms}];")
            with code.block(f"for (i32 t = 0; t < {self.terms}; t++)"):
                code.line(f"x[t] = {x.get(*outer, '0', f'{block} * {self.terms} + t')};")
                # An infinity has no digits, so that it gives NaN.
                code.line("whole += x[t] - x[t] + x[t];")
                code.line("most = fabs(x[t]) > most ? fabs(x[t]) : most;")
            code.line("const u32 found = AS_U32(most) >> 23;")
            least = LEAST_EXPONENT
            code.line(f"const u32 exponent = found < {least} ? {least} : found;")
            unit = code.define("const f32", "unit", f"AS_F32((exponent - {FRACTION}) << 23)")
            code.line(f"const f32 inverse = AS_F32(({FRACTION + 254} - exponent) << 23);")
            code.line(scales.set(unit, *at, "0"))
            code.line(scales.set("whole", *at, "1"))
            code.line(f"u32 word[{DIGITS * self.words}] = {{0}};")
            with code.block(f"for (i32 t = 0; t < {self.terms}; t++)"):
                code.line("const f32 scaled = x[t] * inverse;")
                limit = f"{2.0 ** (FRACTION + 1)!r}f"
                code.line(f"i32 number = fabs(scaled) <= {limit} ? (i32)rint(scaled) : 0;")
                byte = f"t / {self.parts} % 4"
                place = f"t / {4 * self.parts} * {self.parts} + t % {self.parts}"
                for digit in range(DIGITS):
                    code.line(
                        f"word[{digit * self.words} + {place}]"
                        f" |= ((u32)number & 255u) << ({byte} * {DIGIT_BITS});"
                    )
                    code.line(f"number = (number - (i8)number) >> {DIGIT_BITS};")
            with code.block(f"for (i32 n = 0; n < {DIGITS * self.words}; n++)"):
                code.line(digits.set("word[n]", *at, "n"))

        parallel_for(builder, self.shape, body, cost=8 * self.terms)


class _StreamKernel(RowStreamKernel):
    """Builds the kernels of a product of rows, which adds a few rows of words at a time."""

    def __init__(self, lowering: Lowering, product: Product, codes: _Codes) -> None:
        self.row = _FixedPoint(lowering, product.x, codes)
        self.row.write()
        super().__init__(lowering, product.x, product.y, product.epilogue, "matvec_of_codes")
        self.codes = codes
        codes.begin(self.builder)
        self.digits = self.builder.array("digits", self.row.digits)
        self.factors = self.builder.array("factors", self.row.scales)

    @override
    def add_rows(self, at: tuple[str, ...], count: str) -> None:
        blocks = self.k // self.row.terms
        with self.code.block(f"for ({self.kind} k = 0; k < {blocks}; k++)"):
            self.add_block(at, count)

    def add_block(self, at: tuple[str, ...], count: str) -> None:
        """Write the addition of a few rows of words, which are of one group."""
        code, codes, row = self.code, self.codes, self.row
        code.line(f"u32 word[{DIGITS * row.words}];")
        code.line(UNROLL)
        with code.block(f"for (i32 n = 0; n < {DIGITS * row.words}; n++)"):
            code.line(f"word[n] = {self.digits.get(*at, 'k', 'n')};")
        unit, whole = (
            code.define("const f32", "factor", self.factors.get(*at, "k", which)) for which in "01"
        )
        group = code.define(f"const {self.kind}", "group", f"k / {codes.group // row.terms}")

        def write(lanes: int, address: Address) -> None:
            kind, column = self.acc.type(lanes), f"j + {address.index}"
            zero = f"SPLAT({words_type(lanes)}, 0)" if lanes > 1 else "0"
            sums = [code.define(words_type(lanes), "sums", zero) for _ in range(DIGITS)]
            code.line(UNROLL)
            with code.block(f"for (i32 r = 0; r < {row.rows}; r++)"):
                loaded = codes.load(code, lanes, 0, f"(k * {row.rows} + r)", column)
                words = code.define(f"const {words_type(lanes)}", "words", loaded)
                for part in range(row.parts):
                    given = codes.bytes(words, part)
                    factor = code.define(f"const {words_type(lanes)}", "bytes", given)
                    for digit, total in enumerate(sums):
                        place = f"word[{digit * row.words} + r * {row.parts} + {part}]"
                        add_dot(code, lanes, total, factor, place)
            scale = codes.load(code, lanes, 1, group, column)
            zero = codes.load(code, lanes, 2, group, column)
            numbers = [
                f"convert_float{lanes}(as_int{lanes}({each}))" if lanes > 1 else f"(f32)(i32){each}"
                for each in sums
            ]
            value = " + ".join(
                f"{each} * {2.0 ** (DIGIT_BITS * digit)!r}f" for digit, each in enumerate(numbers)
            )
            code.line(f"{kind} total = {self.vector(lanes, address)};")
            code.line(f"total += {scale} * (({value}) * {unit} - {whole} * {zero});")
            code.line(self.acc.store_vector(code, lanes, address, "total", float32))

        self.each_vector(count, write, codes.in_vectors)


def add_dot(code: Code, lanes: int, total: str, unsigned: str, signed: str) -> None:
    """Write the addition of four products of bytes to each sum."""
    if lanes > 1:
        code.line(f"{total} = DOT4_BY_SIGNED({total}, {unsigned}, {signed});")
        return
    with code.block("for (i32 b = 0; b < 32; b += 8)"):
        code.line(
            f"{total} += ({unsigned} >> b & 255u) * (u32)((i32)({signed} << (24 - b)) >> 24);"
        )


class _TileKernel(RegisterTileKernel):
    """Builds the kernel of a product of several rows, which unpacks panels of columns."""

    def __init__(self, lowering: Lowering, product: Product, codes: _Codes) -> None:
        x, y, epilogue = product.x, product.y, product.epilogue
        super().__init__(lowering, x, y, epilogue, None, "matmul_of_codes", is_packed=False)
        self.codes = codes
        codes.begin(self.builder)

    @override
    def _packs_columns(self) -> bool:
        return True

    @override
    def pack_columns(
        self, at: tuple[str, ...], terms: LoopBounds, columns: tuple[str, str]
    ) -> None:
        code, codes, kind = self.code, self.codes, terms.kind
        (first, count), width, per = columns, self.tile.width, self.codes.count
        name = code.name("word")
        head = (
            f"for ({kind} {name} = {terms.first} / {per}; {name} < {terms.end} / {per}; {name}++)"
        )
        with code.block(head):
            line = f"{self.panel} + ({name} * {per} - {terms.first}) * {width}"
            group = code.define(f"const {kind}", "group", f"{name} / {codes.group // per}")
            code.line(f"{kind} j = 0;")
            for lanes in (self.acc.lanes, 1) if codes.in_vectors else (1,):
                with code.block(f"for (; j + {lanes} <= {count}; j += {lanes})"):
                    column = f"{first} + j"
                    words, scale, zero = codes.define(code, lanes, name, group, column)
                    for n in range(per):
                        number = codes.numbers(lanes, words, n * codes.bits)
                        value = f"({number} - {zero}) * {scale}"
                        target = Address(f"({line})", f"{n * width} + j")
                        code.line(self.acc.store_vector(code, lanes, target, value, float32))
            if count != str(width):
                with code.block(f"for (; j < {width}; j++)"):
                    for n in range(per):
                        code.line(f"({line})[{n * width} + j] = 0;")


def words_type(lanes: int) -> str:
    """Return the C type of words."""
    return f"u32x{lanes}" if lanes > 1 else "u32"


@rules.on_type(DequantizeOp)
def dequantize(op: DequantizeOp, lowering: Lowering) -> None:
    """Lower a matrix that is needed as such, a word of its codes at a time."""
    builder = lowering.kernel("dequantize")
    codes, scales, zeros = map(builder.array, ("codes", "scales", "zeros"), lowering.args)
    out = builder.array("out", lowering.out, written=True)
    code, per, bits = builder.code, op.codes_of_word, op.bits
    kind = "f64" if op.dtype.itemsize == 8 else "f32"

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        *batch, word, column = at
        group = code.define("const i32", "group", f"{word} / {op.group_size // per}")
        words = code.define("const u32", "words", codes.get(*at))
        scale, zero = (
            code.define(f"const {kind}", "c", f"({kind}){each.get(*batch, group, column)}")
            for each in (scales, zeros)
        )
        for n in range(per):
            number = f"({kind})({words} >> {n * bits} & {2**bits - 1}u)"
            row = f"({word} * {per} + {n})"
            code.line(out.set(f"({number} - {zero}) * {scale}", *batch, row, column))

    wide = is_wide(*lowering.args, lowering.out)
    parallel_for(builder, lowering.args[0].shape, body, wide=wide, cost=per)
