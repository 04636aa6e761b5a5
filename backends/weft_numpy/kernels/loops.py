"""Lowered kernels: straight-line code, or a loop over tiles that threads share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate
from typing import Any

from weft.ir.description import TensorDescription, contiguous
from weft_numpy.codegen import Emitter
from weft_numpy.kernels.body import Body, Memory, Slot
from weft_numpy.kernels.kernel_values import varying
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.thread_pool import parallel_for

LINE = 64
"""The alignment of scratch arrays, in bytes."""

INDENT = "    "


class LoweredKernel:
    """A kernel with a tiling: a loop over tiles, or straight-line code for a single one.

    Attributes
    ----------
    slots, offsets
        The scratch arrays, of which each thread has its own, and where they begin, and end.
    """

    def __init__(self, body: Body, tiling: Tiling, threads: int = 1) -> None:
        self.body, self.values, self.tiling = body, body.values, tiling
        self.threads = min(threads, tiling.count)
        self.slots = [contiguous(tiling.shape(each.varying), each.dtype) for each in body.slots]
        sizes = [-(-max(slot.nbytes, 1) // LINE) * LINE for slot in self.slots]
        self.offsets = list(accumulate(sizes, initial=0))

    @property
    def workspace(self) -> int:
        """The bytes of scratch memory that it needs."""
        return self.threads * self.offsets[-1]

    def _scratch(self, memory: TensorDescription | None, lane: int) -> list[TensorDescription]:
        """Return the scratch arrays of a thread."""
        if memory is None:
            return []
        start = memory.offset + lane * self.offsets[-1]
        return [
            replace(slot, base=memory.base, offset=start + offset)
            for slot, offset in zip(self.slots, self.offsets, strict=False)
        ]

    def write(self, emit: Emitter, memory: TensorDescription | None) -> None:
        """Write the kernel, with scratch memory of `workspace` bytes."""
        lanes = [self._scratch(memory, lane) for lane in range(self.threads)]
        values, tiling = self.values, self.tiling
        if tiling.axis is None:
            arrays = Memory(values.operands, values.results, lanes[0])
            self.body.write(emit, arrays)
            return
        tile = TileEmitter(emit, tiling)
        operands = [
            tile.view(f"x{number}", array, values.varying[number])
            for number, array in enumerate(values.operands)
        ]
        results = [
            tile.view(f"out{number}", array, varying(array))
            for number, array in enumerate(values.results)
        ]
        slots = list(map(tile.scratch, self.body.slots))
        self.body.write(tile, Memory(operands, results, slots))
        head = f"(tiles, lane, {', '.join(tile.arrays)}):"
        title = f"each_{self.body.kernel.title or 'copy'}"
        name = emit.defined(title, head, self._lines(emit, tile))
        given = ", ".join(map(emit.name, tile.arrays.values()))
        texts = [f"[{', '.join(map(emit.name, lane))}]" for lane in lanes]
        if self.threads == 1:
            lane = emit.prepared(texts[0], "lane")
            emit.line(f"{name}(range({tiling.count}), {lane}, {given})")
        else:
            run = emit.bind(parallel_for, "parallel_for")
            together = emit.prepared(f"[{', '.join(texts)}]", "lanes")
            emit.line(f"{run}({name}, {tiling.count}, {together}, {given})")

    def _lines(self, emit: Emitter, tile: TileEmitter) -> list[tuple[str, float]]:
        """Return the lines of the function that runs the loop, each with its origin."""
        names = ", ".join(f"t{slot.number}" for slot in self.body.slots)
        first = [*([f"[{names}] = lane"] if names else ()), *tile.rows, "for tile in tiles:"]
        lines = [f"{INDENT}{text}" for text in first]
        lines += [f"{INDENT * 2}{text}" for text in (*tile.index_lines(), *tile.views)]
        body = [(f"{INDENT * 2}{text}", origin) for text, origin in tile.lines]
        return [*((text, emit.origin) for text in lines), *body]


class TileEmitter(Emitter):
    """Writes the body of a loop over tiles.

    Its arrays are views of one tile: a description's `base` is the name of such a view.

    Attributes
    ----------
    arrays
        The arrays that the function takes, by name.
    rows, views
        The statements before the loop, and those that create the views of a tile.
    cuts
        The arrays of a thread that are longer than the last tile, and their parts for it.
    """

    def __init__(self, outer: Emitter, tiling: Tiling) -> None:
        super().__init__(outer.module, outer.lent)
        self.outer, self.tiling = outer, tiling
        self.arrays: dict[str, TensorDescription] = {}
        self.rows: list[str] = []
        self.views: list[str] = []
        self.cuts: dict[str, str] = {}
        self.found: dict[str, str] = {}

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value around the function."""
        return self.outer.bind(value, hint)

    def prepared(self, expression: str, hint: str) -> str:
        """Prepare a value around the function."""
        return self.outer.prepared(expression, hint)

    def name(self, description: TensorDescription) -> str:
        """Return the name of a view of the tile."""
        return str(description.base)

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view of an array of the tile."""
        text = f"{array}{expression}"
        if text not in self.found:
            self.found[text] = self.new_name("q")
            self.line(f"{self.found[text]} = {text}")
        return self.found[text]

    def row(self, value: Any, like: TensorDescription) -> str:
        """Return the name of a row of a repeated scalar, as long as the last axis of a tile."""
        row = self.outer.row(value, like)
        tiling = self.tiling
        is_whole = tiling.axis != len(tiling.lengths) - 1 or not tiling.remainder
        if is_whole or like.shape[-1] == 1:
            return row
        if row not in self.found:
            name = self.found[row] = self.new_name("c")
            self.rows.append(f"{name} = {row}")
            self.cuts[name] = f"{name}[:{tiling.remainder}]"
        return self.found[row]

    def scratch(self, slot: Slot) -> TensorDescription:
        """Return scratch memory."""
        name = f"t{slot.number}"
        axis = self.tiling.axis
        if self.tiling.remainder and axis is not None and axis in slot.varying:
            self.cuts[name] = f"{name}[{':, ' * axis}:{self.tiling.remainder}]"
        return contiguous(self.tiling.shape(slot.varying), slot.dtype, name)

    def view(
        self, name: str, array: TensorDescription, varying: Collection[int]
    ) -> TensorDescription:
        """Return the view of an array for a tile, with the given name."""
        axis, shape = self.tiling.axis, list(array.shape)
        if axis is None or axis not in varying:
            self.arrays[name] = array
        else:
            shape[axis] = self.tiling.block
            self.arrays[f"all_{name}"] = array
            self.views.append(f"{name} = all_{name}[{':, ' * axis}i:j]")
        return TensorDescription(tuple(shape), array.dtype, array.strides, 0, name)

    def index_lines(self) -> list[str]:
        """Return the statements that bound a tile's block, and cut what is too long."""
        block, last = self.tiling.block, self.tiling.count - 1
        lines = [f"i = tile * {block}", f"j = i + {block}"]
        if self.cuts:
            names, parts = ", ".join(self.cuts), ", ".join(self.cuts.values())
            lines.append(f"if tile == {last}: [{names}] = [{parts}]")
        return lines
