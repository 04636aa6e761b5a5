"""Lowered kernels: straight-line code, a loop over tiles that threads share, or several of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from weft.ir.description import TensorDescription, contiguous
from weft.ir.dtypes import DType
from weft_numpy.emitter import Emitter
from weft_numpy.kernels.body import Arrays, Body, Slot, aligned
from weft_numpy.kernels.kernel_values import KernelValues, varying
from weft_numpy.kernels.tiling import Tiling
from weft_numpy.rules.reduction import accumulator_dtype, write_reduction
from weft_numpy.thread_pool import parallel_for

INDENT = "    "

Layouts = Mapping[int, TensorDescription]


class TileEmitter(Emitter):
    """Writes the body of a loop over tiles, in the code that another emitter writes.

    Its arrays are views of one tile: a description's `base` is the name of such a view.
    """

    def __init__(self, outer: Emitter, tiling: Tiling) -> None:
        vars(self).update(vars(outer))  # names, values and what is prepared are shared
        self.tiling = tiling
        self.lines: list[tuple[str, float]] = []
        self.views: dict[str, str] = {}  # their names, by expression

    def name(self, description: TensorDescription) -> str:
        """Return the name of a view of the tile."""
        return str(description.base)

    def part(self, array: str, description: TensorDescription, expression: str) -> str:
        """Return the name of a view of an array of the tile."""
        text = f"{array}{expression}"
        if text not in self.views:
            self.views[text] = self.new_name("t")
        return self.views[text]

    def row(self, value: object, like: TensorDescription) -> str:
        """Return the name of a row of a repeated scalar, as long as the last axis of a tile."""
        row = super().row(value, like)
        is_cut = self.tiling.axis == len(self.tiling.lengths) - 1
        is_row = row != self.number(value, like.dtype)
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

    def loop(self, head: str, origin: float) -> list[tuple[str, float]]:
        """Return the lines of the loop."""
        axis, block = self.tiling.axis, self.tiling.block
        assert axis is not None, "there is an axis to be cut"
        bounds = [f"i = tile * {block}", f"j = min(i + {block}, {self.tiling.lengths[axis]})"]
        views = [f"{name} = {text}" for text, name in self.views.items()]
        lines = [*((text, origin) for text in (*bounds, *views)), *self.lines]
        return [(head, origin), *((f"{INDENT}{text}", at) for text, at in lines)]


class Loop:
    """A body in a loop over tiles, or straight-line code for a single one."""

    def __init__(self, body: Body, threads: int = 1) -> None:
        self.body, self.tiling = body, body.tiling
        self.threads = min(threads, body.tiling.count)
        self.workspace = self.threads * sum(body.sizes)  # in bytes

    def write(
        self,
        emit: Emitter,
        values: Layouts,
        memory: TensorDescription | None,
        start: int,
        partial: Layouts,
    ) -> None:
        """Write the loop, with scratch memory from byte `start` on.

        `values` are the layouts of values that it takes, `partial` those of reductions over all
        tiles, with an axis for the tiles.
        """
        body, size = self.body, sum(self.body.sizes)
        results = dict(enumerate(body.values.results))
        lanes = [
            {
                slot: scratch(memory, start + lane * size + at, body.shape(slot), slot.dtype)
                for slot, at in body.slots.items()
            }
            for lane in range(self.threads)
        ]
        if self.tiling.axis is None:
            arrays = values.__getitem__, results.__getitem__, lanes[0].__getitem__
            body.write(emit, Arrays(*arrays))
            return
        tile, along = TileEmitter(emit, self.tiling), body.values.varying
        is_shared = self.threads > 1
        names = {
            slot: emit.new_name("s") if is_shared else emit.name(array)
            for slot, array in lanes[0].items()
        }

        def value(number: int) -> TensorDescription:
            if number not in partial:
                return tile.tile(emit.name(values[number]), values[number], along[number])
            array = partial[number]
            name = tile.part(emit.name(array), array, "[tile]")
            return contiguous(array.shape[1:], array.dtype, name)

        def result(index: int) -> TensorDescription:
            return tile.tile(emit.name(results[index]), results[index], varying(results[index]))

        def own(slot: Slot) -> TensorDescription:
            return tile.tile(names[slot], lanes[0][slot], slot.varying, ":j - i")

        body.write(tile, Arrays(value, result, own))
        if is_shared:
            self._write_shared(emit, tile, list(names.values()), lanes)
        else:
            emit.lines += tile.loop(f"for tile in range({self.tiling.count}):", emit.origin)

    def _write_shared(
        self,
        emit: Emitter,
        tile: TileEmitter,
        names: Sequence[str],
        lanes: Sequence[Mapping[Slot, TensorDescription]],
    ) -> None:
        """Write a function of some tiles and a lane's scratch arrays, and its call by threads."""
        title = emit.new_name(f"each_{self.body.kernel.title or 'copy'}_")
        emit.line(f"def {title}(tiles, lane):")
        unpacked = [(f"[{', '.join(names)}] = lane", emit.origin)] if names else []
        lines = (*unpacked, *tile.loop("for tile in tiles:", emit.origin))
        emit.lines += [(f"{INDENT}{text}", origin) for text, origin in lines]
        texts = ", ".join(f"[{', '.join(map(emit.name, lane.values()))}]" for lane in lanes)
        call = f"{title}, {self.tiling.count}, {emit.prepared(f'[{texts}]', 'lanes')}"
        emit.line(f"{emit.bind(parallel_for, 'parallel_for')}({call})")


