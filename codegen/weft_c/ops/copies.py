"""Copies between any strides, and lowering rules of views; transposes are tiled."""

from __future__ import annotations

from math import prod

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.nn.spatial import windows
from weft.ops.indexing import slicing
from weft.ops.pointwise import bits as bit_ops
from weft.ops.pointwise import complex_parts
from weft.ops.shape import movement
from weft_c.loops.parallel import parallel_for, unravel_index, work_group_loop, work_item_loop
from weft_c.loops.vectorized_access import vectorized_move
from weft_c.lowering import Array, KernelBuilder, Lowering, rules
from weft_c.ops.views import bits, collapse_dims
from weft_c.source.code import Address
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import VECTOR_DTYPES, ValueEmitter, register_type

BLOCK = 16
"""The side of a tile on serial devices: 16 cache lines of 16 elements of 4 bytes."""

TILE = 32
"""The side of a tile in local memory."""


@rules.on_type(movement.TransposeOp, movement.BroadcastOp, movement.IdentityOp)
@rules.on_type(slicing.SliceOp, bit_ops.BitcastOp, windows.WindowsOp)
@rules.on_type(complex_parts.RealOp, complex_parts.ImagOp, complex_parts.ViewAsRealOp)
def view_rule(op: Op, lowering: Lowering) -> None:
    """Write nothing: the results are views, which the plan describes."""


@rules.on_type(movement.ContiguousOp)
def contiguous_rule(op: Op, lowering: Lowering) -> None:
    """Copy the operand."""
    copy(lowering, lowering.args[0], lowering.out)


@rules.on_type(complex_parts.ViewAsComplexOp)
def view_as_complex_rule(op: Op, lowering: Lowering) -> None:
    """Copy pairs that are not in place."""
    copy(lowering, lowering.args[0], lowering.out.pairs())


@rules.on_type(complex_parts.ComplexOp)
def complex_rule(op: Op, lowering: Lowering) -> None:
    """Copy each part to its place in the result."""
    for number, part in enumerate(lowering.args):
        source = part if part.shape else part.broadcast(lowering.out.shape, ())
        copy(lowering, source, lowering.out.part(number))


@rules.on_type(movement.ReshapeOp)
def reshape_rule(op: Op, lowering: Lowering) -> None:
    """Copy the operand to the result, viewed in the operand's shape."""
    target = lowering.out.cast(lowering.args[0].shape)
    assert target is not None, "results are contiguous"
    copy(lowering, lowering.args[0], target)


def copy(lowering: Lowering, source: TensorDescription, target: TensorDescription) -> None:
    """Copy a tensor to another of its shape and dtype, unless both are the same."""
    if not source.size or source == target:
        return
    if source.dtype.kind == "c":
        for number in (0, 1):
            copy(lowering, source.part(number), target.part(number))
        return
    (source, target), _ = collapse_dims(bits(source), bits(target))
    inner_dim = _transposed_dim(source, target)
    if inner_dim is None:
        _copy_points(lowering, source, target)
    elif lowering.processor.is_serial:
        _copy_blocks(lowering, source, target, inner_dim)
    else:
        _copy_tiles(lowering, source, target, inner_dim)


def convert(lowering: Lowering, source: TensorDescription, target: TensorDescription) -> None:
    """Copy a tensor to another of its shape, converting to that one's dtype."""
    if source.dtype == target.dtype:
        copy(lowering, source, target)
        return
    (source, target), _ = collapse_dims(source, target)
    builder = lowering.kernel(f"convert to {target.dtype}")
    x, out = builder.array("x", source), builder.array("out", target, written=True)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        value = emitter.converted(source.dtype, target.dtype, x.get(*at))
        builder.code.line(out.set(value, *at))

    parallel_for(builder, source.shape, body, wide=is_wide(source, target))


def _transposed_dim(source: TensorDescription, target: TensorDescription) -> int | None:
    """Return the source's innermost dimension if the target's is another one, else None."""
    size = source.dtype.itemsize
    if len(source.shape) < 2 or target.strides[-1] != size or source.strides[-1] == size:
        return None
    dims = [dim for dim, stride in enumerate(source.strides[:-1]) if stride == size]
    if not dims or min(source.shape[dims[-1]], source.shape[-1]) < BLOCK // 2:
        return None
    return dims[-1]


def _copy_points(lowering: Lowering, source: TensorDescription, target: TensorDescription) -> None:
    builder = lowering.kernel("copy")
    x, out = builder.array("x", source), builder.array("out", target, written=True)
    shape, x, out = vectorized_move(builder, source.shape, x, out)

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        move(emitter, x.at(*at), out.at(*at), out.dtype)

    lanes = move_lanes(builder, x, out)
    parallel_for(builder, shape, body, lanes=lanes, wide=is_wide(source, target))


