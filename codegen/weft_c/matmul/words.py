"""Words: four numbers of 8 bits, one after the other along an axis, as one element of 32 bits.

Kernels multiply words as they multiply floats: a word of the first operand, whose numbers are
unsigned, times a vector of words of the second, whose numbers are signed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.axes import Axes, make_axes
from weft.ir.dtypes import DType, int8, uint32
from weft.ir.tensor import TensorOp
from weft.nn.spatial.geometry import Pairs
from weft.support.backports import override
from weft_c.loops.parallel import parallel_for
from weft_c.lowering import Lowering, rules
from weft_c.source.index_types import is_wide
from weft_c.source.values import ValueEmitter

BYTES = 4
"""The numbers of a word."""

BITS = 8
"""The bits of a number."""

OFFSET = 128
"""What is added to signed numbers to make them unsigned."""


class PackWordsOp(TensorOp):
    """Numbers of 8 bits as words of unsigned ones: signed ones have 128 added.

    The operands are the numbers, and an int32 that fills the padding, before 128 is added.

    Attributes
    ----------
    axis
        The axis along which four numbers become a word. The last word is filled up with zeros.
    padding
        The numbers of elements before and after each of the axes that follow it.
    """

    axis: int
    padding: Pairs

    def infer(self) -> tuple[Axes, DType]:
        """Return the axes of the words."""
        shape = self.args[0].axes.shape
        padded = [
            before + length + after
            for length, (before, after) in zip(shape[self.axis + 1 :], self.padding, strict=True)
        ]
        words = -(-shape[self.axis] // BYTES)
        return make_axes((*shape[: self.axis], words, *padded)), uint32

    @property
    def offset(self) -> int:
        """What is added to the numbers."""
        return OFFSET if self.args[0].dtype == int8 else 0

    @override
    def reference(self, x: Any, fill: Any) -> Any:
        unsigned = (x.astype(np.int32) + self.offset).astype(np.uint8)
        around = [(0, 0)] * (self.axis + 1) + list(self.padding)
        filled = np.pad(unsigned, around, constant_values=np.uint8((int(fill) + self.offset) & 255))
        return words_of(filled, self.axis)


def words_of(x: Any, axis: int) -> Any:
    """Return an array of numbers of 8 bits as words along an axis."""
    missing = -x.shape[axis] % BYTES
    around = [(0, missing if at == axis else 0) for at in range(x.ndim)]
    last = np.moveaxis(np.pad(x, around), axis, -1)
    return np.moveaxis(np.ascontiguousarray(last).view("<u4").astype(np.uint32), -1, axis)


def numbers_of(words: Any, axis: int, dtype: Any) -> Any:
    """Return the numbers of words along an axis as int32; `dtype` is int8 or uint8."""
    last = np.ascontiguousarray(np.moveaxis(words, axis, -1).astype("<u4")).view(dtype)
    return np.moveaxis(last, -1, axis).astype(np.int32)


def numbers_in(x: TensorOp) -> int:
    """Return how many factors an element of an operand has."""
    return BYTES if x.dtype == uint32 else 1


@rules.on_type(PackWordsOp)
def pack_words(op: PackWordsOp, lowering: Lowering) -> None:
    """Lower the packing of words, a line of them at a time."""
    _PackWordsKernel(op, lowering).write()


class _PackWordsKernel:
    """Builds the kernel that packs words."""

    def __init__(self, op: PackWordsOp, lowering: Lowering) -> None:
        self.op, self.source, self.out = op, lowering.args[0], lowering.out
        self.builder = lowering.kernel("pack_words")
        self.code = self.builder.code
        self.x = self.builder.array("x", self.source)
        self.fill = self.builder.array("fill", lowering.args[1])
        self.written = self.builder.array("out", lowering.out, written=True)
        self.flip = "0x80808080u" if op.offset else "0u"
        self.kind = "i8" if op.offset else "u8"

    def write(self) -> None:
        """Write the loop over lines of words, or over words where they lie along a line."""
        wide = is_wide(self.source, self.out)
        if not self.op.padding:
            parallel_for(self.builder, self.out.shape, self.word_of_line, wide=wide)
            return
        filler = f"((u32)(u8){self.fill.get()} * 0x01010101u) ^ {self.flip}"
        self.code.line(f"const u32 filler = {filler};")
        *lines, width = self.out.shape
        parallel_for(self.builder, lines, self.line, wide=wide, cost=max(width // BYTES, 1))

    def word_of_line(self, at: tuple[str, ...], emitter: ValueEmitter) -> None:
        """Write a word of numbers that are neighbors in a line."""
        *outer, word = at
        length, terms = self.source.shape[-1], []
        for byte in range(BYTES):
            index = f"({word} * {BYTES} + {byte})"
            term = _shifted(self.x.get(*outer, index), byte)
            if byte >= length % BYTES > 0:
                term = f"({index} < {length} ? {term} : 0u)"
            terms.append(term)
        text = f"({' | '.join(terms)}) ^ {self.flip}"
        if length % BYTES and self.op.offset:
            text = f"({text}) & {self.mask(word, length)}"
        self.code.line(self.written.set(text, *at))

    def mask(self, word: str, length: int) -> str:
        """Write the mask of a word's numbers that there are, and return its name."""
        left = f"({length} - {word} * {BYTES})"
        return self.code.define(
            "const u32", "mask", f"{left} < {BYTES} ? (1u << {BITS} * {left}) - 1 : ~0u"
        )

    def line(self, at: tuple[str, ...], emitter: ValueEmitter) -> None:
        """Write a line of words: what is before, inside and after the line of the operand."""
        code, axis = self.code, self.op.axis
        *outer, (left, _) = self.op.padding
        length, width = self.source.shape[-1], self.out.shape[-1]
        channels = self.source.shape[axis]
        mask = self.mask(at[axis], channels) if channels % BYTES else ""
        start = self.written.at(*at, "0")
        into = code.define("GLOBAL u32 *const", "into", start)
        rows, inside = [], ["1"]
        for index, n, pads in zip(
            at[axis + 1 :], self.source.shape[axis + 1 : -1], outer, strict=True
        ):
            row = code.define("const i32", "row", f"(i32){index} - {pads[0]}")
            rows.append(row)
            inside += [f"{row} >= 0 && {row} < {n}"] if any(pads) else []
        end = code.define("const i32", "end", f"{' && '.join(inside)} ? {left + length} : {left}")
        filler = f"filler & {mask}" if mask else "filler"
        code.line(f"for (i32 j = 0; j < {left}; j++) {into}[j] = {filler};")
        code.line(f"i32 j = {left};")
        with code.block(f"if (j < {end})"):
            self.inside(at[:axis], at[axis], rows, into, mask)
        code.line(f"for (; j < {width}; j++) {into}[j] = {filler};")

    def inside(
        self, outer: tuple[str, ...], word: str, rows: list[str], into: str, mask: str
    ) -> None:
        """Write the words of a line of the operand, in vectors and the rest."""
        code, channels = self.code, self.source.shape[self.op.axis]
        left, length = self.op.padding[-1][0], self.source.shape[-1]
        planes = []
        for byte in range(BYTES):
            channel = f"({word} * {BYTES} + {byte})"
            if byte >= channels % BYTES > 0:
                channel = f"({channel} < {channels} ? {channel} : {channels - 1})"
            pointer = f"GLOBAL const {self.kind} *const"
            address = self.x.at(*outer, channel, *rows, "0")
            planes.append(code.define(pointer, "plane", address))
        lanes, step = self.builder.processor.lanes, self.x.strides[-1]
        for each in (lanes, 1) if lanes > 1 and step == 1 else (1,):
            if each > 1:
                vector = f"*(GLOBAL const near_{self.kind}x{each} *)"
                numbers = [
                    f"(convert_uint{each}(convert_int{each}({vector}({plane} + j - {left})))"
                    f" & 255u) << {BITS * byte}"
                    for byte, plane in enumerate(planes)
                ]
                target = f"*(GLOBAL near_u32x{each} *)({into} + j)"
            else:
                numbers = [
                    _shifted(f"{plane}[(j - {left}) * {step}]", byte)
                    for byte, plane in enumerate(planes)
                ]
                target = f"{into}[j]"
            text = f"({' | '.join(f'({number})' for number in numbers)}) ^ {self.flip}"
            text = f"({text}) & {mask}" if mask else text
            with code.block(f"for (; j + {each} <= {left + length}; j += {each})"):
                code.line(f"{target} = {text};")


def _shifted(value: str, byte: int) -> str:
    return f"(u32)(u8){value} << {BITS * byte}"
