"""Lowered kernels: straight-line code, a loop over tiles that threads share, or several of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.body import Arrays, Body, aligned
from weft_numpy.kernels.kernel_values import KernelValues, varying
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.rules.reduction import accumulator_dtype, write_reduction
from weft_numpy.thread_pool import parallel_for

INDENT = "    "


class TileEmitter(Emitter):
    """Writes the body of a loop over tiles.

    Its arrays are views of one tile: a description's `base` is the name of such a view.

    Attributes
    ----------
    views
        The statements that create the views of a tile.
    """

    def __init__(self, outer: Emitter, tiling: Tiling) -> None:
        super().__init__(outer.shared, outer.lent)
        self.outer, self.tiling = outer, tiling
        self.views: list[str] = []

    def bind(self, value: Any, hint: str) -> str:
        """Bind a value around the function."""
        return self.outer.bind(value, hint)

    def prepared(self, expression: str, hint: str) -> str:
        """Prepare a value around the function."""
        return self.outer.prepared(expression, hint)

    def new_name(self, hint: str) -> str:
        """Return a name that is new in the block."""
        return self.outer.new_name(hint)

    def name(self, description: TensorDescription) -> str:
        """Return the name of a view of the tile."""
        return str(description.base)

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view of an array of the tile."""
        text = f"{array}{expression}"
        if text not in self.names_by_text:
            self.names_by_text[text] = self.new_name("t")
            self.views.append(f"{self.names_by_text[text]} = {text}")
        return self.names_by_text[text]

    def row(self, value: Any, like: TensorDescription) -> str:
        """Return the name of a row of a repeated scalar, as long as the last axis of a tile."""
        row = self.outer.row(value, like)
        is_cut = self.tiling.axis == len(self.tiling.lengths) - 1
        is_row = row != self.outer.number(value, like.dtype)
        return self.part(row, like, "[:j - i]") if is_cut and is_row else row

    def tile(
        self, name: str, array: TensorDescription, along: Collection[int], part: str = "i:j"
    ) -> TensorDescription:
        """Return the view of an array for a tile: a part of it, if it varies along the cut axis."""
        shape, axis = list(array.shape), self.tiling.axis
        if axis is not None and axis in along:
            name = self.part(name, array, f"[{':, ' * axis}{part}]")
            shape[axis] = self.tiling.block
        return TensorDescription(tuple(shape), array.dtype, array.strides, 0, name)

    def loop(self, head: str) -> list[tuple[str, float]]:
        """Return the lines of the loop."""
        axis, block = self.tiling.axis, self.tiling.block
        assert axis is not None, "there is an axis to be cut"
        bounds = [f"i = tile * {block}", f"j = min(i + {block}, {self.tiling.lengths[axis]})"]
        top = [(text, self.outer.origin) for text in (*bounds, *self.views)]
        body = [(f"{INDENT}{text}", origin) for text, origin in (*top, *self.lines)]
        return [(head, self.outer.origin), *body]


class Loop:
    """A body in a loop over tiles, or straight-line code for a single one.

    Attributes
    ----------
    workspace
        The bytes of scratch memory of all threads.
    """

    def __init__(self, body: Body, threads: int = 1) -> None:
        self.body, self.tiling = body, body.tiling
        self.threads = min(threads, body.tiling.count)
        self.workspace = self.threads * sum(body.sizes)

    def write(
        self,
        emit: Emitter,
        values: Mapping[int, TensorDescription],
        memory: Memory,
        partial: Mapping[int, TensorDescription] | None = None,
    ) -> None:
        """Write the loop, given the layouts of values that it takes.

        `partial` has those of reductions over all tiles, with an axis for the tiles.
        """
        body, results = self.body, dict(enumerate(self.body.values.results))
        lanes = [
            {
                slot: memory.array(lane * sum(body.sizes) + offset, body.shape(slot), slot.dtype)
                for slot, offset in body.slots.items()
            }
            for lane in range(self.threads)
        ]
        if self.tiling.axis is None:
            body.write(emit, Arrays(values, results, lanes[0]))
            return
        tile = TileEmitter(emit, self.tiling)
        taken = {
            number: tile.tile(
                emit.name(values[number]), values[number], body.values.varying[number]
            )
            for number in body.taken
        }
        for number, array in (partial or {}).items():
            name = tile.part(emit.name(array), array, "[tile]")
            taken[number] = contiguous(array.shape[1:], array.dtype, name)
        written = {
            index: tile.tile(emit.name(results[index]), results[index], varying(results[index]))
            for index in body.written
        }
        names = [
            emit.name(each) if self.threads == 1 else tile.new_name("s")
            for each in lanes[0].values()
        ]
        slots = {
            slot: tile.tile(name, array, slot.varying, ":j - i")
            for name, (slot, array) in zip(names, lanes[0].items(), strict=True)
        }
        body.write(tile, Arrays(taken, written, slots))
        if self.threads == 1:
            emit.lines += tile.loop(f"for tile in range({self.tiling.count}):")
        else:
            self._write_function(emit, tile.loop("for tile in tiles:"), names, lanes)

    def _write_function(
        self, emit: Emitter, loop: list[tuple[str, float]], names: list[str], lanes: list[Any]
    ) -> None:
        """Write the loop as a function, which each thread calls with scratch memory of its own."""
        title = emit.new_name(f"each_{self.body.kernel.title or 'copy'}_")
        unpacked = [(f"[{', '.join(names)}] = lane", emit.origin)] if names else []
        emit.line(f"def {title}(tiles, lane):")
        emit.lines += [(f"{INDENT}{text}", origin) for text, origin in (*unpacked, *loop)]
        texts = [f"[{', '.join(map(emit.name, lane.values()))}]" for lane in lanes]
        scratch = emit.prepared(f"[{', '.join(texts)}]", "lanes")
        run = emit.bind(parallel_for, "parallel_for")
        emit.line(f"{run}({title}, {self.tiling.count}, {scratch})")


