"""Direct convolution on serial devices: of images, and its gradient of the input.

A work item copies the channels of an image with zero padding, and computes a tile of results in
registers at a time: some filters, and for each of them vectors of neighboring windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from weft_c.loops.parallel import part_bounds, unravel_index, work_item_bounds
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import VECTOR, Accumulator
from weft_c.processor import Processor
from weft_c.source.code import UNROLL, Address
from weft_c.source.index_types import index_type
from weft_c.spatial.geometry import OutputPhase, Planes
from weft_c.spatial.padded_copies import copy_planes
from weft_tiling.counters import needs_wide_counter
from weft_tiling.sharing import GROUPS_PER_UNIT

MIN_TASKS = 2
"""The tasks for each compute unit, below which the results of an image are split."""

CACHED = 1 << 17
"""The elements of filters that stay in the cache from one image to the next."""


@dataclass(frozen=True)
class DirectConvolution:
    """The sizes of a direct convolution.

    Attributes
    ----------
    batch, groups
        The number of images, and of groups of channels.
    channels, results
        The input and output channels of a group.
    planes, output_phases
        The padded copies, and the phases of the results that read them.
    """

    batch: int
    groups: int
    channels: int
    results: int
    planes: Planes
    output_phases: tuple[OutputPhase, ...]

    def parts(self, processor: Processor) -> int:
        """Return the number of parts of an image's results: for all units, and for the cache."""
        wanted = -(-MIN_TASKS * processor.units // (self.batch * self.groups))
        if self.batch > 1:
            taps = sum(len(phase.taps) for phase in self.output_phases)
            wanted = max(wanted, self.results * self.channels * taps // CACHED)
        return max(1, min(wanted, self.results // 8))

    def items(self, processor: Processor) -> int:
        """Return the number of work items."""
        tasks = self.batch * self.groups * self.parts(processor)
        return min(tasks, processor.units * GROUPS_PER_UNIT)

    @property
    def elements(self) -> int:
        """The elements of a work item's copies, with room for a vector."""
        return self.channels * self.planes.size + 4 * VECTOR

    def scratch(self, acc: Accumulator, processor: Processor) -> int:
        """Return the bytes of scratch memory."""
        return self.items(processor) * self.elements * acc.sum_dtype.itemsize


@dataclass(frozen=True)
class OutputTile:
    """A tile of sums: filters, vectors, and the rows and columns of results that these cover."""

    filters: int
    vectors: int
    rows: int
    columns: int


def best_tile(
    results: int, output_phase: OutputPhase, planes: Planes, lanes: int, registers: int
) -> tuple[float, OutputTile]:
    """Return the cycles of all tiles for a term of their sums, and the best tile."""
    *_, height, width = (1, *output_phase.counts)
    pitch = planes.pitches[-2] if len(planes.pitches) > 1 else width
    candidates: list[tuple[float, OutputTile]] = []
    most = 4 if lanes > 1 else 8
    for vectors in range(1, most + 1):
        columns = min(width, vectors * lanes)
        rows = 1
        if columns == width:
            rows = max(1, min(height, (vectors * lanes - width) // pitch + 1))
        for filters in range(1, min(results, registers // vectors, 16) + 1):
            tiles = -(-results // filters) * -(-height // rows) * -(-width // columns)
            cycles = max(filters * vectors, filters + vectors, 8) + 1
            candidates.append((tiles * cycles, OutputTile(filters, vectors, rows, columns)))
    return min(candidates, key=lambda each: (each[0], -each[1].filters))


def write_direct_convolution(
    lowering: Lowering,
    task: DirectConvolution,
    acc: Accumulator,
    is_transposed: bool,
) -> None:
    """Write the kernel; filters are (results, channels, ...), or the reverse if transposed."""
    _DirectConvolutionKernel(lowering, task, acc, is_transposed).write()


class _DirectConvolutionKernel(KernelBuilder):
    """Builds the kernel of a direct convolution."""

    def __init__(
        self,
        lowering: Lowering,
        task: DirectConvolution,
        acc: Accumulator,
        is_transposed: bool,
    ) -> None:
        source, filters = lowering.args
        super().__init__(lowering, "transposed_convolution" if is_transposed else "convolution")
        self.task, self.acc, self.is_transposed = task, acc, is_transposed
        acc.declare_vectors(self.code)
        self.source = self.array("x", source)
        flat = filters.cast((*filters.shape[:2], prod(filters.shape[2:])))
        assert flat is not None, "the filters are contiguous"
        self.filters = self.array("filters", flat)
        self.out = self.array("out", lowering.out, written=True)
        shape = (task.items(self.processor), task.elements)
        copied = self.array("copied", lowering.scratch(shape, acc.sum_dtype), True)
        pointer = f"GLOBAL {acc.scalar_type} *const"
        self.planes = self.code.define(pointer, "planes", copied.at("GLOBAL_ID", "0"))
        self.lanes = acc.lanes

    def write(self) -> None:
        """Write the loop over images, groups and parts of their results."""
        code, task = self.code, self.task
        parts, items = task.parts(self.processor), task.items(self.processor)
        grid = (parts, task.groups, task.batch)  # images that follow share filters
        kind = index_type(needs_wide_counter(prod(grid)))
        begin, end = work_item_bounds(code, prod(grid), items, kind)
        for number, output_phase in enumerate(task.output_phases):
            if output_phase.taps:
                places, offsets = zip(*output_phase.taps, strict=True)
                for name, values in ((f"place{number}", places), (f"offset{number}", offsets)):
                    text = ", ".join(map(str, values))
                    code.line(f"const i32 {name}[{len(values)}] = {{{text}}};")
        with code.block(f"for ({kind} task = {begin}; task < {end}; task++)"):
            portion, group, image = unravel_index(code, grid, "task", kind)
            channels = (f"{group} * {task.channels}", task.channels)
            copy_planes(code, self.acc, self.source, image, channels, self.planes, task.planes)
            for number, output_phase in enumerate(task.output_phases):
                _, window = best_tile(
                    task.results, output_phase, task.planes, self.lanes, self.acc.registers
                )
                with code.block():
                    self.write_phase((image, group, portion), number, output_phase, window)
        self.launch(items)

    def write_phase(
        self, at: tuple[str, str, str], number: int, output_phase: OutputPhase, window: OutputTile
    ) -> None:
        """Write the loops over the tiles of an output phase; the last ones overlap others."""
        code, task = self.code, self.task
        *outer, height, width = (1, *output_phase.counts)
        down, across = -(-height // window.rows), -(-width // window.columns)
        tiles = (*outer[1:], down, across)
        several = -(-task.results // window.filters)
        parts = str(task.parts(self.processor))
        first, last = part_bounds(code, several, f"(i64){at[2]}", parts, "i32")
        with code.block(f"for (i32 tile = 0; tile < {prod(tiles)}; tile++)"):
            *rest, row, column = unravel_index(code, tiles, "tile", "i32")
            is_plane = len(output_phase.counts) > 1
            rows = [self.clamped("i", row, window.rows, height)] if is_plane else []
            j = self.clamped("j", column, window.columns, width)
            with code.block(f"for (i32 several = {first}; several < {last}; several++)"):
                o = self.clamped("o", "several", window.filters, task.results)
                indices = (*rest, *rows, j)
                self.sums(at, number, output_phase, window, indices, o)

    def clamped(self, hint: str, number: str, size: int, length: int) -> str:
        """Write the start of a tile, clamped so that the tile is inside."""
        start = f"{number} * {size}"
        if length % size == 0:
            return self.code.define("const i32", hint, start)
        text = f"{start} < {length - size} ? {start} : {length - size}"
        return self.code.define("const i32", hint, text)

    def sums(
        self,
        at: tuple[str, str, str],
        number: int,
        output_phase: OutputPhase,
        window: OutputTile,
        indices: tuple[str, ...],
        o: str,
    ) -> None:
        """Write the sums of one tile."""
        code, task, acc = self.code, self.task, self.acc
        vector = acc.type(self.lanes)
        code.line(f"{vector} c[{window.filters}][{window.vectors}];")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {window.filters}; r++)"):
            code.line(UNROLL)
            code.line(
                f"for (i32 v = 0; v < {window.vectors}; v++) c[r][v] = {acc.zero(self.lanes)};"
            )
        terms = [f"{i} * {p}" for i, p in zip(indices, task.planes.pitches, strict=True)]
        start = code.define("const i32", "start", " + ".join(terms))
        if output_phase.taps:
            with (
                code.block(f"for (i32 channel = 0; channel < {task.channels}; channel++)"),
                code.block(f"for (i32 tap = 0; tap < {len(output_phase.taps)}; tap++)"),
            ):
                self.term(at[1], number, window, start, o)
        self.store(at, output_phase, window, indices, o)

    def term(self, group: str, number: int, window: OutputTile, start: str, o: str) -> None:
        """Write the update of all sums of a tile by one term."""
        code, task, acc = self.code, self.task, self.acc
        code.line(
            f"GLOBAL const {acc.scalar_type} *const seen = {self.planes} + {start}"
            f" + channel * {task.planes.size} + offset{number}[tap];"
        )
        code.line(f"{acc.type(self.lanes)} b[{window.vectors}];")
        code.line(UNROLL)
        vector = acc.load_vector(
            code, self.lanes, Address("seen", f"v * {self.lanes}"), acc.sum_dtype
        )
        code.line(f"for (i32 v = 0; v < {window.vectors}; v++) b[v] = {vector};")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {window.filters}; r++)"):
            place = f"place{number}[tap]"
            if self.is_transposed:
                row = (f"{group} * {task.channels} + channel", f"{o} + r")
            else:
                row = (f"{group} * {task.results} + {o} + r", "channel")
            code.line(f"const {acc.scalar_type} a = {acc.load(self.filters, *row, place)};")
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {window.vectors}; v++) c[r][v] += a * b[v];")

    def store(
        self,
        at: tuple[str, str, str],
        output_phase: OutputPhase,
        window: OutputTile,
        indices: tuple[str, ...],
        o: str,
    ) -> None:
        """Write the stores of the lanes that are results."""
        code, task = self.code, self.task
        *outer, j = indices
        pitch = task.planes.pitches[-2] if len(indices) > 1 else 0
        head = (at[0], f"{at[1]} * {task.results} + {o} + r")

        def place(row: str, column: str) -> tuple[str, ...]:
            inner = [*outer[:-1], f"({outer[-1]} + {row})"] if outer else []
            last = _places([f"({j} + {column})"], output_phase, last=True)
            return (*head, *_places(inner, output_phase), *last)

        if output_phase.step[-1] != 1 or not self.acc.is_plain or self.out.strides[-1] != 1:
            lanes = self.lanes_in_memory(window)
            with (
                code.block(f"for (i32 r = 0; r < {window.filters}; r++)"),
                code.block(f"for (i32 row = 0; row < {window.rows}; row++)"),
                code.block(f"for (i32 column = 0; column < {window.columns}; column++)"),
            ):
                value = f"{lanes}[r * {window.vectors * self.lanes} + row * {pitch} + column]"
                code.line(self.acc.store(self.out, value, *place("row", "column")))
            return
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {window.filters}; r++)"):
            for row in range(window.rows):
                lane = row * pitch
                for first, count in _runs(lane, lane + window.columns, self.lanes):
                    value = _lanes(self.acc, f"c[r][{first // self.lanes}]", first, count)
                    where = place(str(row), str(first - lane))
                    if count > 1:
                        address = self.out.at(*where)
                        text = self.acc.store_vector(code, count, address, value, self.out.dtype)
                        code.line(text)
                    else:
                        code.line(self.acc.store(self.out, value, *where))

    def lanes_in_memory(self, window: OutputTile) -> str:
        """Write a copy of the sums, and return the pointer to its lanes.

        To take lanes out of registers one by one is slow to run, and slow to compile.
        """
        code, acc = self.code, self.acc
        code.line(f"{acc.type(self.lanes)} held[{window.filters}][{window.vectors}];")
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {window.filters}; r++)"):
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {window.vectors}; v++) held[r][v] = c[r][v];")
        pointer = f"const {acc.scalar_type} *const"
        return code.define(pointer, "lanes", f"(const {acc.scalar_type} *)held")


def _places(indices: list[str], output_phase: OutputPhase, last: bool = False) -> list[str]:
    """Return the indices of results of an output phase."""
    axes = list(zip(output_phase.first, output_phase.step, strict=True))
    axes = axes[-1:] if last else axes[: len(indices)]
    return [
        index if (first, step) == (0, 1) else f"({first} + {index} * {step})"
        for index, (first, step) in zip(indices, axes, strict=True)
    ]


def _runs(first: int, end: int, lanes: int) -> list[tuple[int, int]]:
    """Return lanes in runs that one instruction stores, none across two vectors."""
    runs = []
    while first < end:
        room = min(lanes - first % lanes, end - first)
        size = 1
        while 2 * size <= room:
            size *= 2
        runs.append((first, size))
        first += size
    return runs


def _lanes(acc: Accumulator, vector: str, first: int, count: int) -> str:
    """Return `count` lanes of a vector, from lane `first` on, counted modulo its lanes."""
    if count == acc.lanes:
        return vector
    parts = [f"LANE({vector}, {first % acc.lanes + i:x})" for i in range(count)]
    return parts[0] if count == 1 else f"VECTOR({acc.type(count)}, {', '.join(parts)})"
