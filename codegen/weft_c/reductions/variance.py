"""One-pass variance on serial devices: sums of squared deviations from a mean.

A row is read from memory once, in blocks that fit the first-level cache. Each block is traversed
twice: for its sum, then for the squared deviations from its own mean. Blocks are combined by the
formula of Chan, Golub and LeVeque (1983), which adds the number of points times the squared
difference of the two means and avoids the cancellation of a sum of squares. The deviations from a
rounded mean do not add up to 0; a kernel that computes their sum combines it as well.
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
from weft.ops.pointwise.elementwise import MultiplyOp, SquareOp, SubtractOp
from weft.ops.reductions.reduction import SumOp
from weft_c.loops.elementwise import ElementWiseKernel
from weft_c.loops.loop_nest import LoopNest
from weft_c.reductions.combiners import accumulation_dtype
from weft_c.reductions.loops import ROW_BYTES, ReductionLoops
from weft_c.source.values import register_type

BLOCK = ROW_BYTES // 4
"""The most points of a block, so that costly values fit the row caches between stages."""


@dataclass(frozen=True)
class Variance:
    """A sum of squared deviations from a mean, by the numbers of values of a kernel.

    Attributes
    ----------
    squares
        The sum of the squared deviations.
    total
        The sum that the mean is computed from.
    mean
        The mean of all points.
    deviations
        The sum of the deviations themselves, if the kernel computes it; else None.
    """

    squares: int
    total: int
    mean: int
    deviations: int | None

    @property
    def sums(self) -> tuple[int, ...]:
        """The reductions that blocks compute around their own mean."""
        return (self.squares,) if self.deviations is None else (self.squares, self.deviations)


def find_variances(kernel: Kernel) -> list[Variance]:
    """Return all sums of squared deviations from a mean in a kernel."""
    numbers = range(len(kernel.operands), len(kernel.values))
    variances = (_find_variance(kernel, number) for number in numbers)
    return [each for each in variances if each is not None]


def _find_variance(kernel: Kernel, number: int) -> Variance | None:
    squares = _instruction_of(kernel, number, SumOp)
    square = _instruction_of(kernel, squares.args[0], SquareOp) if squares else None
    deviation = _instruction_of(kernel, square.args[0], SubtractOp) if square else None
    if squares is None or square is None or deviation is None:
        return None
    value, mean = deviation.args
    while (view := _instruction_of(kernel, mean, VIEWS)) is not None:
        mean = view.args[0]
    quotient = _instruction_of(kernel, mean, MultiplyOp)
    if quotient is None:
        return None
    for number_of_total, share in (quotient.args, quotient.args[::-1]):
        total = _instruction_of(kernel, number_of_total, SumOp)
        if total is None or total.args != (value,) or not _is_share(kernel, share):
            continue
        if all(each.dtype == accumulation_dtype(each) for each in (squares, total)):
            return Variance(number, number_of_total, mean, _sum_of(kernel, square.args[0]))
    return None


def _sum_of(kernel: Kernel, number: int) -> int | None:
    """Return the sum of a value in a kernel, if there is one."""
    for candidate in range(len(kernel.operands), len(kernel.values)):
        instruction = _instruction_of(kernel, candidate, SumOp)
        if (
            instruction is not None
            and instruction.args == (number,)
            and instruction.dtype == accumulation_dtype(instruction)
        ):
            return candidate
    return None


def _instruction_of(kernel: Kernel, number: int, kinds: Any) -> Instruction | None:
    """Return the instruction of a value if its op is of some kinds, else None."""
    value = kernel.values[number]
    return value if isinstance(value, Instruction) and isinstance(value.op, kinds) else None


def _is_share(kernel: Kernel, number: int) -> bool:
    """Whether a value is the reciprocal of the number of reduced points."""
    constant = getattr(kernel.values[number], "constant", None)
    if constant is None or not dtypes.is_float(constant.dtype):
        return False
    points = prod(kernel.domain[axis] for axis in kernel.reduced)
    return bool(abs(constant.item() * points - 1) <= 2 * np.finfo(constant.dtype).eps)


def count_blocks(nest: LoopNest, splits: int) -> int:
    """Return the number of blocks of rows that would have `splits` splits.

    No block is empty. A block exceeds `BLOCK` points only if the inner reduced loops do.
    """
    first, *others = nest.reduced
    length = max(BLOCK // prod(others), 1)
    return -(-first // min(length, -(-first // splits)))


def max_blocks(points: int, splits: int) -> int:
    """Return the most blocks that a row of some points may have."""
    return max(splits, 2 * points // BLOCK + 1)


class VarianceReductionLoops(ReductionLoops):
    """Reduction loops over blocks of rows, which also compute the mean of each block."""

    def __init__(
        self, builder: ElementWiseKernel, results: Iterable[int], variances: Iterable[Variance]
    ) -> None:
        super().__init__(builder, results, is_partial=True)
        self.means = {each.total: each.mean for each in variances}

    def finish_accumulator(self, number: int, names: Sequence[str], lanes: int) -> str:
        """Combine the lanes of an accumulator, and write the block's mean if it is a mean's sum."""
        total = super().finish_accumulator(number, names, lanes)
        if number in self.means:
            kind = register_type(self.kernel.values[number].dtype)
            first, *others = (self.span(loop)[1] for loop in range(len(self.nest.reduced)))
            points = " * ".join((f"({kind}){first}", *others))
            mean = self.code.define(f"const {kind}", "mean", f"{total} / ({points})")
            self.uniforms[self.means[number]] = mean
        return total


def points_in_block(nest: LoopNest, block: str, blocks: int) -> str:
    """Return the expression of a block's number of points; the last one may be shorter."""
    first, *others = nest.reduced
    chunk = -(-first // blocks)
    whole, rest = chunk * prod(others), (first - (blocks - 1) * chunk) * prod(others)
    return f"({block} < {blocks - 1} ? {whole} : {rest})"
