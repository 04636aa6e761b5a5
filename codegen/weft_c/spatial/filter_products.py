"""Filter gradients of many filters on serial devices: products of vectors of filters.

A work item copies blocks of channels of some images, zero-padded, and packs their output gradients
such that neighboring filters are contiguous. A term of the sum is a window: its elements of the
image are broadcast, and multiply vectors of filters. So images of few windows, as those of late
layers are, take no longer than large ones with as many windows in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

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
"""The elements of images that are copied at a time, for the cache."""

DEPTH = 1024
"""The most windows whose output gradients are packed at a time, for the cache."""

STRIP = 64
"""The elements of filters whose sums are stored at a time, as rows that fill lines of the cache."""


@dataclass(frozen=True)
class FilterProduct:
    """The blocking of a filter gradient.

    Attributes
    ----------
    geometry
        The geometry of the convolution.
    columns, vectors
        The tile of sums: elements of filters, and vectors of filters.
    lanes
        The lanes of vectors.
    parts, cuts
        The number of splits of the batch, and of the filters, for work items.
    """

    geometry: Geometry
    columns: int
    vectors: int
    lanes: int
    parts: int
    cuts: int

    @property
    def planes(self) -> Planes:
        """The padded copies of images."""
        return forward(self.geometry)[0]

    @property
    def width(self) -> int:
        """The filters of a tile."""
        return self.vectors * self.lanes

    @property
    def windows(self) -> int:
        """The windows of an image."""
        return prod(self.geometry.counts)

    @property
    def together(self) -> int:
        """The number of images that are copied at a time."""
        most = -(-self.geometry.batch // self.parts)
        return max(1, min(most, DEPTH // self.windows))

    @property
    def channels(self) -> int:
        """The number of channels that are copied at a time: those of whole tiles."""
        step = max(self.columns // self.geometry.taps, 1)
        most = CACHED // (self.together * self.planes.size)
        return min(max(most // step, 1) * step, -(-self.geometry.channels // step) * step)

    @property
    def copied(self) -> int:
        """The elements of a work item's copies of images."""
        return self.together * self.channels * self.planes.size

    @property
    def depth(self) -> int:
        """The windows whose output gradients are packed at a time."""
        count = self.together * self.windows
        return -(-count // -(-count // DEPTH))

    @property
    def adds(self) -> bool:
        """Whether a sum is stored more than once, each time with more windows."""
        most = -(-self.geometry.batch // self.parts)
        return self.together < most or self.depth < self.together * self.windows

    def has_partial_sums(self, acc: Accumulator) -> bool:
        """Whether sums are in scratch memory first: those of parts, and those that round."""
        return self.parts > 1 or (self.adds and not acc.is_plain)

    @property
    def strip(self) -> int:
        """The elements of filters whose sums are stored at a time: those of whole tiles."""
        return -(-STRIP // self.columns) * self.columns

    @property
    def elements(self) -> int:
        """The elements of a work item's copies and sums."""
        return self.copied + (self.depth + self.strip) * self.width

    def scratch(self, acc: Accumulator) -> int:
        """Return the bytes of scratch memory."""
        g = self.geometry
        size = self.parts * g.groups * g.filters * g.channels * g.taps
        sums = size if self.has_partial_sums(acc) else 0
        return (self.parts * self.cuts * self.elements + sums) * acc.sum_dtype.itemsize + 512


def plan_filter_product(
    geometry: Geometry, acc: Accumulator, processor: Processor
) -> FilterProduct | None:
    """Return the blocking of a filter gradient; None if vectors of filters would be part empty.

    Parts of the batch have sums of their own, and parts of the filters copy the same images: there
    are more of what costs less.
    """
    g, lanes = geometry, acc.lanes
    tile = _tile(g, acc) if 1 < lanes <= g.filters else None
    if tile is None:
        return None
    columns, vectors = tile
    panels = -(-g.filters // (vectors * lanes))
    sums, copies = g.filters * g.taps, g.batch * forward(g)[0].size
    items = 1 if processor.units == 1 else 2 * processor.units
    if sums < copies:
        parts = max(1, min(g.batch, items))
        cuts = min(panels, -(-items // parts))
    else:
        cuts = min(panels, items)
        parts = max(1, min(g.batch, -(-items // cuts)))
    return FilterProduct(g, columns, vectors, lanes, parts, cuts)


def write_filter_product(lowering: Lowering, sums: FilterProduct, acc: Accumulator) -> None:
    """Write the kernels; the operands are images and output gradients."""
    g = sums.geometry
    shape = (g.groups * g.filters, g.channels * g.taps)
    out = lowering.out.cast(shape)
    assert out is not None, "results are contiguous"
    if not sums.has_partial_sums(acc):
        _FilterProductKernel(lowering, sums, out, acc).write()
        return
    partial = lowering.scratch((sums.parts, *shape), acc.sum_dtype)
    _FilterProductKernel(lowering, sums, partial, acc).write()
    sum_splits(lowering, partial, StoreEpilogue(out, acc))


class _FilterProductKernel(KernelBuilder):
    """Builds the kernel of a filter gradient."""

    def __init__(
        self, lowering: Lowering, sums: FilterProduct, out: TensorDescription, acc: Accumulator
    ) -> None:
        super().__init__(lowering, "filter_products")
        self.sums, self.acc, self.g = sums, acc, sums.geometry
        acc.declare_vectors(self.code)
        self.images = self.array("x", lowering.args[0])
        self.outputs = self.array("delta", lowering.args[1])
        self.out = self.array("out", out, written=True)
        shape = (sums.parts * sums.cuts, sums.elements)
        memory = self.array("copied", lowering.scratch(shape, acc.sum_dtype), True)
        pointer = f"GLOBAL {acc.scalar_type} *const"
        self.seen = self.code.define(pointer, "seen", memory.at("GLOBAL_ID", "0"))
        self.panel = self.code.define(pointer, "panel", f"{self.seen} + {sums.copied}")
        start = sums.copied + sums.depth * sums.width
        self.added = self.code.define(pointer, "added", f"{self.seen} + {start}")
        self.columns, self.vectors = sums.columns, sums.vectors
        self.offsets = [offset for _, offset in forward(self.g)[1][0].taps]

    def write(self) -> None:
        """Write the loops over groups, images, channels, windows and tiles."""
        code, sums, g = self.code, self.sums, self.g
        number, cut = unravel_index(code, (sums.parts, sums.cuts), "GLOBAL_ID", "i32")
        kind = index_type(needs_wide_counter(g.batch))
        first, end = part_bounds(code, g.batch, f"(i64){number}", str(sums.parts), kind)
        panels = -(-g.filters // sums.width)
        low, high = part_bounds(code, panels, f"(i64){cut}", str(sums.cuts), "i32")
        code.line(f"const i32 offset[{g.taps}] = {{{', '.join(map(str, self.offsets))}}};")
        code.line(f"i32 at[{DEPTH}];")
        with (
            code.block(f"for (i32 group = 0; group < {g.groups}; group++)"),
            code.block(f"for ({kind} image = {first}; image < {end}; image += {sums.together})"),
            code.block(
                f"for (i32 channel = 0; channel < {g.channels}; channel += {sums.channels})"
            ),
        ):
            code.line(f"const i32 images = {minimum(str(sums.together), f'{end} - image')};")
            remaining = f"{g.channels} - channel"
            code.line(f"const i32 channels = {minimum(str(sums.channels), remaining)};")
            self.copy()
            code.line(f"const i32 windows = images * {sums.windows};")
            with code.block(f"for (i32 start = 0; start < windows; start += {sums.depth})"):
                code.line(f"const i32 depth = {minimum(str(sums.depth), 'windows - start')};")
                self.places()
                with code.block(f"for (i32 down = {low}; down < {high}; down++)"):
                    code.line(f"const i32 o = down * {sums.width};")
                    code.line(f"const i32 rows = {minimum(str(sums.width), f'{g.filters} - o')};")
                    self.pack()
                    with code.block(f"for (i32 p = 0; p < channels * {g.taps}; p += {sums.strip})"):
                        left = f"channels * {g.taps} - p"
                        code.line(f"const i32 count = {minimum(str(sums.strip), left)};")
                        step = f"q += {self.columns}"
                        with code.block(f"for (i32 q = p; q < p + count; {step})"):
                            self.tile()
                        self.store(number, f"image == {first} && start == 0")
        self.launch(sums.parts * sums.cuts)

    def copy(self) -> None:
        """Write the copy of a block of channels of some images."""
        code, sums = self.code, self.sums
        with code.block("for (i32 each = 0; each < images; each++)"):
            target = f"{self.seen} + each * {sums.channels * sums.planes.size}"
            channels = (f"(group * {self.g.channels} + channel)", "channels")
            copy_planes(code, self.acc, self.images, "(image + each)", channels, target,
                        sums.planes)  # fmt: skip

    def window(self) -> tuple[str, tuple[str, ...]]:
        """Write the index of window `k` of the block: its image, and its place along each axis."""
        shape = (self.sums.together, *self.g.counts)
        each, *place = unravel_index(self.code, shape, "(start + k)", "i32")
        return each, tuple(place)

    def places(self) -> None:
        """Write the table of where the windows begin in the copies."""
        code, planes = self.code, self.sums.planes
        code.line(ROLLED)
        with code.block("for (i32 k = 0; k < depth; k++)"):
            each, place = self.window()
            terms = [f"{each} * {self.sums.channels * planes.size}"]
            terms += [f"{at} * {pitch}" for at, pitch in zip(place, planes.pitches, strict=True)]
            code.line(f"at[k] = {' + '.join(terms)};")

    def pack(self) -> None:
        """Write the packing of the output gradients of a panel of filters, filled with zeros."""
        code, width = self.code, self.sums.width
        code.line(ROLLED)
        with code.block("for (i32 k = 0; k < depth; k++)"):
            each, place = self.window()
            code.line("i32 j = 0;")
            filter_ = f"(group * {self.g.filters} + o + j)"
            value = self.acc.load(self.outputs, f"(image + {each})", filter_, *place)
            code.line(ROLLED)
            code.line(f"for (; j < rows; j++) {self.panel}[k * {width} + j] = {value};")
            code.line(ROLLED)
            code.line(f"for (; j < {width}; j++) {self.panel}[k * {width} + j] = 0;")

    def tile(self) -> None:
        """Write the sums of a tile over the windows of the block."""
        code, sums, acc = self.code, self.sums, self.acc
        lanes, columns, vectors = sums.lanes, self.columns, self.vectors
        vector = acc.type(lanes)
        self.elements()
        code.line(f"{vector} c[{columns}][{vectors}];")
        self.each_sum(f"c[t][v] = {acc.zero(lanes)};")
        code.line(ROLLED)
        with code.block("for (i32 k = 0; k < depth; k++)"):
            code.line(f"GLOBAL const {acc.scalar_type} *const term = first + at[k];")
            code.line(f"{vector} a[{vectors}];")
            code.line(UNROLL)
            where = Address(self.panel, f"k * {sums.width} + v * {lanes}")
            loaded = acc.load_vector(code, lanes, where, acc.sum_dtype)
            code.line(f"for (i32 v = 0; v < {vectors}; v++) a[v] = {loaded};")
            self.each_sum(acc.add_product("c[t][v]", "term[place[t]]", "a[v]"))
        into = Address(self.added, f"(q - p + t) * {sums.width} + v * {lanes}")
        self.each_sum(acc.store_vector(code, lanes, into, "c[t][v]", acc.sum_dtype))

    def elements(self) -> None:
        """Write where the elements of the filters in a tile are read, from `first` on."""
        code, g, size = self.code, self.g, self.sums.planes.size
        start = f"{self.seen} + q / {g.taps} * {size} + offset[q % {g.taps}]"
        code.line(f"GLOBAL const {self.acc.scalar_type} *const first = {start};")
        channels = range(max(self.columns // g.taps, 1))
        places = [n * size + offset for n in channels for offset in self.offsets[: self.columns]]
        code.line(f"const i32 place[{self.columns}] = {{{', '.join(map(str, places))}}};")

    def store(self, part: str, is_first: str) -> None:
        """Write the store of a strip of sums, or their addition to those of earlier windows."""
        code, g, acc, sums = self.code, self.g, self.acc, self.sums
        head = (part,) if sums.has_partial_sums(acc) else ()
        where = (*head, f"(group * {g.filters} + o + j)", f"(channel * {g.taps} + p + t)")
        total = f"{self.added}[t * {sums.width} + j]"
        code.line(ROLLED)
        with code.block("for (i32 j = 0; j < rows; j++)"):
            each = "for (i32 t = 0; t < count; t++)"
            if sums.adds:
                with code.block(f"if (!({is_first}))"):
                    code.line(ROLLED)
                    earlier = acc.load(self.out, *where)
                    code.line(f"{each} {total} += {earlier};")
            code.line(ROLLED)
            code.line(f"{each} {acc.store(self.out, total, *where)}")

    def each_sum(self, statement: str) -> None:
        """Write a statement for every vector of sums."""
        code = self.code
        code.line(UNROLL)
        with code.block(f"for (i32 t = 0; t < {self.columns}; t++)"):
            code.line(UNROLL)
            code.line(f"for (i32 v = 0; v < {self.vectors}; v++) {statement}")


def _tile(g: Geometry, acc: Accumulator) -> tuple[int, int] | None:
    """Return the elements and vectors of filters of the tile that takes the fewest cycles.

    Elements are those of whole channels, or those of one line of a filter, whose places in an image
    are known beside that of the first. None if neither fits in registers.
    """
    candidates = []
    for vectors in (1, 2, 3):
        most = acc.tile_rows(vectors)
        columns = min(most // g.taps, g.channels) * g.taps or g.sliding.kernel[-1]
        if columns <= most:
            tiles = -(-g.filters // (vectors * acc.lanes)) * -(-g.channels * g.taps // columns)
            candidates.append((tiles * (columns * vectors + vectors + 1), vectors, columns))
    if not candidates:
        return None
    _, vectors, columns = min(candidates)
    return columns, vectors
