"""Filter gradients of convolutions on serial devices: sums of products over all windows.

A work item copies some images and their output gradients, such that neighboring windows are
contiguous in both, and accumulates products of vectors for a tile of filters and filter elements.
Rows of output gradients are padded with zeros, whose products turn non-finite elements of images
into NaN in neighboring sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.description import TensorDescription
from weft_c.loops.parallel import part_bounds, unravel_index
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.matmul.epilogues import StoreEpilogue
from weft_c.matmul.packing import minimum
from weft_c.matmul.shared_tiles import sum_splits
from weft_c.processor import Processor
from weft_c.source.code import ROLLED, UNROLL, Address
from weft_c.source.index_types import index_type
from weft_c.spatial.geometry import Planes, forward
from weft_c.spatial.padded_copies import copy_planes
from weft_tiling.counters import needs_wide_counter
from weft_tiling.spatial import Geometry

CACHED = 1 << 17
"""The elements of images and outputs that are copied at a time, for the cache."""

SPLIT = 4
"""The most splits of the batch for each compute unit."""


@dataclass(frozen=True)
class FilterGradient:
    """The blocking of a filter gradient.

    Attributes
    ----------
    geometry
        The geometry of the convolution.
    lanes
        The lanes of vectors.
    parts, cuts
        The number of splits of the batch, and of parts of the filters, for work items.
    """

    geometry: Geometry
    lanes: int
    parts: int
    cuts: int

    @property
    def images(self) -> Planes:
        """The padded copies of images."""
        return forward(self.geometry)[0]

    @property
    def outputs(self) -> Planes:
        """The copies of output gradients, with the pitches of the images."""
        counts, sizes = self.geometry.counts, self.images.sizes
        rank = len(counts)
        whole = (counts[0], *sizes[1:])
        return Planes(counts, (1,) * rank, (0,) * rank, ((0,),) * rank, whole)

    @property
    def length(self) -> int:
        """The elements of a channel of copied output gradients, in whole vectors."""
        return -(-self.outputs.size // self.lanes) * self.lanes

    @property
    def of_image(self) -> int:
        """The copied elements of an image."""
        return self.geometry.channels * self.images.size

    @property
    def of_output(self) -> int:
        """The copied elements of an image's output gradients."""
        return self.geometry.filters * self.length

    @property
    def together(self) -> int:
        """The number of images that are copied at a time."""
        most = -(-self.geometry.batch // self.parts)
        return max(1, min(most, CACHED // (self.of_image + self.of_output)))

    @property
    def overrun(self) -> int:
        """How far beyond an image its taps read, where output gradients are zeros."""
        (output_phase,) = forward(self.geometry)[1]
        last = max(offset for _, offset in output_phase.taps)
        return max(last + self.length - self.images.size, 0)

    @property
    def elements(self) -> int:
        """The elements of a work item's copies, with what follows the images."""
        return self.together * (self.of_image + self.of_output) + self.overrun

    def scratch(self, acc: Accumulator) -> int:
        """Return the bytes of scratch memory."""
        g = self.geometry
        sums = self.parts * g.groups * g.filters * g.channels * g.taps if self.parts > 1 else 0
        return (self.parts * self.cuts * self.elements + sums) * acc.sum_dtype.itemsize + 512


def plan_filter_gradient(
    geometry: Geometry, acc: Accumulator, processor: Processor
) -> FilterGradient:
    """Return the blocking of a filter gradient for a processor."""
    parts = max(1, min(geometry.batch, SPLIT * processor.units))
    cuts = max(1, min(-(-2 * processor.units // parts), geometry.filters // 4))
    return FilterGradient(geometry, acc.lanes, parts, cuts)


def write_filter_gradient(
    lowering: Lowering,
    sums: FilterGradient,
    acc: Accumulator,
) -> None:
    """Write the kernels; the operands are images and output gradients."""
    g = sums.geometry
    shape = (g.groups * g.filters, g.channels, g.taps)
    out = lowering.out.cast(shape)
    assert out is not None, "results are contiguous"
    if sums.parts == 1:
        _FilterGradientKernel(lowering, sums, out, acc).write()
        return
    partial = lowering.scratch((sums.parts, *shape), acc.sum_dtype)
    _FilterGradientKernel(lowering, sums, partial, acc).write()
    sum_splits(lowering, partial, StoreEpilogue(out, acc))


class _FilterGradientKernel(KernelBuilder):
    """Builds the kernel of a filter gradient."""

    def __init__(
        self,
        lowering: Lowering,
        sums: FilterGradient,
        out: TensorDescription,
        acc: Accumulator,
    ) -> None:
        super().__init__(lowering, "filter_sums")
        self.sums, self.acc, self.g = sums, acc, sums.geometry
        acc.declare_vectors(self.code)
        self.images = self.array("x", lowering.args[0])
        self.outputs = self.array("delta", lowering.args[1])
        self.out = self.array("out", out, written=True)
        shape = (sums.parts * sums.cuts, sums.elements)
        copied = self.array("copied", lowering.scratch(shape, acc.sum_dtype), True)
        pointer = f"GLOBAL {acc.scalar_type} *const"
        self.seen = self.code.define(pointer, "seen", copied.at("GLOBAL_ID", "0"))
        start = sums.together * sums.of_image + sums.overrun
        self.factors = self.code.define(pointer, "factors", f"{self.seen} + {start}")
        elements = self.g.channels * self.g.taps
        self.rows, self.columns = _tile(self.g.filters, elements, acc.registers)

    def write(self) -> None:
        """Write the loops over groups, images and tiles."""
        code, sums, g = self.code, self.sums, self.g
        (output_phase,) = forward(g)[1]
        text = ", ".join(str(offset) for _, offset in output_phase.taps)
        code.line(f"const i32 offset[{g.taps}] = {{{text}}};")
        number, cut = unravel_index(code, (sums.parts, sums.cuts), "GLOBAL_ID", "i32")
        kind = index_type(needs_wide_counter(g.batch))
        first, end = part_bounds(code, g.batch, f"(i64){number}", str(sums.parts), kind)
        tiles = -(-g.filters // self.rows)
        low, high = part_bounds(code, tiles, f"(i64){cut}", str(sums.cuts), "i32")
        with (
            code.block(f"for (i32 group = 0; group < {g.groups}; group++)"),
            code.block(f"for ({kind} image = {first}; image < {end}; image += {sums.together})"),
        ):
            bound = minimum(str(sums.together), f"{end} - image")
            code.line(f"const i32 count = {bound};")
            with code.block("for (i32 each = 0; each < count; each++)"):
                self.copy()
            if sums.overrun:
                after = code.define("const i32", "after", f"count * {sums.of_image}")
                code.line(f"for (i32 i = 0; i < {sums.overrun}; i++) {self.seen}[{after} + i] = 0;")
            columns = -(-g.channels * g.taps // self.columns)
            with (
                code.block(f"for (i32 down = {low}; down < {high}; down++)"),
                code.block(f"for (i32 across = 0; across < {columns}; across++)"),
            ):
                self.tile(number, f"image == {first}")
        self.launch(sums.parts * sums.cuts)

    def copy(self) -> None:
        """Write the copy of an image and its output gradients."""
        code, sums, g = self.code, self.sums, self.g
        target = f"{self.seen} + each * {sums.of_image}"
        channels = (f"group * {g.channels}", g.channels)
        copy_planes(code, self.acc, self.images, "(image + each)", channels, target, sums.images)
        outputs, rest = sums.outputs, sums.length - sums.outputs.size
        with code.block(f"for (i32 o = 0; o < {g.filters}; o++)"):
            target = code.define(
                f"GLOBAL {self.acc.scalar_type} *const", "into",
                f"{self.factors} + each * {sums.of_output} + o * {sums.length}",
            )  # fmt: skip
            one = (f"(group * {g.filters} + o)", 1)
            copy_planes(code, self.acc, self.outputs, "(image + each)", one, target, outputs)
            if rest:
                code.line(ROLLED)
                code.line(f"for (i32 i = {outputs.size}; i < {sums.length}; i++) {target}[i] = 0;")

    def tile(self, part: str, is_first: str) -> None:
        """Write the sums of a tile over the copied images; the last tiles overlap others."""
        code, sums, g, acc = self.code, self.sums, self.g, self.acc
        rows, columns, lanes = self.rows, self.columns, sums.lanes
        vector = acc.type(lanes)
        elements = g.channels * g.taps
        code.line(f"const i32 o = {minimum(f'down * {rows}', str(g.filters - rows))};")
        code.line(f"const i32 q = {minimum(f'across * {columns}', str(elements - columns))};")
        code.line(f"i32 place[{columns}];")
        code.line(UNROLL)
        place = f"(q + t) / {g.taps} * {sums.images.size} + offset[(q + t) % {g.taps}]"
        code.line(f"for (i32 t = 0; t < {columns}; t++) place[t] = {place};")
        code.line(f"{vector} c[{rows}][{columns}];")
        self.each_sum(f"c[r][t] = {acc.zero(lanes)};")
        with (
            code.block("for (i32 each = 0; each < count; each++)"),
            code.block(f"for (i32 p = 0; p < {sums.length}; p += {lanes})"),
        ):
            code.line(f"{vector} a[{rows}];")
            code.line(UNROLL)
            where = Address(self.factors, f"each * {sums.of_output} + (o + r) * {sums.length} + p")
            loaded = acc.load_vector(code, lanes, where, acc.sum_dtype)
            code.line(f"for (i32 r = 0; r < {rows}; r++) a[r] = {loaded};")
            code.line(UNROLL)
            with code.block(f"for (i32 t = 0; t < {columns}; t++)"):
                where = Address(self.seen, f"each * {sums.of_image} + place[t] + p")
                loaded = acc.load_vector(code, lanes, where, acc.sum_dtype)
                code.line(f"const {vector} b = {loaded};")
                code.line(UNROLL)
                code.line(f"for (i32 r = 0; r < {rows}; r++) c[r][t] += a[r] * b;")
        code.line(f"{vector} added[{rows}][{columns}];  // c stays in registers")
        self.each_sum("added[r][t] = c[r][t];")
        code.line(ROLLED)
        with code.block(f"for (i32 r = 0; r < {rows}; r++)"):
            code.line(ROLLED)
            with code.block(f"for (i32 t = 0; t < {columns}; t++)"):
                code.line(f"if (o + r < down * {rows} || q + t < across * {columns}) continue;")
                self.store(part, is_first)

    def store(self, part: str, is_first: str) -> None:
        """Write the store of a sum, or its addition to the sum of earlier images."""
        code, g, acc = self.code, self.g, self.acc
        total = "added[r][t]"
        if self.sums.lanes > 1:
            name = code.define(f"const {acc.type(acc.lanes)}", "sums", total)
            total = acc.horizontal_sum(name)
        head = (part,) if self.sums.parts > 1 else ()
        where = (*head, f"group * {g.filters} + o + r", f"(q + t) / {g.taps}",
                 f"(q + t) % {g.taps}")  # fmt: skip
        code.line(f"{acc.scalar_type} total = {total};")
        if self.sums.together < -(-g.batch // self.sums.parts):
            code.line(f"if (!({is_first})) total += {acc.load(self.out, *where)};")
        code.line(acc.store(self.out, "total", *where))

    def each_sum(self, statement: str) -> None:
        """Write a statement for every vector of sums."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 r = 0; r < {self.rows}; r++)"):
            code.line(UNROLL)
            code.line(f"for (i32 t = 0; t < {self.columns}; t++) {statement}")


def _tile(filters: int, elements: int, registers: int) -> tuple[int, int]:
    """Return the filters and filter elements of the tile that takes the fewest cycles."""
    candidates = []
    for rows in range(1, min(filters, 8) + 1):
        for columns in range(1, min(elements, registers // rows, 12) + 1):
            tiles = -(-filters // rows) * -(-elements // columns)
            cycles = max(rows * columns, rows + columns, 8) + 1
            candidates.append((tiles * cycles, -rows, (rows, columns)))
    return min(candidates)[2]
