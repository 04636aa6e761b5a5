"""Compares the steps of a plan, by kind, with those of the plan without fusion."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest

from weft.ir.op import Op
from weft.kernels.fused_op import FusedOp
from weft.plan.plan import Plan


def compare_steps(before: Plan, after: Plan) -> str:
    """Return a table of how many steps of each kind two plans have, the most frequent first.

    The kind of a step is the title of its kernel, else its op. Called graphs are not included.
    """
    columns = [_column(before, "steps before fusion"), _column(after, "steps after it")]
    width = max(map(len, columns[0])) + 4
    rows = zip_longest(*columns, fillvalue="")
    return "\n".join(f"{left:{width}}{right}".rstrip() for left, right in rows)


def _column(plan: Plan, heading: str) -> list[str]:
    kinds = Counter(_kind(step.op) for step in plan.steps)
    rows = [f"{count:5}  {kind}" for kind, count in kinds.most_common()]
    return [heading, *rows, f"{len(plan.steps):5}  in all"]


def _kind(op: Op) -> str:
    return op.kernel.title if isinstance(op, FusedOp) else type(op).__name__
