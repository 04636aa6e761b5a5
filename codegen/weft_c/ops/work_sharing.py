"""Work-sharing loops for kernels with several loops or with scratch memory for each work item."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft_c.loops.parallel import (
    Body,
    at_least_1d,
    innermost_loop,
    strided_loop,
    unravel_index,
    work_item_bounds,
)
from weft_c.lowering import KernelBuilder
from weft_c.source.values import ValueEmitter
from weft_tiling.sharing import parallel_items, serial_items


def work_items(points: int, builder: KernelBuilder) -> int:
    """Return the number of work items for some points."""
    processor = builder.processor
    find = serial_items if processor.is_serial else parallel_items
    return find(max(points, 1), processor)


def launch(builder: KernelBuilder, items: int) -> None:
    """End a kernel and launch it with the result of `work_items`."""
    builder.launch(items, 1 if builder.processor.is_serial else builder.processor.group)


def share_points(
    builder: KernelBuilder, shape: Sequence[int], items: int, body: Body, kind: str, lanes: int = 1
) -> None:
    """Write a loop over points that `items` work items share; a kernel may have several.

    With more than one of `lanes`, `body` is written for vectors along the last dimension first.
    """
    if 0 in shape:
        return
    shape, body = at_least_1d(shape, body)
    code = builder.code
    with code.block():
        if not builder.processor.is_serial:
            name = code.name("point")
            with code.block(strided_loop(kind, name, prod(shape), "GLOBAL_ID", "GLOBAL_SIZE")):
                body(unravel_index(code, shape, name, kind), ValueEmitter(code))
            return
        *outer, length = shape
        rows = prod(outer)
        by_rows = rows >= items
        begin, end = work_item_bounds(code, rows if by_rows else length, items, kind)
        row = code.name("row")
        first, last = (begin, end) if by_rows else ("0", str(rows))
        with code.loop(kind, row, first, last):
            indices = unravel_index(code, outer, row, kind)
            span = ("0", str(length)) if by_rows else (begin, end)
            vector = ValueEmitter(code, lanes)
            innermost_loop(code, indices, span, length if by_rows else None, body, vector, kind)
