"""Lowering rules of sort, argsort and top-k: sort keys are sorted with their positions.

On a serial device a work item uses a radix sort, or insertion for a small top-k. Elsewhere a work
group uses Batcher's bitonic network, in local memory if the line fits, or repeated selection for a
small top-k of a longer line.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.dtypes import DType
from weft.ops.reductions import sorting
from weft_c.loops.parallel import parallel_for, unravel_index, work_group_loop, work_item_loop
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.ops.sort_keys import reduce_highest_key, sort_key, sort_key_type
from weft_c.ops.views import bits
from weft_c.ops.work_sharing import launch, share_points
from weft_c.processor import Processor
from weft_c.source.code import Address
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, register_type
from weft_tiling.lines import (
    as_lines,
    concurrent_lines,
    fits_group,
    line_count,
    network_bytes,
    next_power_of_two,
    place_dtype,
    sort_key_dtype,
)

MAX_INSERTED = 32
"""The largest top-k by insertion."""

MAX_SELECTED = 64
"""The largest top-k by repeated selection."""


def _uses_insertion(op: sorting.SortingOp, processor: Processor) -> bool:
    return processor.is_serial and isinstance(op, sorting.TopKIndicesOp) and op.k <= MAX_INSERTED


def _uses_selection(op: sorting.SortingOp, processor: Processor) -> bool:
    if processor.is_serial or not isinstance(op, sorting.TopKIndicesOp) or op.k > MAX_SELECTED:
        return False
    x = op.args[0]
    return not fits_group(x.axes.shape[op.position], x.dtype, processor)


@needs_scratch(sorting.ArgsortOp, sorting.SortOp, sorting.TopKIndicesOp)
def sorting_scratch(op: sorting.SortingOp, processor: Processor) -> int:
    """Return the bytes of sort keys and positions, doubled on serial devices."""
    x = op.args[0]
    length: int = x.axes.shape[op.position]
    if not x.axes.size or _uses_insertion(op, processor) or _uses_selection(op, processor):
        return 0
    lines: int = x.axes.size // length
    if not processor.is_serial:
        return network_bytes(lines, length, x.dtype, processor)
    each = sort_key_dtype(x.dtype).itemsize + place_dtype(length, processor).itemsize
    return concurrent_lines(lines, length, processor) * 2 * length * each + 4 * 256


@rules.on_type(sorting.ArgsortOp, sorting.SortOp, sorting.TopKIndicesOp)
def sorting_rule(op: sorting.SortingOp, lowering: Lowering) -> None:
    """Sort each line; store the positions, or the elements at those positions."""
    if lowering.out.size:
        sort = _SortKernel(op, lowering)
        if _uses_insertion(op, lowering.processor):
            sort.write_insertion()
        elif lowering.processor.is_serial:
            sort.write_radix_sort()
        elif _uses_selection(op, lowering.processor):
            sort.write_selection()
        else:
            sort.write_network()


class _SortKernel:
    """Builds a kernel that sorts lines."""

    def __init__(self, op: sorting.SortingOp, lowering: Lowering) -> None:
        self.op = op
        self.lowering = lowering
        self.builder: KernelBuilder = lowering.kernel(type(op).__name__.removesuffix("Op"))
        self.code = self.builder.code
        x, out = as_lines(op.position, lowering.args[0], lowering.out)
        self.takes_elements = isinstance(op, sorting.SortOp)
        self.x: Array = self.builder.array("x", x)
        self.elements: Array = self.builder.array("x", bits(x)) if self.takes_elements else self.x
        self.out: Array = self.builder.array(
            "out", bits(out) if self.takes_elements else out, written=True
        )
        self.count, self.length, self.kept = line_count(x), x.shape[-1], out.shape[-1]
        self.lines = x.shape[:-1]
        self.sort_key_type = sort_key_type(x.dtype)
        self.wide = is_wide(x, out)
        self.place_dtype = place_dtype(self.length, self.builder.processor)
        self.place_type = register_type(self.place_dtype)
        self.concurrent_lines = concurrent_lines(self.count, self.length, self.builder.processor)

    def rank(self, *at: str) -> str:
        """Return the sort key of an element."""
        return sort_key(self.code, self.x.dtype, self.x.get(*at), self.op.descending)

    def store(self, outer: tuple[str, ...], number: str, place: str) -> str:
        """Return the statement that stores result `number`, the element at a position or that."""
        value = self.elements.get(*outer, place) if self.takes_elements else place
        return self.out.set(value, *outer, number)

    def scratch(self, hint: str, dtype: DType, slots: int) -> Callable[[str], Address]:
        """Return a function that gives the address of a work item's or group's scratch memory."""
        memory = self.lowering.scratch((self.concurrent_lines, slots), dtype)
        array = self.builder.array(hint, memory, written=True)
        return lambda number: array.at(number, "0")

    def write_insertion(self) -> None:
        """Write a top-k by insertion into a sorted array of k elements."""
        code, kind, few = self.code, index_type(self.wide), self.kept

        def body(outer: tuple[str, ...], emitter: ValueEmitter) -> None:
            ranks, places, have, i, j = map(code.name, ("ranks", "places", "have", "i", "j"))
            code.line(f"{self.sort_key_type} {ranks}[{few}];")
            code.line(f"{self.place_type} {places}[{few}];")
            code.line(f"i32 {have} = 0;")
            with code.loop(kind, i, 0, self.length):
                rank = code.define(f"const {self.sort_key_type}", "rank", self.rank(*outer, i))
                code.line(f"if ({have} == {few} && {rank} >= {ranks}[{few - 1}]) continue;")
                code.line(f"i32 {j} = {have} < {few} ? {have}++ : {few - 1};")
                with code.block(f"for (; {j} > 0 && {ranks}[{j} - 1] > {rank}; {j}--)"):
                    code.line(f"{ranks}[{j}] = {ranks}[{j} - 1];")
                    code.line(f"{places}[{j}] = {places}[{j} - 1];")
                code.line(f"{ranks}[{j}] = {rank};")
                code.line(f"{places}[{j}] = {i};")
            with code.loop(kind, i, 0, few):
                code.line(self.store(outer, i, f"{places}[{i}]"))

        parallel_for(self.builder, self.lines, body, wide=self.wide, cost=self.length)

    def write_selection(self) -> None:
        """Write a top-k by repeated search for the next element, a work group for each line."""
        code, kind = self.code, self.place_type
        with work_group_loop(self.builder, self.count) as line:
            outer = unravel_index(code, self.lines, line, "i64")
            code.line(f"{self.sort_key_type} last = 0;")
            code.line(f"{kind} place = -1;")
            with code.loop("i32", "number", 0, self.kept):
                code.line(f"{self.sort_key_type} best = ~({self.sort_key_type})0;")
                code.line(f"{kind} found = {self.length};")
                with code.block(work_item_loop(self.builder, "i", self.length, kind)):
                    code.line(f"const {self.sort_key_type} rank = {self.rank(*outer, 'i')};")
                    code.line("const bool is_left = rank > last || (rank == last && i > place);")
                    is_first = f"rank < best || found == {self.length}"
                    code.line(f"if (is_left && ({is_first})) best = rank, found = i;")
                reduce_highest_key(self.builder, (self.sort_key_type, kind), "~best", "found")
                code.line("last = ~ranks[0];")
                code.line("place = places[0];")
                with code.block("if (LOCAL_ID == 0)"):
                    code.line(self.store(outer, "number", "place"))
                code.line("BARRIER();")

    def write_radix_sort(self) -> None:
        """Write a radix sort of whole lines by each work item."""
        code, kind, n = self.code, index_type(self.wide), self.length
        dtype = sort_key_dtype(self.x.dtype)
        memory = [
            (hint, each, self.scratch(hint, each, n))
            for hint, each in (("ranks", dtype), ("places", self.place_dtype)) * 2
        ]
        names = []
        for hint, each, begin in memory:
            names.append(code.define(f"GLOBAL {register_type(each)} *", hint, begin("GLOBAL_ID")))
        ranks, places, _, spare_places = names

        def body(outer: tuple[str, ...], emitter: ValueEmitter) -> None:
            i = code.name("i")
            with code.loop(kind, i, 0, n):
                code.line(f"{ranks}[{i}] = {self.rank(*outer, i)};")
                code.line(f"{places}[{i}] = {i};")
            call = code.call(f"weft_sort_{self.sort_key_type}_{self.place_type}", *names, str(n))
            found = f"{call} ? {spare_places} : {places}"
            order = code.define(f"GLOBAL const {self.place_type} *", "order", found)
            with code.loop(kind, i, 0, self.kept):
                place = code.define(f"const {self.place_type}", "place", f"{order}[{i}]")
                code.line(self.store(outer, i, place))

        share_points(self.builder, self.lines, self.concurrent_lines, body, kind)
        launch(self.builder, self.concurrent_lines)

    def write_network(self) -> None:
        """Write a bitonic sort of each line by a work group, padded to a power of two."""
        code, kind, slots = self.code, self.place_type, next_power_of_two(self.length)
        dtype = self.x.dtype
        groups = None
        if fits_group(self.length, dtype, self.builder.processor):
            code.declare(f"LOCAL {self.sort_key_type} ranks[{slots}];")
            code.declare(f"LOCAL {kind} places[{slots}];")
        else:
            groups = self.concurrent_lines
            ranks = self.scratch("all_ranks", sort_key_dtype(dtype), slots)
            places = self.scratch("all_places", self.place_dtype, slots)
            code.line(f"GLOBAL {self.sort_key_type} *ranks = {ranks('GROUP_ID')};")
            code.line(f"GLOBAL {kind} *places = {places('GROUP_ID')};")
        with work_group_loop(self.builder, self.count, groups) as line:
            outer = unravel_index(code, self.lines, line, "i64")
            with code.block(work_item_loop(self.builder, "i", slots, kind)):
                code.line("places[i] = i;")
                code.line(
                    f"ranks[i] = i < {self.length} ? {self.rank(*outer, 'i')} : "
                    f"~({self.sort_key_type})0;"
                )
            self._network(slots)
            with code.block(work_item_loop(self.builder, "i", self.kept, kind)):
                code.line(self.store(outer, "i", "places[i]"))
            code.line("MEMORY_BARRIER();")

    def _network(self, slots: int) -> None:
        code, kind = self.code, self.place_type
        with (
            code.block(f"for ({kind} size = 2; size <= {slots}; size *= 2)"),
            code.block(f"for ({kind} reach = size / 2; reach > 0; reach /= 2)"),
        ):
            code.line("MEMORY_BARRIER();")
            with code.block(work_item_loop(self.builder, "i", max(slots // 2, 1), kind)):
                code.line(f"const {kind} low = 2 * i - (i & (reach - 1)), high = low + reach;")
                code.line(f"const {self.sort_key_type} x = ranks[low], y = ranks[high];")
                code.line(f"const {kind} first = places[low], second = places[high];")
                code.line("const bool is_above = x > y || (x == y && first > second);")
                with code.block("if (is_above == !(low & size))"):
                    code.line("ranks[low] = y, ranks[high] = x;")
                    code.line("places[low] = second, places[high] = first;")
        code.line("MEMORY_BARRIER();")
