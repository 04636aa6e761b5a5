"""Loops over the points of a shape, shared out among work items.

On a serial device a work item has a stretch of neighbouring points, else neighbouring work items
have neighbouring points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod

from weft_c.loops.vectorised_access import VectorAccess
from weft_c.lowering import KernelBuilder
from weft_c.processor import Processor
from weft_c.source.code import Code
from weft_c.source.index_types import index_type, needs_wide_counter
from weft_c.source.values import Emitter

Body = Callable[[tuple[str, ...], Emitter], None]
"""Writes what happens at a point, given its indices; a vector begins at the last of them."""

GRAIN = 4096
"""The points that are worth a work item of their own on a serial device."""

GROUPS_PER_UNIT = 8
"""How many work items, or groups of them, there are for each unit at most."""


def parallel_for(
    builder: KernelBuilder,
    shape: Sequence[int],
    body: Body,
    *,
    row: Callable[[tuple[str, ...]], None] | None = None,
    lanes: int = 1,
    access: VectorAccess | None = None,
    wide: bool = False,
    cost: int = 1,
) -> None:
    """Write a loop over the points of a shape and launch the kernel.

    `row` writes what comes before the points of a row, given all indices but the last; only serial
    devices have rows, elsewhere it comes before each point. With more `lanes` than one, `body` is
    written a second time for vectors along the last dimension; with `bundling`, for the elements of
    bundles along it, unless rows would have elements left over. `wide` tells that indices need 64
    bits, as they do for many points; `cost` how many points each counts for. Without points nothing
    is launched.
    """
    shape = tuple(shape) or (1,)
    if 0 in shape:
        return
    kind = index_type(wide or needs_wide_counter(prod(shape)))
    if builder.processor.is_serial:
        items = serial_items(prod(shape) * cost, builder.processor)
        _contiguous_shares(builder.code, shape, items, body, row, lanes, kind)
        builder.launch(items)
        return
    if access is None or (shape[-1] % access.count and prod(shape[:-1]) > 1):
        _grid_stride_loop(builder.code, shape, body, row, kind)
        points = prod(shape)
    else:
        _vector_grid_stride_loop(builder.code, shape, body, row, access, kind)
        points = prod(shape) // access.count
    builder.launch(parallel_items(points, builder.processor), builder.processor.group)


def serial_items(points: int, processor: Processor) -> int:
    """Return the number of work items for so many points on a serial device."""
    return max(1, min(points // GRAIN, processor.units * GROUPS_PER_UNIT))


def parallel_items(points: int, processor: Processor) -> int:
    """Return the number of work items, whole groups, for so many points."""
    groups = -(-points // processor.group)
    return max(1, min(groups, processor.units * GROUPS_PER_UNIT)) * processor.group


def unravel_index(code: Code, shape: Sequence[int], place: str, kind: str) -> tuple[str, ...]:
    """Write the index along each dimension of the point at a place in row-major order."""
    names: list[str] = []
    rest = place
    for number in reversed(range(len(shape))):
        if shape[number] == 1:
            names.append("0")
        elif number == 0 or prod(shape[:number]) == 1:
            names.append(rest)
        else:
            names.append(code.define(f"const {kind}", "i", f"{rest} % {shape[number]}"))
            rest = code.define(f"const {kind}", "r", f"{rest} / {shape[number]}")
    return tuple(reversed(names))


def work_item_bounds(code: Code, count: int, items: int, kind: str) -> tuple[str, str]:
    """Write where the work item's share of so many things begins and ends."""
    if items == 1:
        return "0", str(count)
    return part_bounds(code, count, "GLOBAL_ID", "GLOBAL_SIZE", kind)


def part_bounds(code: Code, count: int, number: str, parts: str, kind: str) -> tuple[str, str]:
    """Write where one of several parts of so many things begins and ends.

    Its number has 64 bits: times the things it may be far more than these.
    """
    if parts == "1":
        return "0", str(count)
    first, last = f"{number} * {count} / {parts}", f"({number} + 1) * {count} / {parts}"
    begin = code.define(f"const {kind}", "begin", f"({kind})({first})")
    return begin, code.define(f"const {kind}", "end", f"({kind})({last})")


