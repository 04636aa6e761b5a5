"""Convolution with packed filters on serial devices, with a tile of sums in registers.

A tile has some results of neighboring windows, and for each of these a few vectors of filters. A
term of its sums loads the vectors of the filters, and a number of the image for each window. A work
item takes a block of rows: it copies what they read with zero padding, where windows read beyond
the image, and computes one panel of filters after the other. Complete sums are transposed to rows
of results, which the epilogue processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft_c.loops.parallel import part_bounds, unravel_index, work_item_bounds
from weft_c.lowering import Lowering, needs_scratch, rules
from weft_c.matmul.accumulators import VECTOR, accumulator_of
from weft_c.matmul.epilogues import Epilogue, StoreEpilogue
from weft_c.processor import Processor
from weft_c.source.code import ROLLED, UNROLL, Address
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_c.spatial.geometry import Planes
from weft_c.spatial.packed_filters import (
    PackedConvolutionOp,
    PixelTile,
    Windows,
    best_pixel_tile,
    windows_of,
)
from weft_c.spatial.padded_copies import copy_planes
from weft_tiling.sharing import GROUPS_PER_UNIT
from weft_tiling.spatial import Geometry

IMAGE_BYTES = 1 << 18
"""The bytes of a block's part of the image, which stay in the second-level cache."""

SUM_BYTES = 1 << 16
"""The bytes of a block's sums."""

MIN_TASKS = 4
"""The tasks for each compute unit, below which the rows of an image are divided."""

SHORT = 4
"""The lanes of the vectors in which sums are transposed."""


