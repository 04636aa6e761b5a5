"""Matrix products, by themselves and in fused kernels, and convolutions as products.

A work group computes a tile of sums from shared memory; a row or a column is multiplied without.
Which tiles, and in how many parts the sums are split, is decided as for the other devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from weft.ir import dtypes
from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.kernels import Kernel
from weft.ops import MatmulOp
from weft_c.processor import Processor
from weft_tiling.products import MAX_UNTILED_WORK, SLICE, column_splits, split_k, tile_shape
from weft_webgpu import wgsl
from weft_webgpu.shader import Lowering, Shader, each_point
from weft_webgpu.sweeps import ROW_GROUP, Sweep, Values, tree

Place = Sequence[str]
SUMS = {
    "f32": dtypes.float32, "i32": dtypes.int32, "u32": dtypes.uint32,
    "i64": dtypes.int64, "u64": dtypes.uint64,
}  # fmt: skip
"""The dtypes of sums in memory, by their type."""


@dataclass(frozen=True)
class Factors:
    """Matrices [..., m, k] and [..., k, n], and what becomes of the elements of their product.

    Attributes
    ----------
    title
        The title of the kernel.
    batch, m, n, k
        The lengths.
    dtype
        The dtype of the product.
    first, second
        Functions that return an element, given the place in the batch and in the matrix, and write
        the lines that this needs.
    finish
        A function that writes the lines that process a sum, given its place.
    by_terms
        Whether the terms of a sum are next to each other in each matrix.
    """

    title: str
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    dtype: DType
    first: Callable[[Shader, Place], str]
    second: Callable[[Shader, Place], str]
    finish: Callable[[Shader, Place, str], None]
    by_terms: tuple[bool, bool]

    @property
    def kind(self) -> str:
        """The type of the sums."""
        return wgsl.type_of(self.dtype)

    @property
    def size(self) -> int:
        """The number of sums."""
        return math.prod(self.batch) * self.m * self.n

    def with_folded_batch(self) -> Factors:
        """Return the factors with the batch in the rows, for a second matrix that all share."""
        shape = (*self.batch, self.m)
        names = [f"f{axis}" for axis in range(len(shape))]

        def unfolded(shader: Shader, place: Place) -> list[str]:
            shader.coordinates(place[0], shape, names)
            return [*names, place[1]]

        return replace(
            self,
            batch=(),
            m=math.prod(shape),
            first=lambda shader, place: self.first(shader, unfolded(shader, place)),
            second=lambda shader, place: self.second(shader, [*["0"] * len(self.batch), *place]),
            finish=lambda shader, place, total: self.finish(shader, unfolded(shader, place), total),
        )

    def transposed(self) -> Factors:
        """Return the factors of the transposed product."""

        def swapped(place: Place) -> list[str]:
            *batch, row, column = place
            return [*batch, column, row]

        return replace(
            self,
            m=self.n,
            n=self.m,
            first=lambda shader, place: self.second(shader, swapped(place)),
            second=lambda shader, place: self.first(shader, swapped(place)),
            finish=lambda shader, place, total: self.finish(shader, swapped(place), total),
            by_terms=(self.by_terms[1], self.by_terms[0]),
        )


def product_rule(op: Op, lowering: Lowering) -> None:
    """Append the launches of a product of matrices."""
    (x, y), out = lowering.step.args, lowering.step.out
    multiply(lowering, _factors(op, (x, y), stored(out), "product"))


def stored(out: TensorDescription) -> Callable[[Shader, Place, str], None]:
    """Return what stores sums in a tensor."""

    def finish(shader: Shader, place: Place, total: str) -> None:
        value = wgsl.wrapped(out.dtype, total)
        shader.line(shader.element(out, place, written=True).store(value))

    return finish


def fused_product(kernel: Kernel, lowering: Lowering) -> None:
    """Append the launches of a fused kernel with a product."""
    product, step = kernel.product, lowering.step
    assert product is not None
    number = len(kernel.operands) + len(kernel.prologue)
    after = Values(Sweep.of_kernel(kernel), step.args)

    def finish(shader: Shader, place: Place, total: str) -> None:
        shader.line(f"let v{number} = {wgsl.wrapped(product.dtype, total)};")
        after.compute(shader, after.required(kernel.outputs, {number}), {number}, place)
        for out, result in zip(step.outs, kernel.outputs, strict=True):
            where = after.coordinates(result, place)
            shader.line(shader.element(out, where, written=True).store(f"v{result}"))

    first, second = product.args
    y = step.args[second]
    if not kernel.prologue:
        multiply(lowering, _factors(product.op, (step.args[first], y), finish, kernel.title))
        return
    before = Values(after.sweep.everywhere(first), step.args)

    def computed(shader: Shader, place: Place) -> str:
        before.compute(shader, before.required([first], ()), set(), place)
        return f"v{first}"

    multiply(lowering, _factors(product.op, (None, y), finish, kernel.title, computed))


def _factors(
    op: Any,
    args: tuple[TensorDescription | None, TensorDescription],
    finish: Callable[[Shader, Place, str], None],
    title: str,
    computed: Callable[[Shader, Place], str] | None = None,
) -> Factors:
    """Return the factors of a product, whose first operand may be computed."""
    x, y = args
    *batch, m, n = op.axes.shape
    first = computed or _loaded(x)
    by_terms = x is None or x.strides[-1] <= x.strides[-2], y.strides[-2] <= y.strides[-1]
    k = op.args[0].axes.shape[-1]
    factors = Factors(title, tuple(batch), m, n, k, op.dtype, first, _loaded(y), finish, by_terms)
    strides = zip(batch, y.strides, strict=False)
    is_shared = bool(batch) and not any(step and length > 1 for length, step in strides)
    return factors.with_folded_batch() if is_shared else factors


def _loaded(layout: TensorDescription | None) -> Callable[[Shader, Place], str]:
    """Return a function that loads elements of a matrix."""
    assert layout is not None
    return lambda shader, place: shader.element(layout, place).value


def has_product(op: Any) -> bool:
    """Whether the kernel of a product may compute other ops."""
    return op.dtype.name in wgsl.COMPUTED


def takes_prologue(op: Op, processor: Processor) -> bool:
    """Whether the kernel of a product may compute its first operand, which one group reads."""
    if not isinstance(op, MatmulOp) or not has_product(op) or min(op.axes.shape[-2:]) < 2:
        return False
    m, n = op.axes.shape[-2:]
    return n <= tile_shape(m, n, processor).columns


def ways(op: Any) -> list[tuple[int, int, int]]:
    """Return batch, rows and columns of a product, unfolded and folded."""
    *batch, m, n = op.axes.shape
    size = math.prod(batch)
    return [(size, m, n), (1, size * m, n)]


def scratch_of_product(op: Any, processor: Processor) -> int:
    """Return the bytes for the sums of parts of a product."""
    k = op.args[0].axes.shape[-1]
    return max(scratch_of_sums(*way, k, op.dtype, processor) for way in ways(op))


def scratch_of_sums(batch: int, m: int, n: int, k: int, dtype: DType, processor: Processor) -> int:
    """Return the bytes for the sums of parts, by the lengths of a product."""
    m, n = (n, m) if n == 1 else (m, n)
    parts = 1
    if batch * m * n * k > MAX_UNTILED_WORK:
        columns = column_splits(batch, n, k, processor)
        parts = columns if m == 1 else split_k(batch, m, n, k, processor)
    return 0 if parts == 1 else parts * batch * m * n * SUMS[wgsl.type_of(dtype)].itemsize


def multiply(lowering: Lowering, factors: Factors) -> None:
    """Append the launches of a product: one, or another for the sums of parts."""
    if not factors.size:
        return
    f, processor = factors, lowering.processor
    if f.n == 1 and f.m > 1:
        f = f.transposed()
    if f.m == 1 and all(f.by_terms) and f.k > 1:
        _rows(lowering, f)
        return
    batch, parts, write = math.prod(f.batch), 1, _columns
    if f.size * f.k > MAX_UNTILED_WORK and f.m == 1:
        parts = column_splits(batch, f.n, f.k, processor)
    elif f.size * f.k > MAX_UNTILED_WORK:
        parts, write = split_k(batch, f.m, f.n, f.k, processor), _tiles
    if parts == 1:
        write(lowering, f, 1)
        return
    shape = (*f.batch, f.m, f.n)
    partial = lowering.scratch((parts, *shape), SUMS[f.kind])
    write(lowering, replace(f, finish=stored(partial)), parts)

    def add_parts(shader: Shader, place: Place) -> None:
        shader.line(f"for (var part = 0; part < {parts}; part++) {{")
        shader.line(f"total += {shader.element(partial, ['part', *place]).value};")
        shader.line("}")

    _each_sum(lowering, replace(f, title=f"{f.title} of parts"), shape, add_parts)


def _each_sum(
    lowering: Lowering, f: Factors, shape: Sequence[int], add: Callable[[Shader, Place], None]
) -> None:
    """Append the launch in which an invocation adds the terms of a sum to `total`."""

    def write(shader: Shader, place: Place) -> None:
        shader.line(f"var total = {f.kind}(0);")
        add(shader, place)
        f.finish(shader, place, "total")

    each_point(lowering, f.title, shape, write)


def _columns(lowering: Lowering, f: Factors, parts: int) -> None:
    """Append the launch in which an invocation computes a sum, or a part of one, by itself."""
    length = -(-f.k // parts)

    def add(shader: Shader, place: Place) -> None:
        *batch, i, j = place[1:] if parts > 1 else place
        first, last = "0", str(f.k)
        if parts > 1:
            first, last = f"d0 * {length}", f"min((d0 + 1) * {length}, {f.k})"
        shader.line(f"for (var t = {first}; t < {last}; t++) {{")
        x, y = f.first(shader, [*batch, i, "t"]), f.second(shader, [*batch, "t", j])
        shader.line(f"total += {x} * {y};")
        shader.line("}")

    _each_sum(lowering, f, (*([parts] if parts > 1 else []), *f.batch, f.m, f.n), add)


def _rows(lowering: Lowering, f: Factors) -> None:
    """Append the launch in which a work group computes a sum of products of neighbors."""
    shader = Shader(lowering, f.title, ROW_GROUP)
    *batch, j = place = [f"q{axis}" for axis in range(len(f.batch) + 1)]
    shader.line(f"if (group_number >= {f.size}) {{ return; }}")
    shader.coordinates("group_number", (*f.batch, f.n), place)
    shader.line(f"var total = {f.kind}(0);")
    shader.line(f"for (var t = lane; t < {f.k}; t += {ROW_GROUP}) {{")
    x, y = f.first(shader, [*batch, "0", "t"]), f.second(shader, [*batch, "t", j])
    shader.line(f"total += {x} * {y};")
    shader.line("}")
    shader.declarations.append(f"var<workgroup> sums: array<{f.kind}, {ROW_GROUP}>;")
    shader.line("sums[lane] = total;")
    for text in tree("sums[lane] += sums[lane + half];"):
        shader.line(text)
    shader.line("if (lane == 0) {")
    f.finish(shader, [*batch, "0", j], "sums[0]")
    shader.line("}")
    shader.launch(f.size)


def _tiles(lowering: Lowering, f: Factors, parts: int) -> None:
    """Append the launch in which a work group computes a tile of sums from slices of terms."""
    processor = lowering.processor
    shape, block = tile_shape(f.m, f.n, processor), tile_shape(f.m, f.n, processor).block
    shader = Shader(lowering, f.title, processor.group)
    line, length = shader.line, -(-f.k // parts)
    grid = (parts, *f.batch, -(-f.m // shape.rows), -(-f.n // shape.columns))
    line(f"if (group_number >= {math.prod(grid)}) {{ return; }}")
    part, *batch, row, column = names = [f"q{axis}" for axis in range(len(grid))]
    shader.coordinates("group_number", grid, names)
    line(f"let row = {row} * {shape.rows};")
    line(f"let column = {column} * {shape.columns};")
    line(f"let down = lane / {shape.across};")
    line(f"let across = lane % {shape.across};")
    line(f"let end = min(({part} + 1) * {length}, {f.k});")
    line(f"var sums: array<{f.kind}, {block * block}>;")
    line(f"for (var start = {part} * {length}; start < end; start += {SLICE}) {{")
    copies = (
        ("left", shape.rows, f.by_terms[0], "row", f.m),
        ("right", shape.columns, f.by_terms[1], "column", f.n),
    )
    for name, count, is_along, origin, bound in copies:
        shader.declarations.append(
            f"var<workgroup> {name}: array<{f.kind}, {SLICE * (count + 1)}>;"
        )
        line(f"for (var e = lane; e < {SLICE * count}; e += {processor.group}) {{")
        within, other = (f"e % {SLICE}", f"e / {SLICE}")
        if not is_along:
            within, other = (f"e / {count}", f"e % {count}")
        line(f"let t = start + {within};")
        line(f"let o = {origin} + {other};")
        line(f"var found = {f.kind}(0);")
        line(f"if (t < end && o < {bound}) {{")
        load, place = (f.first, ("o", "t")) if name == "left" else (f.second, ("t", "o"))
        value = load(shader, [*batch, *place])
        line(f"found = {value};")
        line("}")
        line(f"{name}[({within}) * {count + 1} + {other}] = found;")
        line("}")
    line("workgroupBarrier();")
    line(f"for (var term = 0; term < {SLICE}; term++) {{")
    for each in range(block):
        line(f"let l{each} = left[term * {shape.rows + 1} + down + {each * shape.down}];")
        line(f"let r{each} = right[term * {shape.columns + 1} + across + {each * shape.across}];")
    for i in range(block):
        line(" ".join(f"sums[{i * block + j}] += l{i} * r{j};" for j in range(block)))
    line("}")
    line("workgroupBarrier();")
    line("}")
    line(f"for (var cell = 0; cell < {block * block}; cell++) {{")
    line(f"let i = row + down + cell / {block} * {shape.down};")
    line(f"let j = column + across + cell % {block} * {shape.across};")
    line(f"if (i < {f.m} && j < {f.n}) {{")
    f.finish(shader, [*([part] if parts > 1 else []), *batch, "i", "j"], "sums[cell]")
    line("}")
    line("}")
    shader.launch(math.prod(grid))
