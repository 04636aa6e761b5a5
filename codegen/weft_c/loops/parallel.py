"""Parallel loops: the points of a shape distributed over work items.

On a serial device each work item processes a contiguous range of points. On other devices the loops
have the stride of the grid, so that neighboring work items process neighboring points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from typing import NamedTuple

from weft.ir.guards import is_multiple, is_one, is_traced, smallest, untraced
from weft_c.loops.vectorized_access import VectorAccess
from weft_c.lowering import KernelBuilder
from weft_c.source.code import Code
from weft_c.source.index_types import index_type
from weft_c.source.values import ValueEmitter
from weft_tiling.counters import needs_wide_counter
from weft_tiling.sharing import GROUPS_PER_UNIT, parallel_items, serial_items

Body = Callable[[tuple[str, ...], ValueEmitter], None]
"""Writes the body of a loop, given the index along each dimension of the shape, by name.

The emitter writes values: of a vector that extends along the last dimension, or of the point.
"""


class Interleaving(NamedTuple):
    """Independent vectors that one iteration computes, so that none waits for its own results.

    Attributes
    ----------
    vectors
        Their number.
    body
        Writes the body of the loop, given the indices of the first point of each.
    """

    vectors: int
    body: Callable[[Sequence[tuple[str, ...]], ValueEmitter], None]


def parallel_for(
    builder: KernelBuilder,
    shape: Sequence[int],
    body: Body,
    *,
    row: Callable[[tuple[str, ...]], None] | None = None,
    lanes: int = 1,
    access: VectorAccess | None = None,
    wide: bool | None = None,
    cost: int = 1,
    interleaving: Interleaving | None = None,
    overlaps: bool = False,
    bits: int = 32,
) -> None:
    """Write a parallel loop over the points of a shape and launch the kernel.

    `cost` is the weight of a point: the work items of a serial device get points of at least
    `GRAIN` together. `row` writes the statements before the innermost loop, given all indices but
    the last; on parallel devices they precede each point. With more than one of `lanes`, `body` is
    written a second time for vectors along the last dimension, whose lanes have so many `bits`;
    with `access`, for vectorized accesses along it, unless rows have a remainder. `wide` makes
    indices of 64 bits, as many points do, and by default the arrays that the kernel has so far, as
    in `KernelBuilder.index_type`. On serial devices with vectors, `interleaving` is a loop before
    that of `body`; with `overlaps` points may be computed twice, so that the last vector of a row
    ends with it. A shape without points launches nothing.
    """
    if 0 in shape:
        return
    shape, body = at_least_1d(shape, body)
    if wide is None:
        wide = builder.is_wide
    kind = index_type(wide or needs_wide_counter(prod(shape)))
    if builder.processor.is_serial:
        items = serial_items(prod(shape) * cost, builder.processor)
        vector = ValueEmitter(builder.code, lanes, bits)
        _contiguous_shares(
            builder.code, shape, items, body, row, vector, kind, interleaving, overlaps
        )
        builder.launch(items)
        return
    if access is None or (prod(shape[:-1]) > 1 and shape[-1] % access.count):
        _grid_stride_loop(builder.code, shape, body, row, kind)
        points = prod(shape)
    else:
        _vector_grid_stride_loop(builder.code, shape, body, row, access, kind)
        points = prod(shape) // access.count
    builder.launch(parallel_items(points, builder.processor), builder.processor.group)


def at_least_1d(shape: Sequence[int], body: Body) -> tuple[tuple[int, ...], Body]:
    """Return a shape with at least one dimension, and the body of a loop over it.

    A scalar has one point without indices.
    """
    if shape:
        return tuple(shape), body
    return (1,), lambda at, emitter: body((), emitter)


def unravel_index(code: Code, shape: Sequence[int], flat_index: str, kind: str) -> tuple[str, ...]:
    """Write the index along each dimension of the point with flat row-major index `flat_index`."""
    names: list[str] = []
    rest = flat_index
    for number in reversed(range(len(shape))):
        if is_one(shape[number]):
            names.append("0")
        elif number == 0 or is_one(prod(shape[:number])):
            names.append(rest)
        else:
            names.append(code.define(f"const {kind}", "i", f"{rest} % {shape[number]}"))
            rest = code.define(f"const {kind}", "r", f"{rest} / {shape[number]}")
    return tuple(reversed(names))


def work_item_bounds(code: Code, count: int, items: int, kind: str) -> tuple[str, str]:
    """Write the bounds of a work item's share of `count` iterations."""
    if is_one(items):
        return "0", str(count)
    return part_bounds(code, count, "GLOBAL_ID", "GLOBAL_SIZE", kind)


def part_bounds(code: Code, count: int, number: str, parts: str, kind: str) -> tuple[str, str]:
    """Write the bounds of part `number` of `count` iterations that are divided into `parts`.

    `number` must be of 64 bits, since its product with `count` may need them.
    """
    if parts == "1":
        return "0", str(count)
    first, last = f"{number} * {count} / {parts}", f"({number} + 1) * {count} / {parts}"
    begin = code.define(f"const {kind}", "begin", f"({kind})({first})")
    return begin, code.define(f"const {kind}", "end", f"({kind})({last})")


