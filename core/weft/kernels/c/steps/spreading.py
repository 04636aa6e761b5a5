"""How work is spread over work items, or over groups of them, where `each_point` does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from weft.kernels.c.loops import SHARES, decoded, parallel_items, serial_items, share
from weft.kernels.c.lowering import Writing

Point = Callable[[tuple[str, ...]], None]
"""Writes what happens at a point, given its index along each dimension."""


def work_items(points: int, writing: Writing) -> int:
    """Return the number of work items for so many points."""
    processor = writing.processor
    find = serial_items if processor.is_serial else parallel_items
    return find(max(points, 1), processor)


def launch(writing: Writing, items: int) -> None:
    """End a kernel and launch it with `work_items`."""
    writing.launch(items, 1 if writing.processor.is_serial else writing.processor.group)


def spread(writing: Writing, shape: Sequence[int], items: int, body: Point, kind: str) -> None:
    """Write a loop over points that so many work items share; a kernel may have several."""
    shape = tuple(shape) or (1,)
    if 0 in shape:
        return
    code = writing.code
    with code.block():
        if not writing.processor.is_serial:
            name = code.name("point")
            with code.block(_strided(kind, name, prod(shape), "GLOBAL_ID", "GLOBAL_SIZE")):
                body(decoded(code, shape, name, kind))
            return
        *outer, length = shape
        rows = prod(outer)
        by_rows = rows >= items
        begin, end = share(code, rows if by_rows else length, items, kind)
        row, place = code.name("row"), code.name("i")
        with code.block(_counted(kind, row, *((begin, end) if by_rows else ("0", str(rows))))):
            indices = decoded(code, outer, row, kind)
            span = ("0", str(length)) if by_rows else (begin, end)
            with code.block(_counted(kind, place, *span)):
                body((*indices, place))


@contextmanager
def each_group(writing: Writing, count: int, groups: int | None = None) -> Iterator[str]:
    """Write a loop over things that a group of work items does one at a time, and launch.

    Yields the name of the thing's number. There are at most so many groups.
    """
    processor, code = writing.processor, writing.code
    name = code.name("number")
    groups = min(count, processor.units * SHARES if groups is None else groups)
    with code.block(_strided("i64", name, count, "GROUP_ID", str(groups))):
        yield name
    writing.launch(groups * processor.group, processor.group)


def within_group(writing: Writing, name: str, count: str | int) -> str:
    """Return the head of a loop over places that the work items of a group share."""
    return _strided("i32", name, count, "LOCAL_ID", str(writing.processor.group))


def _counted(kind: str, name: str, first: str, last: str) -> str:
    return f"for ({kind} {name} = {first}; {name} < {last}; {name}++)"


def _strided(kind: str, name: str, count: str | int, first: str, step: str) -> str:
    return f"for ({kind} {name} = ({kind}){first}; {name} < {count}; {name} += ({kind}){step})"