@dataclass(frozen=True)
class Blocks:
    """The division of the results into tasks.

    Attributes
    ----------
    windows, tile
        The windows, and the tile of sums.
    rows
        The number of blocks of rows.
    panels
        The number of parts of the panels.
    items
        The number of work items.
    """

    windows: Windows
    tile: PixelTile
    rows: int
    panels: int
    items: int

    @property
    def grid(self) -> tuple[int, int, int, int]:
        """The images, groups, blocks of rows, and parts of the panels."""
        return (self.windows.batch, self.windows.groups, self.rows, self.panels)

    @property
    def panel_count(self) -> int:
        """The number of panels."""
        return -(-self.windows.results // self.tile.width)

    @property
    def most_rows(self) -> int:
        """The most rows of a block."""
        return -(-self.windows.counts[0] // self.rows)

    @property
    def planes(self) -> Planes:
        """The padded copy of a block's part of the image."""
        windows = self.windows
        sizes = windows.extent(0, self.most_rows), windows.extent(1, windows.counts[1])
        return Planes(windows.lengths, (1, 1), windows.before, ((0,), (0,)), sizes)

    @property
    def copied(self) -> int:
        """The elements of that copy; 0 where the image is read in place."""
        windows = self.windows
        return windows.channels * self.planes.size + VECTOR if windows.is_padded else 0

    @property
    def sums(self) -> int:
        """The elements of the sums of a panel."""
        return self.tile.width * self.most_rows * self.windows.counts[1]

    def scratch(self, dtype: DType) -> int:
        """Return the bytes of scratch memory."""
        return sum(
            -(-self.items * each * dtype.itemsize // 256) * 256 for each in (self.copied, self.sums)
        )


def blocks_of(windows: Windows, tile: PixelTile, processor: Processor) -> Blocks:
    """Return the division of the results for the caches and compute units of a processor."""
    height, width = windows.counts
    whole = Blocks(windows, tile, 1, 1, 1)
    line = windows.channels * windows.extent(1, width) * windows.step[0] * 4
    rows = min(IMAGE_BYTES // line, SUM_BYTES // (tile.width * width * 4), height)
    wanted = MIN_TASKS * processor.units
    parts = -(-wanted // (windows.batch * windows.groups))
    most = max(height // tile.rows, 1)
    blocks = min(most, max(-(-height // max(rows, 1)), min(parts, most // 2)))
    # A block has the rows of a tile at least.
    blocks = max(1, blocks)
    panels = min(whole.panel_count, -(-parts // blocks))
    tasks = windows.batch * windows.groups * blocks * panels
    return Blocks(windows, tile, blocks, panels, min(tasks, processor.units * GROUPS_PER_UNIT))


def plan(op: PackedConvolutionOp, processor: Processor) -> Blocks:
    """Return how a convolution is computed."""
    images, packed = op.args
    batch, _, *lengths = images.axes.shape
    channels, counts = packed.axes.shape[2] // prod(op.kernel), op.axes.shape[2:]
    if op.is_transposed:
        g = Geometry(
            batch, op.groups, op.results, channels, tuple(counts), tuple(lengths), op.sliding
        )
    else:
        g = Geometry(
            batch, op.groups, channels, op.results, tuple(lengths), tuple(counts), op.sliding
        )
    windows = windows_of(g, op.is_transposed)
    acc = accumulator_of(op, processor)
    _, tile = best_pixel_tile(windows, acc, packed.axes.shape[-1])
    return blocks_of(windows, tile, processor)


@needs_scratch(PackedConvolutionOp)
def packed_convolution_bytes(op: PackedConvolutionOp, processor: Processor) -> int:
    """Return the bytes of scratch memory of a convolution."""
    return plan(op, processor).scratch(op.dtype)


@rules.on_type(PackedConvolutionOp)
def packed_convolution(op: PackedConvolutionOp, lowering: Lowering) -> None:
    """Lower a convolution whose results are stored."""
    acc = accumulator_of(op, lowering.processor)
    images, packed = lowering.args
    write_packed_convolution(op, lowering, images, packed, StoreEpilogue(lowering.out, acc))


def write_packed_convolution(
    op: PackedConvolutionOp,
    lowering: Lowering,
    images: TensorDescription,
    packed: TensorDescription,
    epilogue: Epilogue,
) -> None:
    """Write the kernel of a convolution, with an epilogue of its results."""
    blocks = plan(op, lowering.processor)
    images = images.cast((*images.shape[:2], *blocks.windows.lengths)) or images
    _PackedConvolutionKernel(lowering, blocks, images, packed, epilogue).write()


class _PackedConvolutionKernel:
    """Builds the kernel of a convolution with packed filters."""

    def __init__(
        self,
        lowering: Lowering,
        blocks: Blocks,
        images: TensorDescription,
        packed: TensorDescription,
        epilogue: Epilogue,
    ) -> None:
        self.blocks, self.windows, self.tile = blocks, blocks.windows, blocks.tile
        batch, groups, results = self.windows.batch, self.windows.groups, self.windows.results
        flat = epilogue.viewed(
            lambda layout: layout.cast((batch, groups * results, self.windows.pixels))
        )
        lines = epilogue.viewed(
            lambda layout: layout.cast((batch, groups * results, *self.windows.counts))
        )
        # Rows of results that follow one another in all tensors are one row.
        self.is_flat = flat is not None
        chosen = flat or lines
        assert chosen is not None, "an axis of length 1 can be added to any strides"
        self.epilogue = chosen
        self.builder = self.epilogue.begin(lowering, "convolution")
        self.code, self.acc = self.builder.code, self.epilogue.acc
        self.acc.declare_vectors(self.code)
        self.source = self.builder.array("x", images)
        self.packed = self.builder.array("filters", packed)
        self.sums = self.scratch(lowering, "sums", blocks.sums)
        self.planes = ""
        if self.windows.is_padded:
            self.planes = self.scratch(lowering, "planes", blocks.copied)
        # A view of a large tensor may have long strides.
        self.kind = index_type(is_wide(images))
        *_, self.line, self.column = self.source.strides
        self.plane = self.source.strides[1]
        if self.planes:
            self.plane, self.line, self.column = blocks.planes.size, blocks.planes.sizes[1], 1

    def scratch(self, lowering: Lowering, hint: str, elements: int) -> str:
        """Return the pointer to the work item's scratch memory."""
        layout = lowering.scratch((self.blocks.items, elements), self.acc.sum_dtype)
        address = self.builder.array(hint, layout, written=True).at("GLOBAL_ID", "0")
        return self.code.define(f"GLOBAL {self.acc.scalar_type} *const", hint, address)

    def write(self) -> None:
        """Write the loops over blocks of rows, panels and tiles."""
        code, blocks, windows = self.code, self.blocks, self.windows
        self.declare_taps()
        grid = blocks.grid
        begin, end = work_item_bounds(code, prod(grid), blocks.items, "i32")
        with code.block(f"for (i32 task = {begin}; task < {end}; task++)"):
            image, group, block, part = unravel_index(code, grid, "task", "i32")
            first, last = part_bounds(
                code, windows.counts[0], f"(i64){block}", str(blocks.rows), "i32"
            )
            channels = f"{group} * {windows.channels}"
            if self.planes:
                copy_planes(
                    code, self.acc, self.source, image, (channels, windows.channels), self.planes,
                    blocks.planes, f"{first} * {windows.step[0]}",
                )  # fmt: skip
                seen = self.planes
            else:
                address = self.source.at(image, channels, f"{first} * {windows.step[0]}", "0")
                seen = code.define(f"GLOBAL const {self.acc.scalar_type} *const", "seen", address)
            low, high = part_bounds(
                code, blocks.panel_count, f"(i64){part}", str(blocks.panels), "i32"
            )
            with code.block(f"for (i32 panel = {low}; panel < {high}; panel++)"):
                self.write_panel((image, group), (first, last), seen)
        self.builder.launch(blocks.items)

    def declare_taps(self) -> None:
        """Write the place of each tap's numbers in a panel, and in the image."""
        taps = self.windows.taps
        places = [number * self.tile.width for number, _ in taps]
        offsets = [row * self.line + column * self.column for _, (row, column) in taps]
        for name, values in (("place", places), ("offset", offsets)):
            text = ", ".join(map(str, values))
            self.code.line(f"const {self.kind} {name}[{len(values)}] = {{{text}}};")

    def write_panel(self, at: tuple[str, str], rows: tuple[str, str], seen: str) -> None:
        """Write the sums of a block for the filters of a panel, and their epilogue."""
        code, tile = self.code, self.tile
        first, last = rows
        address = self.packed.at(at[1], "panel", "0", "0")
        pointer = f"GLOBAL const {self.acc.scalar_type} *const"
        filters = code.define(pointer, "filters", address)
        height = code.define("const i32", "height", f"{last} - {first}")
        with (
            self.steps("row", height, tile.rows) as row,
            self.steps("column", str(self.windows.counts[1]), tile.columns) as column,
        ):
            self.write_tile(filters, seen, row, column)
        self.write_results(at, first, height)

    @contextmanager
    def steps(self, hint: str, length: str, size: int) -> Iterator[str]:
        """Open a loop over the tiles along an axis; the last one overlaps its predecessor."""
        code, counter = self.code, self.code.name(hint)
        head = f"for ({self.kind} {counter} = 0; {counter} < {length}; {counter} += {size})"
        with code.block(head):
            if size == 1:
                yield counter
                return
            last = f"{length} - {size}"
            yield code.define(
                f"const {self.kind}", hint, f"{counter} < {last} ? {counter} : {last}"
            )

    def write_tile(self, filters: str, seen: str, row: str, column: str) -> None:
        """Write the sums of a tile, and their transposition."""
        code, acc, tile, windows = self.code, self.acc, self.tile, self.windows
        lanes, vector = tile.lanes, acc.type(tile.lanes)
        down, across = windows.step[0] * self.line, windows.step[1] * self.column
        start = f"{row} * {down} + {column} * {across}"
        pointer = f"GLOBAL const {acc.scalar_type} *"
        x = code.define(f"{pointer}const", "x", f"{seen} + {start}")
        code.line(f"{vector} c[{tile.pixels}][{tile.vectors}];")
        with self.each_sum():
            code.line(f"c[p][v] = {acc.zero(lanes)};")
        with (
            code.block(f"for ({self.kind} channel = 0; channel < {windows.channels}; channel++)"),
            code.block(f"for (i32 tap = 0; tap < {len(windows.taps)}; tap++)"),
        ):
            code.line(f"{pointer}const s = {x} + channel * {self.plane} + offset[tap];")
            terms = self.packed.layout.shape[2] // windows.channels * tile.width
            code.line(f"{pointer}const w = {filters} + channel * {terms} + place[tap];")
            code.line(f"{vector} b[{tile.vectors}];")
            code.line(UNROLL)
            loaded = acc.load_vector(code, lanes, Address("w", f"v * {lanes}"), acc.dtype)
            code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) b[v] = {loaded};")
            for pixel in range(tile.pixels):
                i, j = divmod(pixel, tile.columns)
                with code.block():
                    code.line(f"const {acc.scalar_type} a = s[{i * down + j * across}];")
                    code.line(UNROLL)
                    added = acc.add_product(f"c[{pixel}][v]", "a", "b[v]")
                    code.line(f"for (i32 v = 0; v < {tile.vectors}; v++) {added}")
        self.transpose(row, column)

    @contextmanager
    def each_sum(self) -> Iterator[None]:
        """Open loops over the vectors of sums, ``c[p][v]``."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 p = 0; p < {self.tile.pixels}; p++)"):
            code.line(UNROLL)
            with code.block(f"for (i32 v = 0; v < {self.tile.vectors}; v++)"):
                yield

    def transpose(self, row: str, column: str) -> None:
        """Write the move of a tile's sums to the rows of their filters."""
        code, acc, tile = self.code, self.acc, self.tile
        width, count = tile.width, self.windows.counts[1]
        code.line(f"{acc.scalar_type} turned[{tile.pixels * width}];")
        with self.each_sum():
            address = Address("turned", f"p * {width} + v * {tile.lanes}")
            near = f"near_{acc.type(tile.lanes)}"
            code.line(f"*({near} *)({address}) = c[p][v];")
        short, near = acc.type(SHORT), f"near_{acc.type(SHORT)}"
        code.line(ROLLED)
        with code.block(f"for (i32 filter = 0; filter < {width}; filter += {SHORT})"):
            for down in range(tile.rows):
                line = f"{self.sums} + ({row} + {down}) * {count} + {column}"
                for across in range(0, tile.columns, SHORT):
                    pixels = [
                        down * tile.columns + at
                        for at in range(across, min(across + SHORT, tile.columns))
                    ]
                    with code.block():
                        self.transpose_block(pixels, line, across, (short, near))

    def transpose_block(
        self, pixels: list[int], line: str, across: int, types: tuple[str, str]
    ) -> None:
        """Write the move of a few filters' sums of a few neighboring windows."""
        code, width = self.code, self.tile.width
        pitch = self.blocks.most_rows * self.windows.counts[1]
        short, near = types
        for number, pixel in enumerate(pixels):
            code.line(
                f"const {short} t{number} = *(const {near} *)(turned + {pixel * width} + filter);"
            )
        for lane in range(SHORT):
            address = f"{line} + {across} + (filter + {lane}) * {pitch}"
            parts = [f"LANE(t{number}, {lane})" for number in range(len(pixels))]
            if len(pixels) == SHORT:
                code.line(f"*(GLOBAL {near} *)({address}) = VECTOR({short}, {', '.join(parts)});")
            else:
                for number, part in enumerate(parts):
                    code.line(f"({address})[{number}] = {part};")

    def write_results(self, at: tuple[str, str], first: str, height: str) -> None:
        """Write the epilogue of a block's sums for the filters of a panel."""
        code, windows, width = self.code, self.windows, self.tile.width
        count = windows.counts[1]
        filters = str(width)
        if windows.results % width:
            left = f"{windows.results} - panel * {width}"
            filters = code.define("const i32", "filters", f"{left} < {width} ? {left} : {width}")
        code.line(ROLLED)
        with code.block(f"for (i32 filter = 0; filter < {filters}; filter++)"):
            channel = code.define(
                "const i32", "channel", f"{at[1]} * {windows.results} + panel * {width} + filter"
            )
            line = f"filter * {self.blocks.most_rows * count}"
            if self.is_flat:
                start = f"{first} * {count} + "
                self.write_row((at[0], channel), f"{height} * {count}", line, start)
                return
            with code.block(f"for (i32 row = 0; row < {height}; row++)"):
                index = (at[0], channel, f"{first} + row")
                self.write_row(index, str(count), f"{line} + row * {count}", "")

    def write_row(self, index: tuple[str, ...], length: str, line: str, start: str) -> None:
        """Write the epilogue of a row of sums, in vectors and the rest."""
        code, lanes = self.code, self.acc.lanes
        code.line("i32 j = 0;")
        has_vectors = self.epilogue.takes_vectors(self.builder)
        for each in (lanes, 1) if has_vectors else (1,):
            code.line(ROLLED)
            with code.block(f"for (; j + {each} <= {length}; j += {each})"):
                address = Address(self.sums, f"{line} + j")
                kind = f"const {self.acc.type(each)}"
                vector = self.acc.load_vector(code, each, address, self.acc.sum_dtype)
                total = code.define(kind, "total", vector)
                self.epilogue.write(
                    self.builder, ValueEmitter(code, each), (*index, f"{start}j"), total
                )