def move_lanes(builder: KernelBuilder, x: Array, out: Array) -> int:
    """Return the lanes of vectors in which rows are copied on a serial device; 1 for scalars."""
    are_contiguous = x.strides[-1:] == out.strides[-1:] == (1,)
    has_vectors = x.dtype == out.dtype and out.dtype.name in VECTOR_DTYPES
    is_word = out.dtype.itemsize == 4
    return builder.processor.lanes if are_contiguous and has_vectors and is_word else 1


def move(emitter: ValueEmitter, source: Address, target: Address, dtype: DType) -> None:
    """Write the copy of an element, or of a vector."""
    emitter.code.line(emitter.store(dtype, target, emitter.load(dtype, source)))


def _copy_blocks(
    lowering: Lowering, source: TensorDescription, target: TensorDescription, inner_dim: int
) -> None:
    """Write a transpose in tiles that fit the first-level cache."""
    builder = lowering.kernel("transpose")
    x, out = builder.array("x", source), builder.array("out", target, written=True)
    shape, last = source.shape, len(source.shape) - 1
    wide = is_wide(source, target)
    kind = index_type(wide)

    def span(dim: int, block: str) -> tuple[str, str]:
        """Return the counter within a tile along a dimension, and the head of its loop."""
        name, first = builder.code.name("i"), f"{block} * {BLOCK}"
        end = builder.code.define(f"const {kind}", "end", f"{first} + {BLOCK}")
        bound = f"{name} < {end}"
        if shape[dim] % BLOCK:
            bound += f" && {name} < {shape[dim]}"
        return name, f"for ({kind} {name} = {first}; {bound}; {name}++)"

    def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
        indices = list(at)
        indices[inner_dim], outer = span(inner_dim, at[inner_dim])
        indices[last], inner = span(last, at[last])
        with builder.code.block(outer), builder.code.block(inner):
            builder.code.line(out.set(x.get(*indices), *indices))

    parallel_for(builder, _in_tiles(shape, inner_dim, BLOCK), body, wide=wide, cost=BLOCK**2)


def _copy_tiles(
    lowering: Lowering, source: TensorDescription, target: TensorDescription, inner_dim: int
) -> None:
    """Write a transpose by tiles in local memory, padded by one to avoid bank conflicts."""
    builder = lowering.kernel("transpose")
    x, out = builder.array("x", source), builder.array("out", target, written=True)
    shape, last, code = source.shape, len(source.shape) - 1, builder.code
    tiles = _in_tiles(shape, inner_dim, TILE)
    kind = index_type(is_wide(source, target))
    code.declare(f"LOCAL {register_type(source.dtype)} tile[{TILE}][{TILE + 1}];")

    def move(outer: int, inner: int, first: list[str], array: Array, to_tile: bool) -> None:
        """Write a loop over a tile; memory is contiguous along dimension `inner`."""
        with code.block(work_item_loop(builder, "i", TILE * TILE)):
            indices = list(first)
            indices[outer] = code.define(f"const {kind}", "y", f"{first[outer]} + i / {TILE}")
            indices[inner] = code.define(f"const {kind}", "x", f"{first[inner]} + i % {TILE}")
            at = f"tile[i / {TILE}][i % {TILE}]" if to_tile else f"tile[i % {TILE}][i / {TILE}]"
            inside = f"{indices[outer]} < {shape[outer]} && {indices[inner]} < {shape[inner]}"
            moved = f"{at} = {array.get(*indices)};" if to_tile else array.set(at, *indices)
            code.line(f"if ({inside}) {moved}")

    with work_group_loop(builder, prod(tiles)) as number:
        first = _first_indices(builder, tiles, number, (inner_dim, last), kind)
        move(last, inner_dim, first, x, to_tile=True)
        code.line("BARRIER();")
        move(inner_dim, last, first, out, to_tile=False)
        code.line("BARRIER();")


def _in_tiles(shape: tuple[int, ...], inner_dim: int, edge: int) -> tuple[int, ...]:
    last = len(shape) - 1
    return tuple(-(-n // edge) if at in (inner_dim, last) else n for at, n in enumerate(shape))


def _first_indices(
    builder: KernelBuilder, tiles: tuple[int, ...], number: str, tiled: tuple[int, int], kind: str
) -> list[str]:
    """Write the first index of a tile along each dimension."""
    tile_indices = unravel_index(builder.code, tiles, number, "i64")
    return [
        builder.code.define(
            f"const {kind}", "first", f"({kind}){at} * {TILE if dim in tiled else 1}"
        )
        for dim, at in enumerate(tile_indices)
    ]
