"""Moments: sums of squared distances from a mean, in one read from memory, on serial devices.

The distances wait for the mean of a whole row. So a row is cut into blocks that stay in the nearest
cache, where each is swept twice: for its sum, then for the squared distances from its own mean.
From the mean of the row these are as many more as the block has points, times the squared distance
of the two means (Chan, Golub and LeVeque, 1983). No digits are lost as by a sum of squares. What
distances from a rounded mean add up to is no zero, and counts as well where a kernel computes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from weft.ir import dtypes
from weft.kernels.indexing_maps import VIEWS
from weft.kernels.kernel import Instruction, Kernel
from weft.ops.elementwise import MultiplyOp, SquareOp, SubtractOp
from weft.ops.reduction import SumOp
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import LoopNest
from weft_c.reductions.combiners import accumulation_dtype
from weft_c.reductions.loops import ROW_BYTES, ReductionLoops
from weft_c.source.values import register_type

BLOCK = ROW_BYTES // 4
"""The most points of a block: costly values of so many are kept from one sweep to the next."""


@dataclass(frozen=True)
class Variance:
    """A sum of squared distances from a mean, by the numbers of values of a kernel.

    Attributes
    ----------
    squares
        The reduction that adds up the squared distances.
    total
        The reduction that adds up what the mean is of.
    mean
        The mean of all points.
    distances
        The reduction that adds up the distances themselves, if there is one.
    """

    squares: int
    total: int
    mean: int
    deviations: int | None

    @property
    def sums(self) -> tuple[int, ...]:
        """The reductions that blocks take around their own mean."""
        return (self.squares,) if self.deviations is None else (self.squares, self.deviations)


def find_variances(kernel: Kernel) -> list[Variance]:
    """Return all sums of squared distances from a mean that a kernel computes."""
    numbers = range(len(kernel.operands), len(kernel.values))
    found = (_find_variance(kernel, number) for number in numbers)
    return [each for each in found if each is not None]


def _find_variance(kernel: Kernel, number: int) -> Variance | None:
    squares = _made(kernel, number, SumOp)
    square = _made(kernel, squares.args[0], SquareOp) if squares else None
    deviation = _made(kernel, square.args[0], SubtractOp) if square else None
    if squares is None or square is None or deviation is None:
        return None
    value, mean = deviation.args
    while (view := _made(kernel, mean, VIEWS)) is not None:
        mean = view.args[0]
    quotient = _made(kernel, mean, MultiplyOp)
    if quotient is None:
        return None
    for number_of_total, share in (quotient.args, quotient.args[::-1]):
        total = _made(kernel, number_of_total, SumOp)
        if total is None or total.args != (value,) or not _is_share(kernel, share):
            continue
        if all(each.dtype == accumulation_dtype(each) for each in (squares, total)):
            return Variance(number, number_of_total, mean, _sum_of(kernel, square.args[0]))
    return None


def _sum_of(kernel: Kernel, number: int) -> int | None:
    """Return the reduction that adds up a value, if there is one."""
    for place in range(len(kernel.operands), len(kernel.values)):
        instruction = _made(kernel, place, SumOp)
        if (
            instruction is not None
            and instruction.args == (number,)
            and instruction.dtype == accumulation_dtype(instruction)
        ):
            return place
    return None


def _made(kernel: Kernel, number: int, kinds: Any) -> Instruction | None:
    """Return the instruction that computes a value if it is of some kinds."""
    value = kernel.values[number]
    return value if isinstance(value, Instruction) and isinstance(value.op, kinds) else None


def _is_share(kernel: Kernel, number: int) -> bool:
    """Whether a value is 1 over the number of reduced points."""
    constant = getattr(kernel.values[number], "constant", None)
    if constant is None or not dtypes.is_float(constant.dtype):
        return False
    points = prod(kernel.domain[place] for place in kernel.reduced)
    return bool(abs(constant.item() * points - 1) <= 2 * np.finfo(constant.dtype).eps)


def count_blocks(nest: LoopNest, splits: int) -> int:
    """Return into how many blocks rows are cut that would be cut into so many parts.

    None of them is empty. They are longer than `BLOCK` only where the points beside the first
    reduced loop are.
    """
    first, *others = nest.reduced
    length = max(BLOCK // prod(others), 1)
    return -(-first // min(length, -(-first // splits)))


def max_blocks(points: int, splits: int) -> int:
    """Return how many blocks there are at most in a row of so many points."""
    return max(splits, 2 * points // BLOCK + 1)


class VarianceReductionLoops(ReductionLoops):
    """A kernel that sweeps blocks of rows for totals, with their own means for that of a row."""

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], variances: Iterable[Variance]
    ) -> None:
        super().__init__(builder, results, is_partial=True)
        self.means = {each.total: each.mean for each in variances}

    def finish_accumulator(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the lanes of a total, and divide it by the points if there is a mean of it."""
        total = super().finish_accumulator(number, names, lanes)
        if number in self.means:
            kind = register_type(self.kernel.values[number].dtype)
            first, *others = (self.span(place)[1] for place in range(len(self.nest.reduced)))
            points = " * ".join((f"({kind}){first}", *others))
            mean = self.code.define(f"const {kind}", "mean", f"{total} / ({points})")
            self.uniforms[self.means[number]] = mean
        return total


def points_in_block(nest: LoopNest, block: str, blocks: int) -> str:
    """Return the number of points of a block of the rows of a frame; the last may be shorter."""
    first, *others = nest.reduced
    chunk = -(-first // blocks)
    whole, rest = chunk * prod(others), (first - (blocks - 1) * chunk) * prod(others)
    return f"({block} < {blocks - 1} ? {whole} : {rest})"
