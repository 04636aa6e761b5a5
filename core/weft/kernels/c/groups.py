"""Groups: rows that all work items of a group sweep together, on parallel devices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft.kernels.c.code import Code
from weft.kernels.c.forms import Form
from weft.kernels.c.loops import SHARES, decoded
from weft.kernels.c.sweeps import Sweeping, combined, total_dtype
from weft.kernels.kernel import Instruction


class GroupSweeping(Sweeping):
    """A kernel in which a group sweeps a row: neighbouring work items take neighbouring places."""

    @property
    def group(self) -> int:
        """The number of work items that share a row."""
        return self.writing.processor.group

    def write(self) -> None:
        """Write the kernel and launch it."""
        rows = prod(self.frame.kept)
        name = self.code.name("row")
        groups = f"(GLOBAL_SIZE / {self.group})"
        head = f"for (i64 {name} = GROUP_ID; {name} < {rows}; {name} += {groups})"
        with self.code.block(head):
            self.at_point(decoded(self.code, self.frame.kept, name, "i64"))
        count = min(rows, self.writing.processor.units * SHARES)
        self.writing.launch(count * self.group, self.group)

    def lanes(self, targets: Sequence[int], results: Sequence[int]) -> int:
        """Return 1: neighbouring work items take the place of vectors."""
        return 1

    def inner(
        self,
        outer: tuple[str, ...],
        lanes: int,
        totals: dict[int, list[str]],
        results: Sequence[int],
        keeping: dict[int, str],
    ) -> None:
        """Write the loop of one work item along the fastest loop."""
        first, last = self.span(len(self.frame.reduced) - 1)
        name = self.code.name("k")
        begin = "LOCAL_ID" if first == "0" else f"{first} + LOCAL_ID"
        head = f"for ({self.kind} {name} = {begin}; {name} < {last}; {name} += {self.group})"
        with self.code.block(head):
            self.body((*outer, name), Form(), totals, results, keeping)

    def finish(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the totals of all work items, which all get to know the result."""
        made = self.kernel.instruction(number)
        dtype = total_dtype(made)
        warp = self.writing.processor.dialect.warp
        total = group_total(self.code, made, names[0], self.group, warp)
        if dtype == made.dtype or self.is_partial:
            return total
        form = Form()
        text = form.converted(dtype, made.dtype, total)
        return self.code.define(f"const {form.type(made.dtype)}", "v", text)

    def store_steady(self, kept: tuple[str, ...]) -> None:
        """Let one work item store what there is once for a row."""
        with self.code.block("if (LOCAL_ID == 0)"):
            super().store_steady(kept)


def group_total(code: Code, made: Instruction, total: str, group: int, warp: int) -> str:
    """Write what combines a total of each work item; all of them get the result.

    Warps combine theirs in registers, where there are any, then all totals that are left in
    memory that the group shares: in a tree, or one after the other if they are few.
    """
    kind = Form().type(total_dtype(made))
    shared = code.name("shared")
    if warp and group % warp == 0:
        _combine_warp(code, made, total, warp)
        code.declare(f"LOCAL {kind} {shared}[{group // warp}];")
        code.line(f"if (LOCAL_ID % {warp} == 0) {shared}[LOCAL_ID / {warp}] = {total};")
        code.line("BARRIER();")
        found = code.define(kind, "v", f"{shared}[0]")
        for place in range(1, group // warp):
            code.line(f"{found} = {combined(made, Form(), found, f'{shared}[{place}]')};")
    else:
        code.declare(f"LOCAL {kind} {shared}[{group}];")
        code.line(f"{shared}[LOCAL_ID] = {total};")
        code.line("BARRIER();")
        _combine_tree(code, made, shared, group)
        found = code.define(f"const {kind}", "v", f"{shared}[0]")
    code.line("BARRIER();")
    return found


def _combine_warp(code: Code, made: Instruction, total: str, warp: int) -> None:
    distance = warp // 2
    while distance:
        kind = f"const {Form().type(total_dtype(made))}"
        other = code.define(kind, "other", f"SHUFFLE_DOWN({total}, {distance})")
        code.line(f"{total} = {combined(made, Form(), total, other)};")
        distance //= 2


def _combine_tree(code: Code, made: Instruction, shared: str, group: int) -> None:
    name = code.name("half")
    with code.block(f"for (i32 {name} = {group // 2}; {name} > 0; {name} /= 2)"):
        with code.block(f"if (LOCAL_ID < {name})"):
            mine, other = f"{shared}[LOCAL_ID]", f"{shared}[LOCAL_ID + {name}]"
            code.line(f"{mine} = {combined(made, Form(), mine, other)};")
        code.line("BARRIER();")
