"""Lowering rules of argmax and argmin; NaN counts as the extremum."""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.description import TensorDescription
from weft.ir.dtypes import DType, is_float
from weft.ops.reductions import reduction
from weft_c.loops.parallel import parallel_for, unravel_index, work_group_loop
from weft_c.lowering import Array, KernelBuilder, Lowering, needs_scratch, rules
from weft_c.ops.sort_keys import reduce_highest_key, sort_key, sort_key_type
from weft_c.processor import Processor
from weft_c.source.code import Code
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter, register_type
from weft_tiling.counters import index_dtype, needs_wide_counter
from weft_tiling.lines import (
    WIDTH,
    are_columns,
    as_lines,
    line_blocks,
    line_count,
    sort_key_dtype,
    suits_work_groups,
    with_axis,
)
from weft_tiling.sharing import GROUPS_PER_UNIT

BLOCK = 128
"""The elements of a line that are compared before their position matters."""

MIN_LINE = 64
"""The shortest line that a work group searches."""


MIN_SPLIT_LENGTH = 4096
"""The fewest elements of a split of a line."""


def split_count(lines: int, length: int, processor: Processor) -> int:
    """Return the number of splits of each line."""
    if processor.is_serial or not lines:
        return 1
    return max(1, min(processor.units * GROUPS_PER_UNIT // lines, length // MIN_SPLIT_LENGTH))


@needs_scratch(reduction.ArgExtremumOp)
def extremum_scratch(op: reduction.ArgExtremumOp, processor: Processor) -> int:
    """Return the bytes of the splits' results: sort keys and positions."""
    x = op.args[0]
    length = x.axes.shape[op.positions[0]]
    lines = x.axes.size // max(length, 1)
    splits = split_count(lines, length, processor)
    sizes = (sort_key_dtype(x.dtype).itemsize, index_dtype(needs_wide_counter(length)).itemsize)
    return sum(-(-lines * splits * size // 256) * 256 for size in sizes) if splits > 1 else 0


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def argmax_rule(op: reduction.ArgExtremumOp, lowering: Lowering) -> None:
    """Find the highest sort key, and its first position."""
    (position,), (x,) = op.positions, lowering.args
    if not x.size:
        return
    out = with_axis(lowering.out, position, x.shape[position])
    layout, out = as_lines(position, x, out)
    search = _ArgExtremumKernel(op, lowering, layout, out)
    if suits_work_groups(layout, lowering.processor, MIN_LINE):
        search.write_groups()
    elif lowering.processor.is_serial and are_columns(layout):
        search.write_columns()
    else:
        search.write_lines()


class _ArgExtremumKernel:
    """Builds a kernel that searches lines."""

    def __init__(
        self,
        op: reduction.ArgExtremumOp,
        lowering: Lowering,
        layout: TensorDescription,
        result: TensorDescription,
    ) -> None:
        self.op = op
        self.lowering = lowering
        self.layout, self.result = layout, result
        self.shape, self.length = layout.shape, layout.shape[-1]
        self.wide = is_wide(layout)
        self.kind = index_type(self.wide)
        self.type = sort_key_type(layout.dtype)
        self.place_dtype = index_dtype(needs_wide_counter(self.length))
        self.begin()

    def begin(self) -> None:
        """Begin a kernel."""
        title = type(self.op).__name__.removesuffix("Op")
        self.builder: KernelBuilder = self.lowering.kernel(title)
        self.code = self.builder.code

    @property
    def place_type(self) -> str:
        """The C type of positions along a line in local memory."""
        return register_type(self.place_dtype)

    @property
    def x(self) -> Array:
        """The array that is searched."""
        return self.builder.array("x", self.layout)

    @property
    def out(self) -> Array:
        """The array of the positions."""
        return self.builder.array("out", self.result, written=True)

    def rank(self, *at: str) -> str:
        """Return the sort key of an element; the extremum has the highest."""
        is_least = isinstance(self.op, reduction.ArgminOp)
        return _searched_rank(self.code, self.x.dtype, self.x.get(*at), is_least)

    def write_lines(self) -> None:
        """Write a loop over lines, one work item each."""
        parallel_for(self.builder, self.shape[:-1], self.line, wide=self.wide, cost=self.length)

    def line(self, outer: tuple[str, ...], emitter: ValueEmitter) -> None:
        """Write the search of a line: for the block with the extremum, then for its position.

        The loop within a block has no index and can be vectorized. The minimum of integers is not
        computed as the maximum of inverted keys, for which Intel's compiler generates wrong code.
        """
        code, kind = self.code, self.kind
        is_least = isinstance(self.op, reduction.ArgminOp) and not is_float(self.layout.dtype)
        before, worst = ("<", f"~({self.type})0") if is_least else (">", "0")

        def rank_at(place: str) -> str:
            if not is_least:
                return self.rank(*outer, place)
            return sort_key(self.code, self.x.dtype, self.x.get(*outer, place), descending=False)

        best, found = code.define(self.type, "best", worst), code.define(kind, "found", "0")
        block, k = code.name("block"), code.name("k")
        with code.loop(kind, block, 0, self.length, BLOCK):
            last = f"{block} + {BLOCK}"
            if self.length % BLOCK:
                last = f"{last} < {self.length} ? {last} : {self.length}"
            end = code.define(f"const {kind}", "end", last)
            top = code.define(self.type, "top", worst)
            with code.loop(kind, k, block, end):
                rank = code.define(f"const {self.type}", "rank", rank_at(k))
                code.line(f"{top} = {rank} {before} {top} ? {rank} : {top};")
            code.line(f"if ({top} {before} {best}) {best} = {top}, {found} = {block};")
        code.line(f"while ({rank_at(found)} != {best}) {found}++;")
        code.line(self.out.set(found, *outer, "0"))

    def write_columns(self) -> None:
        """Write the search of a tile of lines that are contiguous in memory."""
        code, kind, width = self.code, self.kind, self.shape[-2]

        def body(at: tuple[str, ...], emitter: ValueEmitter) -> None:
            best, found, place, column = map(code.name, ("best", "found", "k", "j"))
            first = code.define(f"const {kind}", "first", f"{at[-1]} * {WIDTH}")
            rest = f"{width} - {first}"
            last = code.define(f"const {kind}", "last", f"{rest} < {WIDTH} ? {rest} : {WIDTH}")
            inner = f"for ({kind} {column} = 0; {column} < {last}; {column}++)"
            code.line(f"{self.type} {best}[{WIDTH}];")
            code.line(f"{kind} {found}[{WIDTH}];")
            code.line(f"{inner} {best}[{column}] = 0, {found}[{column}] = 0;")
            with code.loop(kind, place, 0, self.length), code.block(inner):
                at_point = (*at[:-1], f"({first} + {column})", place)
                rank = code.define(f"const {self.type}", "rank", self.rank(*at_point))
                code.line(
                    f"{found}[{column}] = {rank} > {best}[{column}] ? {place} : {found}[{column}];"
                )
                code.line(
                    f"{best}[{column}] = {rank} > {best}[{column}] ? {rank} : {best}[{column}];"
                )
            result = self.out.set(f"{found}[{column}]", *at[:-1], f"({first} + {column})", "0")
            code.line(f"{inner} {result}")

        cost = self.length * min(width, WIDTH)
        parallel_for(self.builder, line_blocks(self.shape), body, wide=self.wide, cost=cost)

    def write_groups(self) -> None:
        """Write the search of each line, or each split of it, by a work group, combining splits."""
        lines = line_count(self.layout)
        splits = split_count(lines, self.length, self.builder.processor)
        if splits == 1:
            with work_group_loop(self.builder, lines) as line:
                outer = unravel_index(self.code, self.shape[:-1], line, "i64")
                self._compare("0", str(self.length), lambda k: (self.rank(*outer, k), k))
                self._store(self.out.set("places[0]", *outer, "0"))
            return
        ranks = self.lowering.scratch((lines, splits), sort_key_dtype(self.layout.dtype))
        places = self.lowering.scratch((lines, splits), self.place_dtype)
        self._write_parts(splits, ranks, places)
        self.begin()
        found = [
            self.builder.array(hint, layout)
            for hint, layout in (("rank", ranks), ("place", places))
        ]
        with work_group_loop(self.builder, lines) as line:
            outer = unravel_index(self.code, self.shape[:-1], line, "i64")
            self._compare("0", str(splits), lambda k: tuple(each.get(line, k) for each in found))
            self._store(self.out.set("places[0]", *outer, "0"))

    def _write_parts(
        self, splits: int, ranks: TensorDescription, places: TensorDescription
    ) -> None:
        """Write the kernel that stores each split's highest sort key and its first position."""
        code, length = self.code, -(-self.length // splits)
        with work_group_loop(self.builder, line_count(self.layout) * splits) as number:
            line, part = unravel_index(code, (line_count(self.layout), splits), number, "i64")
            outer = unravel_index(code, self.shape[:-1], line, "i64")
            kind = f"const {self.place_type}"
            first = code.define(kind, "first", f"{part} * {length}")
            rest = f"{self.length} - {first}"
            last = f"{first} + ({rest} < {length} ? {rest} : {length})"
            last = code.define(kind, "last", last)
            self._compare(first, last, lambda k: (self.rank(*outer, k), k))
            stores = [
                self.builder.array(hint, layout, written=True).set(f"{hint}s[0]", line, part)
                for hint, layout in (("rank", ranks), ("place", places))
            ]
            self._store(*stores)

    def _store(self, *stores: str) -> None:
        """Write the stores of a group's result by one work item, and a barrier."""
        with self.code.block("if (LOCAL_ID == 0)"):
            for each in stores:
                self.code.line(each)
        self.code.line("BARRIER();")

    def _compare(self, first: str, last: str, found: Callable[[str], tuple[str, ...]]) -> None:
        """Write the search for the highest sort key and its first position, in local memory.

        `found` returns the sort key and the position for an index from `first` to below `last`;
        positions increase with the index.
        """
        code, group, kind = self.code, self.builder.processor.group, self.place_type
        code.line(f"{self.type} best = 0;")
        code.line(f"{kind} found = {self.length};")
        begin = "LOCAL_ID" if first == "0" else f"{first} + LOCAL_ID"
        with code.loop(kind, "k", begin, last, group):
            rank, place = found("k")
            code.line(f"const {self.type} rank = {rank};")
            code.line(f"if (rank > best || found == {self.length}) best = rank, found = {place};")
        reduce_highest_key(self.builder, (self.type, kind), "best", "found")


def _searched_rank(code: Code, dtype: DType, value: str, is_least: bool) -> str:
    rank = sort_key(code, dtype, value, descending=is_least)
    if is_least and is_float(dtype):
        return f"({value} != {value} ? ~({sort_key_type(dtype)})0 : {rank})"
    return rank