@contextmanager
def work_group_loop(builder: KernelBuilder, count: int, groups: int | None = None) -> Iterator[str]:
    """Write a loop whose iterations are distributed over work groups, and launch the kernel.

    Yields the name of the loop's counter. `groups` is the largest number of work groups.
    """
    processor, code = builder.processor, builder.code
    name = code.name("number")
    groups = smallest(count, processor.units * GROUPS_PER_UNIT if groups is None else groups)
    with code.block(strided_loop("i64", name, count, "GROUP_ID", str(groups))):
        yield name
    builder.launch(groups * processor.group, processor.group)


def work_item_loop(builder: KernelBuilder, name: str, count: int, kind: str = "i32") -> str:
    """Return the head of a loop whose iterations are distributed over a group's work items."""
    return strided_loop(kind, name, count, "LOCAL_ID", str(builder.processor.group))


def strided_loop(kind: str, name: str, count: int, first: str, step: str) -> str:
    """Return the head of a loop from `first` to below `count` with a step."""
    return f"for ({kind} {name} = ({kind}){first}; {name} < {count}; {name} += ({kind}){step})"


def _contiguous_shares(
    code: Code,
    shape: tuple[int, ...],
    items: int,
    body: Body,
    row: Callable[[tuple[str, ...]], None] | None,
    vector: ValueEmitter,
    kind: str,
    interleaving: Interleaving | None,
    overlaps: bool,
) -> None:
    *outer, length = shape
    rows = prod(outer)
    # One row for now may be several later, which had better have many items.
    fewest = max(untraced(items), 2) if is_traced(items) else items
    by_rows = untraced(rows) >= fewest
    begin, end = work_item_bounds(code, rows if by_rows else length, items, kind)
    first, last = ("0", str(length)) if by_rows else (begin, end)
    with ExitStack() as stack:
        indices: tuple[str, ...] = ("0",) * len(outer)
        if rows > 1:
            name = code.name("row")
            low, high = (begin, end) if by_rows else ("0", str(rows))
            stack.enter_context(code.loop(kind, name, low, high))
            indices = unravel_index(code, outer, name, kind)
        if row is not None:
            row(indices)
        whole = length if by_rows else None
        innermost_loop(
            code, indices, (first, last), whole, body, vector, kind, interleaving, overlaps
        )


def innermost_loop(
    code: Code,
    outer: tuple[str, ...],
    span: tuple[str, str],
    length: int | None,
    body: Body,
    vector: ValueEmitter,
    kind: str,
    interleaving: Interleaving | None = None,
    overlaps: bool = False,
) -> None:
    """Write the loop along the last dimension: vectors, several first, then the remainder.

    Where points may be computed twice and all the dimension is one span, the remainder is a vector
    that ends with it.
    """
    first, last = span
    lanes = vector.lanes
    if length == 1 and lanes == 1:
        body((*outer, "0"), ValueEmitter(code))
        return
    name = code.name("i")
    if lanes > 1:
        code.line(f"{kind} {name} = {first};")
        if interleaving is not None:
            step = interleaving.vectors * lanes
            with code.block(f"for (; {name} + {step} <= {last}; {name} += {step})"):
                at = [f"({name} + {n * lanes})" for n in range(interleaving.vectors)]
                interleaving.body([(*outer, each) for each in at], vector)
        if overlaps and length is not None and length % lanes:
            with code.block(f"for (; {name} < {last}; {name} += {lanes})"):
                code.line(f"if ({name} > {last} - {lanes}) {name} = {last} - {lanes};")
                body((*outer, name), vector)
            return
        with code.block(f"for (; {name} + {lanes} <= {last}; {name} += {lanes})"):
            body((*outer, name), vector)
        if length is not None and is_multiple(length, lanes):
            return
        rest = code.block(f"for (; {name} < {last}; {name}++)")
    else:
        rest = code.loop(kind, name, first, last)
    with rest:
        body((*outer, name), ValueEmitter(code))


def _grid_stride_loop(
    code: Code,
    shape: tuple[int, ...],
    body: Body,
    row: Callable[[tuple[str, ...]], None] | None,
    kind: str,
) -> None:
    name = code.name("point")
    with code.block(strided_loop(kind, name, prod(shape), "GLOBAL_ID", "GLOBAL_SIZE")):
        indices = unravel_index(code, shape, name, kind)
        if row is not None:
            row(indices[:-1])
        body(indices, ValueEmitter(code))


def _vector_grid_stride_loop(
    code: Code,
    shape: tuple[int, ...],
    body: Body,
    row: Callable[[tuple[str, ...]], None] | None,
    access: VectorAccess,
    kind: str,
) -> None:
    """Write a loop over vectorized accesses, and one over the remainder of a single row."""
    *outer, length = shape
    vectors, rest = divmod(length, access.count)

    def each_element(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        with access.elements(indices) as at:
            body(at, emitter)

    def at_rest(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        body((*indices[:-1], f"{length - rest} + {indices[-1]}"), emitter)

    _grid_stride_loop(code, (*outer, vectors), each_element, row, kind)
    if not is_multiple(length, access.count):
        _grid_stride_loop(code, (*outer, rest), at_rest, row, kind)
