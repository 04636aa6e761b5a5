"""Groups: rows that the work items of a group sweep together, on parallel devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from math import prod

from weft.kernels.kernel import Instruction
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.parallel import decoded, each_group
from weft_c.lowering import Writing
from weft_c.reductions.combiners import combined, total_dtype
from weft_c.reductions.loops import Sweeping
from weft_c.source.code import Code
from weft_c.source.values import Form, register_type

BESIDE = 32
"""The work items that take neighbouring places at least: they read whole cache lines."""

PLACES = 4
"""The places along a row that are worth a work item, or a bundle if that is more."""


class GroupSweeping(Sweeping):
    """A kernel in which a group sweeps a row, or a few short ones.

    Neighbouring work items take neighbouring places.
    """

    def __init__(
        self, writing: ElementWiseKernel, results: Iterable[int], is_partial: bool = False
    ) -> None:
        super().__init__(writing, results, is_partial)
        self.group = self.width = writing.processor.group
        sizes = [each.dtype.itemsize for each in self.frame.tensors if each.strides[-1]]
        places = max(PLACES, writing.processor.bundle_bytes // max(sizes, default=PLACES))
        while self.width > BESIDE and self.width * places > self.frame.reduced[-1]:
            self.width //= 2
        self.inside: list[str] = []

    @property
    def member(self) -> str:
        """The number of a work item among those that share a row."""
        return "LOCAL_ID" if self.width == self.group else f"LOCAL_ID % {self.width}"

    def write(self) -> None:
        """Write the kernel and launch it."""
        rows, together = prod(self.frame.kept), self.group // self.width
        with each_group(self.writing, -(-rows // together)) as number:
            row = number
            if together > 1:
                row = self.own(f"{number} * {together} + LOCAL_ID / {self.width}", rows, together)
            self.at_point(decoded(self.code, self.frame.kept, row, "i64"))

    def own(self, number: str, count: int, together: int) -> str:
        """Write which of so many rows, or columns, a work item has; a group has some together.

        All work items come to barriers, also those for which nothing is left; `inside` tells.
        """
        self.inside = []
        if count % together:
            number = self.code.define("const i64", "wanted", number)
            self.inside = [f"{number} < {count}"]
            if count == 1:
                return "0"
            number = f"{number} < {count} ? {number} : 0"
        return self.code.define("const i64", "place", number)

    def open_loops(self, stack: ExitStack, totals: dict[int, list[str]]) -> tuple[str, ...]:
        """Open all reduced loops but the fastest, where there is a row."""
        if self.inside:
            stack.enter_context(self.code.block(f"if ({self.inside[0]})"))
        return super().open_loops(stack, totals)

    def beside(self, place: int, lanes: int, vectors: int) -> int:
        """Return how many work items share a reduced loop."""
        return self.width if place == len(self.frame.reduced) - 1 else 1

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
        """Write the loop of one work item along the fastest loop: bundles, then what is left."""
        first = self.in_bundles((self.member, self.width), outer, totals, results, keeping)
        if first is None:
            return
        _, last = self.span(len(self.frame.reduced) - 1)
        name = self.code.name("k")
        begin = self.member if first == "0" else f"{first} + {self.member}"
        head = f"for ({self.kind} {name} = {begin}; {name} < {last}; {name} += {self.width})"
        with self.code.block(head):
            self.body((*outer, name), Form(self.code), totals, results, keeping)

    def finish(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the totals of all that share a row, who all get to know the result."""
        made = self.kernel.instruction(number)
        dtype = total_dtype(made)
        (total,) = self.rounded(names)
        total = group_total(self.writing, made, total, self.width)
        if dtype == made.dtype or self.is_partial:
            return total
        form = Form(self.code)
        text = form.converted(dtype, made.dtype, total)
        return self.code.define(f"const {form.type(made.dtype)}", "v", text)

    def store_steady(self, kept: tuple[str, ...]) -> None:
        """Let one work item store what there is once for a row."""
        if self.steady_results:
            self.wait_for_readers()
            with self.code.block(f"if ({' && '.join([f'{self.member} == 0', *self.inside])})"):
                super().store_steady(kept)

    def wait_for_readers(self) -> None:
        """Wait for all that may still read an operand that a steady result takes the place of."""
        _, varying = self.of_stage(self.kernel.stages - 1)
        if varying:
            self.code.line("BARRIER();")


def group_total(writing: Writing, made: Instruction, total: str, width: int) -> str:
    """Write what combines a total of each work item with those of its neighbours.

    So many share a row, and get the result. Warps combine theirs in registers, where there are any,
    then all totals that are left in memory that the group shares: in a tree, or one after the other
    if they are few.
    """
    code, group, warp = writing.code, writing.processor.group, writing.processor.dialect.warp
    kind = register_type(total_dtype(made))
    shared = f"shared_{kind}"
    if warp and width % warp == 0:
        _combine_warp(code, made, total, warp)
        code.declare(f"LOCAL {kind} {shared}[{group // warp}];")
        code.line(f"if (LOCAL_ID % {warp} == 0) {shared}[LOCAL_ID / {warp}] = {total};")
        code.line("BARRIER();")
        first = "" if width == group else f"LOCAL_ID / {width} * {width // warp} + "
        found = code.define(kind, "v", f"{shared}[{first}0]")
        for place in range(1, width // warp):
            text = combined(made, Form(code), found, f"{shared}[{first}{place}]")
            code.line(f"{found} = {text};")
    else:
        code.declare(f"LOCAL {kind} {shared}[{group}];")
        code.line(f"{shared}[LOCAL_ID] = {total};")
        code.line("BARRIER();")
        member = "LOCAL_ID" if width == group else f"LOCAL_ID % {width}"
        combine_tree(code, made, shared, width // 2, 1, member)
        first = "0" if width == group else f"LOCAL_ID / {width} * {width}"
        found = code.define(f"const {kind}", "v", f"{shared}[{first}]")
    code.line("BARRIER();")
    return found


def _combine_warp(code: Code, made: Instruction, total: str, warp: int) -> None:
    distance = warp // 2
    while distance:
        kind = f"const {register_type(total_dtype(made))}"
        other = code.define(kind, "other", code.shuffled(total, distance))
        code.line(f"{total} = {combined(made, Form(code), total, other)};")
        distance //= 2


def combine_tree(
    code: Code, made: Instruction, shared: str, widest: int, least: int, member: str
) -> None:
    """Write what combines totals in memory that the group shares.

    Those whose distance is `widest` come first, then half of that, down to the `least`. `member`
    is the number of a work item among those that combine theirs.
    """
    name = code.name("half")
    with code.block(f"for (i32 {name} = {widest}; {name} >= {least}; {name} /= 2)"):
        with code.block(f"if ({member} < {name})"):
            mine, other = f"{shared}[LOCAL_ID]", f"{shared}[LOCAL_ID + {name}]"
            code.line(f"{mine} = {combined(made, Form(code), mine, other)};")
        code.line("BARRIER();")