class Memory:
    """The workspace of a step, from some byte on."""

    def __init__(self, workspace: TensorDescription | None, start: int = 0) -> None:
        self.workspace, self.start = workspace, start

    def array(self, offset: int, shape: tuple[int, ...], dtype: DType) -> TensorDescription:
        """Return an array at an offset."""
        assert self.workspace is not None, "a kernel with scratch arrays has asked for memory"
        start = self.workspace.offset + self.start + offset
        return replace(contiguous(shape, dtype, self.workspace.base), offset=start)


class SingleLoop:
    """A kernel that is one loop.

    Attributes
    ----------
    workspace
        The bytes of scratch memory that it needs.
    """

    def __init__(self, values: KernelValues, tiling: Tiling, threads: int = 1) -> None:
        self.values = values
        self.loop = Loop(Body(values, tiling, values.computed, range(len(values.results))), threads)
        self.workspace = self.loop.workspace

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        self.loop.write(emit, dict(enumerate(self.values.operands)), Memory(workspace))


class Sweeps:
    """A kernel with a loop over tiles for each stage of its reductions, whose rows are too long.

    A tile contributes to each reduction of a stage, and these parts are combined after the loop.
    Then values that are invariant along the reduced dimensions are computed at once. Values that
    vary are computed anew in every loop that needs them, unless they are a result that is stored.

    Attributes
    ----------
    workspace
        The bytes of scratch memory that it needs.
    """

    def __init__(self, values: KernelValues, tiling: Tiling, threads: int) -> None:
        self.values, self.kernel, self.tiling = values, values.kernel, tiling
        self.single = Tiling(values.lengths)
        self.kept = [number for number in values.computed if self._is_kept(number)]
        self.stored: dict[int, int] = {}
        self.stages = [
            (self._between(stage), Loop(self._sweep(stage), threads))
            for stage in range(self.kernel.stages)
        ]
        kept = [
            n for n, out in enumerate(self.kernel.outputs) if self._is_kept(values.sources[out])
        ]
        self.last = Body(values, self.single, (), kept)
        self.offsets: dict[tuple[int, bool], int] = {}
        self.start = 0
        for number in self.kept:
            for is_partial in (False, self.kernel.instruction(number).is_reduction):
                self.offsets[number, is_partial] = self.start
                shape, dtype = self._form(number, is_partial)
                self.start += aligned(prod(shape) * dtype.itemsize)
        self.workspace = self.start + max(loop.workspace for _, loop in self.stages)

    def _is_kept(self, number: int) -> bool:
        """Whether a value is invariant along the reduced dimensions."""
        return self.values.varying[number].isdisjoint(self.values.reduced)

    def _between(self, stage: int) -> Body:
        """Return the body before the loop of a stage."""
        made = [(number, self.kernel.instruction(number)) for number in self.kept]
        numbers = [n for n, each in made if each.stage == stage and not each.is_reduction]
        return Body(self.values, self.single, numbers, (), numbers)

    def _sweep(self, stage: int) -> Body:
        """Return the body of the loop of a stage."""
        values, totals = self.values, self.kernel.reductions_of(stage)
        sources = {
            index: values.sources[output]
            for index, output in enumerate(self.kernel.outputs)
            if self.kernel.instruction(output).stage == stage
        }
        results = {index: each for index, each in sources.items() if not self._is_kept(each)}
        known = {*self.stored, *self.kept}.difference(totals)
        needed = self.kernel.required_values({*totals, *results.values()}, known)
        numbers = [number for number in needed if number in values.computed]
        for index, source in results.items():
            if values.shape(values.varying[source], values.lengths) == values.results[index].shape:
                self.stored[source] = index
        return Body(values, self.tiling, numbers, results, totals)

    def _form(self, number: int, is_partial: bool) -> tuple[tuple[int, ...], DType]:
        """Return the shape and dtype of an invariant value, or of the parts of a reduction."""
        shape = self.values.shape(self.values.varying[number], self.values.lengths)
        if not is_partial:
            return shape, self.values.dtype(number)
        return (self.tiling.count, *shape), accumulator_dtype(self.kernel.instruction(number).op)

    def write(self, emit: Emitter, workspace: TensorDescription | None) -> None:
        """Write the kernel."""
        memory = Memory(workspace)
        arrays = {key: memory.array(at, *self._form(*key)) for key, at in self.offsets.items()}
        known = dict(enumerate(self.values.operands))
        known |= {number: arrays[number, False] for number in self.kept}
        for stage, (between, loop) in enumerate(self.stages):
            Loop(between).write(emit, known, memory)
            partial = {number: arrays[number, True] for number in loop.body.outside}
            if loop.body.numbers or loop.body.copies:
                loop.write(emit, known, Memory(workspace, self.start), partial)
            for number, array in partial.items():
                op = self.kernel.instruction(number).op
                emit.at(op)
                source = emit.name(array), array
                write_reduction(emit, op, source, (0,), known[number])
            known |= {
                source: self.values.results[index]
                for source, index in self.stored.items()
                if self.kernel.instruction(source).stage == stage
            }
        Loop(self.last).write(emit, known, memory)
