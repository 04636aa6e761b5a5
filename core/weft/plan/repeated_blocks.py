"""Repeated blocks of steps, such as equal layers, found in linear time.

Steps that differ only in the memory that they access have equal numbers. When a sequence of numbers
occurs again, the repetition at this distance is extended in both directions and then skipped, so
each step is visited a few times at most.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from weft.ir.description import TensorDescription
from weft.kernels import FusedOp
from weft.plan.plan import Step

GRAM = 8
"""The length of the sequences that are looked up; no shorter repetition is found."""
SHORTEST = 16
"""The fewest steps of a repetition."""
WORTH = 32
"""The fewest steps that all repetitions must save for a program to be cut."""
PIECE = 8
"""The fewest steps of a piece of a repetition, since each piece costs a call."""


def kinds(steps: Sequence[Step]) -> list[int]:
    """Return a number for each step, equal for steps that differ in memory and attributes only.

    The attributes of fused ops count, since little else distinguishes them.
    """
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(_kind(step), len(numbers)) for step in steps]


def _kind(step: Step) -> Hashable:
    op = step.op
    tensors = (*step.outs, *step.args)
    scratch = None if step.workspace is None else step.workspace.shape
    # A result that overwrites an operand has the same description.
    same = tuple(tensors.index(tensor) for tensor in tensors)
    kernel = op.kernel.key if isinstance(op, FusedOp) else None
    return (type(op), kernel, tuple(map(_layout, tensors)), same, scratch)


def _layout(tensor: TensorDescription) -> Hashable:
    return (tensor.base.kind, tensor.shape, tensor.strides, tensor.dtype)


def cuts(kinds: Sequence[int], longest: int) -> list[int]:
    """Return the ends of the pieces to split steps into, so that repeats become equal pieces.

    No piece has more than `longest` steps; without worthwhile repeats, all pieces have that length.
    """
    repeats = repetitions(kinds)
    saved = sum(saves for *_, saves in repeats)
    edges = {len(kinds)}
    for start, end, period, _ in repeats if saved >= WORTH else ():
        edges.update(_edges(start, end, period, longest))
    start = 0
    result: list[int] = []
    for edge in sorted(edges - {0}):
        result.extend(range(start + longest, edge, longest))
        result.append(edge)
        start = edge
    return result


def _edges(start: int, end: int, period: int, longest: int) -> Iterable[int]:
    """Return the edges of the pieces of a repetition; short periods share a piece."""
    repeats = (end - start) // period
    together = max(1, min(-(-PIECE // period), repeats // 2))
    if repeats > longest:
        together = max(together, min(repeats // longest, longest // period))
    return (*range(start, end, period * together), end)


def repetitions(kinds: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """Return the start, end, period and saved steps of each repetition.

    A repetition of a distant sequence follows it, each with its length as its period.
    """
    result: list[tuple[int, int, int, int]] = []
    last: dict[tuple[int, ...], int] = {}
    position = free = 0
    while position + GRAM <= len(kinds):
        gram = tuple(kinds[position : position + GRAM])
        before, last[gram] = last.get(gram), position
        distance = 0 if before is None else position - before
        start, end = (
            _extended(kinds, position, distance, free) if distance else (position, position)
        )
        size = end - start
        if size < SHORTEST:
            position += 1
            continue
        if size >= distance:
            result.append((start - distance, end, distance, size))
        else:
            result += [(start - distance, end - distance, size, 0), (start, end, size, size)]
        for each in range(position + 1, end - GRAM + 1):
            last[tuple(kinds[each : each + GRAM])] = each
        position = free = end
    return result


def _extended(kinds: Sequence[int], position: int, distance: int, free: int) -> tuple[int, int]:
    """Return the start and end of the repetition around a step, not before `free`."""
    start = end = position
    while end < len(kinds) and kinds[end] == kinds[end - distance]:
        end += 1
    while start > max(free, distance) and kinds[start - 1] == kinds[start - 1 - distance]:
        start -= 1
    return start, end