@contextmanager
def work_group_loop(builder: KernelBuilder, count: int, groups: int | None = None) -> Iterator[str]:
    """Write a loop over things that a group of work items does one at a time, and launch.

    Yields the name of the thing's number. There are at most so many groups.
    """
    processor, code = builder.processor, builder.code
    name = code.name("number")
    groups = min(count, processor.units * GROUPS_PER_UNIT if groups is None else groups)
    with code.block(strided_loop("i64", name, count, "GROUP_ID", str(groups))):
        yield name
    builder.launch(groups * processor.group, processor.group)


def work_item_loop(builder: KernelBuilder, name: str, count: int, kind: str = "i32") -> str:
    """Return the head of a loop over places that the work items of a group share."""
    return strided_loop(kind, name, count, "LOCAL_ID", str(builder.processor.group))


def strided_loop(kind: str, name: str, count: int, first: str, step: str) -> str:
    """Return the head of a loop over numbers below a count that lie a step apart."""
    return f"for ({kind} {name} = ({kind}){first}; {name} < {count}; {name} += ({kind}){step})"


def _contiguous_shares(
    code: Code,
    shape: tuple[int, ...],
    items: int,
    body: Body,
    row: Callable[[tuple[str, ...]], None] | None,
    lanes: int,
    kind: str,
) -> None:
    *outer, length = shape
    rows = prod(outer)
    by_rows = rows >= items
    begin, end = work_item_bounds(code, rows if by_rows else length, items, kind)
    first, last = ("0", str(length)) if by_rows else (begin, end)
    with ExitStack() as stack:
        indices: tuple[str, ...] = ("0",) * len(outer)
        if rows > 1:
            name = code.name("row")
            low, high = (begin, end) if by_rows else ("0", str(rows))
            stack.enter_context(
                code.block(f"for ({kind} {name} = {low}; {name} < {high}; {name}++)")
            )
            indices = unravel_index(code, outer, name, kind)
        if row is not None:
            row(indices)
        whole = length if by_rows else None
        _innermost_loop(code, indices, (first, last), whole, body, lanes, kind)


def _innermost_loop(
    code: Code,
    outer: tuple[str, ...],
    span: tuple[str, str],
    length: int | None,
    body: Body,
    lanes: int,
    kind: str,
) -> None:
    """Write the loop along the last dimension: vectors, then the numbers that are left."""
    first, last = span
    if length == 1 and lanes == 1:
        body((*outer, "0"), Emitter(code))
        return
    name = code.name("i")
    if lanes > 1:
        code.line(f"{kind} {name} = {first};")
        with code.block(f"for (; {name} + {lanes} <= {last}; {name} += {lanes})"):
            body((*outer, name), Emitter(code, lanes))
        if length is not None and length % lanes == 0:
            return
        head = f"for (; {name} < {last}; {name}++)"
    else:
        head = f"for ({kind} {name} = {first}; {name} < {last}; {name}++)"
    with code.block(head):
        body((*outer, name), Emitter(code))


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
        body(indices, Emitter(code))


def _vector_grid_stride_loop(
    code: Code,
    shape: tuple[int, ...],
    body: Body,
    row: Callable[[tuple[str, ...]], None] | None,
    access: VectorAccess,
    kind: str,
) -> None:
    """Write a loop over bundles, and one over the elements that are left of a single row."""
    *outer, length = shape
    vectors, rest = divmod(length, access.count)

    def each_element(indices: tuple[str, ...], emitter: Emitter) -> None:
        with access.elements(indices) as at:
            body(at, emitter)

    def at_rest(indices: tuple[str, ...], emitter: Emitter) -> None:
        body((*indices[:-1], f"{length - rest} + {indices[-1]}"), emitter)

    _grid_stride_loop(code, (*outer, vectors), each_element, row, kind)
    if rest:
        _grid_stride_loop(code, (*outer, rest), at_rest, row, kind)