def scratch(
    memory: TensorDescription | None, start: int, shape: tuple[int, ...], dtype: DType
) -> TensorDescription:
    """Return an array in the workspace of a step."""
    assert memory is not None, "a kernel with scratch arrays has asked for memory"
    return replace(contiguous(shape, dtype, memory.base), offset=memory.offset + start)


class LoweredKernel:
    """A kernel with a tiling.

    It is one loop unless a reduced dimension is cut. Then it is a sweep for each stage of its
    reductions: a tile contributes to the reductions of the stage, and these parts are combined
    after the loop. Values that are invariant along the reduced dimensions are computed between two
    sweeps, and others anew in each sweep that needs them. `workspace` is the bytes of scratch
    memory that it needs.
    """

    def __init__(self, values: KernelValues, tiling: Tiling, threads: int = 1) -> None:
        self.values, self.kernel, self.tiling = values, values.kernel, tiling
        self.is_swept = tiling.axis in values.reduced
        self.kept = [number for number in values.computed if self._is_kept(number)]
        stages = range(self.kernel.stages if self.is_swept else 1)
        self.sweeps = [(self._between(n), Loop(self._sweep(n), threads)) for n in stages]
        sources = [values.sources[number] for number in self.kernel.outputs]
        kept = [index for index, source in enumerate(sources) if self._is_kept(source)]
        self.last = self._whole((), kept)
        self.offsets: dict[tuple[int, bool], int] = {}
        self.start = 0
        for number in self.kept:
            for is_partial in (False, True)[: 1 + self.kernel.instruction(number).is_reduction]:
                self.offsets[number, is_partial] = self.start
                shape, dtype = self._form(number, is_partial)
                self.start += aligned(prod(shape) * dtype.itemsize)
        self.workspace = self.start + max(loop.workspace for _, loop in self.sweeps)

    def _is_kept(self, number: int) -> bool:
        """Whether a value is computed between sweeps."""
        return self.is_swept and self.values.varying[number].isdisjoint(self.values.reduced)

    def _whole(self, numbers: Collection[int], results: Collection[int]) -> Body:
        """Return a body without tiles for values with memory of their own."""
        return Body(self.values, Tiling(self.values.lengths), numbers, results, numbers)

    def _between(self, stage: int) -> Body:
        """Return the body before the loop of a stage."""
        made = [(number, self.kernel.instruction(number)) for number in self.kept]
        numbers = [n for n, each in made if each.stage == stage and not each.is_reduction]
        return self._whole(numbers, ())

    def _sweep(self, stage: int) -> Body:
        """Return the body of the loop of a stage."""
        values, kernel = self.values, self.kernel
        if not self.is_swept:
            return Body(values, self.tiling, values.computed, range(len(values.results)))
        results = {
            index: values.sources[number]
            for index, number in enumerate(kernel.outputs)
            if kernel.instruction(number).stage == stage
            and not self._is_kept(values.sources[number])
        }
        totals = kernel.reductions_of(stage)
        known = {*self.kept}.difference(totals)
        needed = kernel.required_values({*totals, *results.values()}, known)
        numbers = [number for number in needed if number in values.computed]
        return Body(values, self.tiling, numbers, results, totals)

    def _form(self, number: int, is_partial: bool) -> tuple[tuple[int, ...], DType]:
        """Return the shape and dtype of a kept value, or of the parts of a reduction."""
        shape = self.values.shape(self.values.varying[number], self.values.lengths)
        if not is_partial:
            return shape, self.values.dtype(number)
        return (self.tiling.count, *shape), accumulator_dtype(self.kernel.instruction(number).op)

    def write(self, emit: Emitter, memory: TensorDescription | None) -> None:
        """Write the kernel, with scratch memory of `workspace` bytes."""
        arrays = {key: scratch(memory, at, *self._form(*key)) for key, at in self.offsets.items()}
        known = dict(enumerate(self.values.operands))
        known |= {number: arrays[number, False] for number in self.kept}
        for between, loop in self.sweeps:
            Loop(between).write(emit, known, memory, 0, {})
            partial = {number: arrays[number, True] for number in loop.body.outside}
            if loop.body.numbers or loop.body.copies:
                loop.write(emit, known, memory, self.start, partial)
            for number, array in partial.items():
                op = self.kernel.instruction(number).op
                emit.at(op)
                write_reduction(emit, op, array, (0,), known[number])
        Loop(self.last).write(emit, known, memory, 0, {})
