"""Rules for where the largest or smallest element of a line is; NaN counts as either."""

from __future__ import annotations

from weft.description import TensorDescription
from weft.dtypes import DType, is_float
from weft.kernels.c.forms import Form
from weft.kernels.c.loops import decoded, each_point
from weft.kernels.c.lowering import Array, Lowering, Writing, is_wide, needs_scratch, rules
from weft.kernels.c.processor import Processor
from weft.kernels.c.steps.bits import index_kind
from weft.kernels.c.steps.lines import (
    WIDTH,
    are_columns,
    blocks_of,
    count_of,
    in_lines,
    is_for_groups,
    with_axis,
)
from weft.kernels.c.steps.ranks import rank_of, rank_type
from weft.kernels.c.steps.spreading import each_group, within_group
from weft.ops import reduction

BLOCK = 128
"""The elements of a line that are compared at once."""

LEAST = 64
"""The shortest line that is for a group."""


@needs_scratch(reduction.ArgExtremumOp)
def no_scratch(op: reduction.ArgExtremumOp, processor: Processor) -> int:
    """Return 0: there are no totals of parts."""
    return 0


@rules.on_type(reduction.ArgmaxOp, reduction.ArgminOp)
def argmax_rule(op: reduction.ArgExtremumOp, lowering: Lowering) -> None:
    """Find the highest rank, and the first place that has it."""
    (position,), (x,) = op.positions, lowering.args
    if not x.size:
        return
    out = with_axis(lowering.out, position, x.shape[position])
    lies, out = in_lines(position, x, out)
    writing = lowering.kernel(type(op).__name__.removesuffix("Op"))
    search = _Search(writing, lies, out, isinstance(op, reduction.ArgminOp))
    if is_for_groups(lies, writing.processor, LEAST):
        search.write_groups()
    elif writing.processor.is_serial and are_columns(lies):
        search.write_columns()
    else:
        each_point(writing, lies.shape[:-1], search.line, wide=search.wide, cost=lies.shape[-1])


class _Search:
    """A kernel that looks along lines."""

    def __init__(
        self, writing: Writing, lies: TensorDescription, out: TensorDescription, is_least: bool
    ) -> None:
        self.writing = writing
        self.code = writing.code
        self.x: Array = writing.array("x", lies)
        self.out: Array = writing.array("out", out, written=True)
        self.shape, self.length, self.is_least = lies.shape, lies.shape[-1], is_least
        self.wide = is_wide(lies)
        self.kind = index_kind(self.wide)
        self.type = rank_type(lies.dtype)

    def rank(self, *at: str) -> str:
        """Return the rank of an element, the highest for what is searched."""
        return _searched_rank(self.x.dtype, self.x.get(*at), self.is_least)

    def line(self, at: tuple[str, ...], form: Form) -> None:
        """Look for the block of a line that has the highest rank first, and then for its place.

        So the way along the line is a loop of vectors.
        """
        outer, code, kind = at[: len(self.shape) - 1], self.code, self.kind
        best, found = code.define(self.type, "best", "0"), code.define(kind, "found", "0")
        block, k = code.name("block"), code.name("k")
        head = f"for ({kind} {block} = 0; {block} < {self.length}; {block} += {BLOCK})"
        with code.block(head):
            last = f"{block} + {BLOCK}"
            if self.length % BLOCK:
                last = f"{last} < {self.length} ? {last} : {self.length}"
            end = code.define(f"const {kind}", "end", last)
            top = code.define(self.type, "top", "0")
            with code.block(f"for ({kind} {k} = {block}; {k} < {end}; {k}++)"):
                rank = code.define(f"const {self.type}", "rank", self.rank(*outer, k))
                code.line(f"{top} = {rank} > {top} ? {rank} : {top};")
            code.line(f"if ({top} > {best}) {best} = {top}, {found} = {block};")
        code.line(f"while ({self.rank(*outer, found)} != {best}) {found}++;")
        code.line(self.out.set(found, *outer, "0"))

    def write_columns(self) -> None:
        """Look along lines that lie beside each other together."""
        code, kind, width = self.code, self.kind, self.shape[-2]

        def body(at: tuple[str, ...], form: Form) -> None:
            best, found, place, column = map(code.name, ("best", "found", "k", "j"))
            first = code.define(f"const {kind}", "first", f"{at[-1]} * {WIDTH}")
            rest = f"{width} - {first}"
            last = code.define(f"const {kind}", "last", f"{rest} < {WIDTH} ? {rest} : {WIDTH}")
            inner = f"for ({kind} {column} = 0; {column} < {last}; {column}++)"
            code.line(f"{self.type} {best}[{WIDTH}];")
            code.line(f"i32 {found}[{WIDTH}];")
            code.line(f"{inner} {best}[{column}] = 0, {found}[{column}] = 0;")
            outer = f"for (i32 {place} = 0; {place} < {self.length}; {place}++)"
            with code.block(outer), code.block(inner):
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
        each_point(self.writing, blocks_of(self.shape), body, wide=self.wide, cost=cost)

    def write_groups(self) -> None:
        """Let a group look along each line, and compare what its work items have found."""
        code, group = self.code, self.writing.processor.group
        code.declare(f"LOCAL {self.type} ranks[{group}];")
        code.declare(f"LOCAL i32 places[{group}];")
        with each_group(self.writing, count_of(self.x.lies)) as line:
            outer = decoded(code, self.shape[:-1], line, "i64")
            code.line(f"{self.type} best = 0;")
            code.line(f"i32 found = {self.length};")
            with code.block(within_group(self.writing, "k", self.length)):
                code.line(f"const {self.type} rank = {self.rank(*outer, 'k')};")
                code.line(f"if (rank > best || found == {self.length}) best = rank, found = k;")
            code.line("ranks[LOCAL_ID] = best;")
            code.line("places[LOCAL_ID] = found;")
            code.line("BARRIER();")
            with code.block(f"for (i32 reach = {group // 2}; reach > 0; reach /= 2)"):
                with code.block("if (LOCAL_ID < reach)"):
                    code.line("const i32 other = LOCAL_ID + reach;")
                    better = (
                        "ranks[other] > ranks[LOCAL_ID] || (ranks[other] == ranks[LOCAL_ID] && "
                        "places[other] < places[LOCAL_ID])"
                    )
                    with code.block(f"if ({better})"):
                        code.line("ranks[LOCAL_ID] = ranks[other];")
                        code.line("places[LOCAL_ID] = places[other];")
                code.line("BARRIER();")
            code.line(f"if (LOCAL_ID == 0) {self.out.set('places[0]', *outer, '0')}")
            code.line("BARRIER();")


def _searched_rank(dtype: DType, value: str, is_least: bool) -> str:
    rank = rank_of(dtype, value, descending=is_least)
    if is_least and is_float(dtype):
        return f"({value} != {value} ? ~({rank_type(dtype)})0 : {rank})"
    return rank
