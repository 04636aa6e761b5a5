"""Piecewise loads: the element of the operand that has a point, or the constant around operands.

Tests of the outer loops' indices stand before the innermost loop. In its interior, where no piece
begins or ends, vectors are loaded as from any operand. At its ends vectors of all pieces are loaded
and blended, or element by element where a vector would begin before an operand or end after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType, int32
from weft.ir.guards import largest, smallest
from weft.kernels import Instruction, PiecewiseOp
from weft_c.lowering import KernelBuilder
from weft_c.source.code import UNROLL, Address
from weft_c.source.functions import ctype
from weft_c.source.values import ValueEmitter
from weft_tiling.counters import needs_wide_counter

Interval = tuple[int, int]
"""The first index of a loop, and the one after the last."""


@dataclass(frozen=True)
class LoopPiece:
    """A piece of a value in the loops of a kernel.

    Attributes
    ----------
    layout
        The operand, with a stride for each loop, and the offset of the element at index 0 of all.
    memory
        The operand as it is in memory, which bounds what is read.
    box
        The interval of the piece in each loop.
    """

    layout: TensorDescription
    memory: TensorDescription
    box: tuple[Interval, ...]


@dataclass(frozen=True)
class PiecewiseLoad:
    """The load of a piecewise value in the loops of a kernel.

    Attributes
    ----------
    dtype, shape
        The dtype of the value, and the lengths of the loops.
    pieces
        Its pieces.
    fill
        The constant around them; None if the last piece has all that the others do not have.
    interior
        The longest interval of the innermost loop in which no piece begins or ends.
    """

    dtype: DType
    shape: tuple[int, ...]
    pieces: tuple[LoopPiece, ...]
    fill: float | None
    interior: Interval

    def is_cut(self, loop: int) -> bool:
        """Whether a piece begins or ends in a loop."""
        return any(each.box[loop] != (0, self.shape[loop]) for each in self.pieces)

    def is_invariant(self, loop: int) -> bool:
        """Whether the value is invariant in a loop."""
        return not self.is_cut(loop) and not any(each.layout.strides[loop] for each in self.pieces)

    def has_vectors(self, loop: int) -> bool:
        """Whether vectors can be loaded along a loop: each piece is contiguous or invariant in it.

        Lanes are compared with ends of pieces in 32 bits.
        """
        steps = {each.layout.strides[loop] for each in self.pieces}
        is_too_long = self.is_cut(loop) and needs_wide_counter(self.shape[loop])
        return steps <= {0, self.dtype.itemsize} and not is_too_long

    def tests(self, piece: LoopPiece, loops: range, indices: Sequence[str]) -> list[str]:
        """Return tests of whether the indices of some loops are within a piece."""
        found = []
        for loop in loops:
            (low, high), index = piece.box[loop], indices[loop]
            found += [f"{index} >= {low}"] if low > 0 else []
            found += [f"{index} < {high}"] if high < self.shape[loop] else []
        return found


def piecewise_load(
    instruction: Instruction, args: Sequence[TensorDescription], loops: Sequence[tuple[int, ...]]
) -> PiecewiseLoad:
    """Return the load of a piecewise op, given the layouts of a kernel's operands and its loops.

    Each loop is a group of dimensions; those along which the op is cut are alone in theirs.
    """
    op = instruction.op
    assert isinstance(op, PiecewiseOp)
    domain = op.axes.shape
    shape = tuple(prod(domain[axis] for axis in group) for group in loops)
    pieces = []
    for operand, box, origin in op.pieces:
        memory = args[instruction.args[operand]]
        moved = sum(first * step for first, step in zip(origin, memory.strides, strict=True))
        layout = TensorDescription(
            shape,
            memory.dtype,
            tuple(memory.strides[group[-1]] for group in loops),
            memory.offset - moved,
            memory.base,
        )
        intervals = tuple(
            box[group[0]] if len(group) == 1 else (0, length)
            for group, length in zip(loops, shape, strict=True)
        )
        pieces.append(LoopPiece(layout, memory, intervals))
    interior = op.interior(loops[-1][-1]) if loops else (0, 1)
    return PiecewiseLoad(op.dtype, shape, tuple(pieces), op.fill, interior)


class PiecewiseLoader:
    """Writes the loads of piecewise values of a kernel.

    Attributes
    ----------
    builder
        The builder of the kernel.
    loads
        The loads by the number of the value.
    """

    def __init__(self, builder: KernelBuilder, loads: Mapping[int, PiecewiseLoad]) -> None:
        self.builder = builder
        self.loads = loads
        self._rows: dict[tuple[int, LoopPiece], str] = {}
        self._lane_numbers = ""
        self._is_interior = False

    def begin_row(self, outer: Sequence[str], lanes: int) -> None:
        """Write the tests that depend on the indices of the outer loops only, and lane numbers."""
        self._rows.clear()
        known: dict[str, str] = {}
        if lanes > 1 and any(load.is_cut(len(outer)) for load in self.loads.values()):
            self._lane_numbers = self._gathered(int32, ValueEmitter(self.builder.code, lanes), str)
        for number, load in self.loads.items():
            for piece in load.pieces[: len(load.pieces) - (load.fill is None)]:
                test = " && ".join(load.tests(piece, range(len(outer)), outer))
                if test and test not in known:
                    known[test] = self.builder.code.define("const i32", "inside", test)
                if test:
                    self._rows[number, piece] = known[test]

    def regions(self, indices: Sequence[str], emitter: ValueEmitter) -> Iterator[None]:
        """Yield once in a block for vectors in the interior of a row, and once for all others."""
        last = len(indices) - 1
        cut = [each for each in self.loads.values() if emitter.is_vector and each.is_cut(last)]
        if not cut:
            yield
            return
        interiors = [each.interior for each in cut]
        low = largest(*(low for low, _ in interiors))
        high = smallest(*(high for _, high in interiors))
        index, code = indices[-1], self.builder.code
        with code.block(f"if ({index} >= {low} && {index} + {emitter.lanes} <= {high})"):
            self._is_interior = True
            yield
            self._is_interior = False
        with code.block("else"):
            yield

    def value(self, number: int, emitter: ValueEmitter, indices: Sequence[str]) -> str:
        """Return a value at a point, after the statements that it needs."""
        load, last = self.loads[number], len(indices) - 1
        if not emitter.is_vector or self._is_interior or not load.is_cut(last):
            return self._chosen(number, emitter, indices)
        code, scalar = self.builder.code, ValueEmitter(self.builder.code)
        vector = code.name("vector")
        code.line(f"{emitter.type(load.dtype)} {vector};")
        are_in_memory, blended = self._blended(number, emitter, indices)
        with code.block(f"if ({are_in_memory})"):
            code.line(f"{vector} = {blended};")
        with code.block("else"):
            one_by_one = self._gathered(
                load.dtype,
                emitter,
                lambda lane: self._chosen(
                    number, scalar, (*indices[:-1], f"({indices[-1]} + {lane})")
                ),
            )
            code.line(f"{vector} = {one_by_one};")
        return vector

    def _gathered(self, dtype: DType, emitter: ValueEmitter, element: Callable[[str], str]) -> str:
        """Return a vector of scalars, given the text of each lane's."""
        code = self.builder.code
        array, lane = code.name("lanes"), code.name("lane")
        code.line(f"{ctype(dtype)} {array}[{emitter.lanes}];")
        code.line(UNROLL)
        with code.loop("i32", lane, 0, emitter.lanes):
            stored = ValueEmitter(code).store(dtype, Address(array, lane), element(lane), memory="")
            code.line(stored)
        return emitter.load(dtype, Address(array, "0"), memory="")

    def _blended(
        self, number: int, emitter: ValueEmitter, indices: Sequence[str]
    ) -> tuple[str, str]:
        """Return a test of whether vectors are within the operands, and the blend of them."""
        load, lanes, last = self.loads[number], self._lane_numbers, len(indices) - 1
        kind = emitter.type(int32)
        rest = "" if load.fill is None else emitter.constant(load.fill, load.dtype)
        tests = []
        for piece in reversed(load.pieces):
            array = self.builder.array("x", piece.layout, within=piece.memory)
            index = f"({array.at(*indices).index})"
            first, nbytes = piece.memory.byte_range
            begin = array.start - (piece.layout.offset - first) // array.dtype.itemsize
            end = begin + nbytes // array.dtype.itemsize
            tests.append(f"{index} >= {begin} && {index} + {emitter.lanes} <= {end}")
            text = self._load(piece, emitter, indices)
            if rest:
                low, high = piece.box[last]
                mask = (
                    f"({lanes} >= SPLAT({kind}, (i32)({low} - {indices[-1]})))"
                    f" & ({lanes} < SPLAT({kind}, (i32)({high} - {indices[-1]})))"
                )
                if (number, piece) in self._rows:
                    mask += f" & SPLAT({kind}, -({self._rows[number, piece]}))"
                text = emitter.select(mask, text, rest)
            rest = text
        return " && ".join(tests) or "1", rest

    def _chosen(self, number: int, emitter: ValueEmitter, indices: Sequence[str]) -> str:
        """Return the element, or the vector, of the piece that has it."""
        load, last = self.loads[number], len(indices) - 1
        choices: list[tuple[str, str]] = []
        rest = "" if load.fill is None else emitter.constant(load.fill, load.dtype)
        for piece in load.pieces:
            tests = [self._rows[number, piece]] if (number, piece) in self._rows else []
            if not emitter.is_vector:
                tests += load.tests(piece, range(max(last, 0), last + 1), indices)
            elif not _contains(piece.box[last], load.interior):
                continue
            choices.append((" && ".join(tests), self._load(piece, emitter, indices)))
        if not rest and choices:
            choices[-1] = ("", choices[-1][1])
        for test, text in reversed(choices):
            rest = f"({test} ? {text} : {rest})" if test else text
        return rest

    def _load(self, piece: LoopPiece, emitter: ValueEmitter, indices: Sequence[str]) -> str:
        array = self.builder.array("x", piece.layout, within=piece.memory)
        if emitter.is_vector and not array.strides[-1]:
            return emitter.spread(array.dtype, array.get(*indices))
        text = emitter.load(array.dtype, array.at(*indices))
        return f"({emitter.type(array.dtype)}){text}" if emitter.is_vector else text


def _contains(interval: Interval, other: Interval) -> bool:
    return interval[0] <= other[0] and other[1] <= interval[1]
