"""Combiners of reductions, and compensated accumulators that bound rounding errors.

Sums of floats are blocked: after `BLOCK` plain additions the block is added to a compensated
accumulator, which keeps the rounding error of each addition (Knuth, The Art of Computer Programming
2, 4.2.2). Products are compensated at every multiplication (Ogita, Rump and Oishi, Accurate sum and
dot product, 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.ir import dtypes
from weft.ir.dtypes import DType, accumulator_dtype
from weft.kernels.kernel import Instruction
from weft.ops.reductions.reduction import MaxOp, MinOp, ProdOp, SumOp
from weft_c.source.code import Code
from weft_c.source.values import ValueEmitter

REDUCTIONS = (SumOp, ProdOp, MaxOp, MinOp)

BLOCK = 64
"""The most consecutive plain additions to an accumulator."""


def accumulation_dtype(instruction: Instruction) -> DType:
    """Return the dtype of a reduction's accumulators."""
    return (
        accumulator_dtype(instruction.dtype)
        if isinstance(instruction.op, SumOp | ProdOp)
        else instruction.dtype
    )


def identity_element(instruction: Instruction, emitter: ValueEmitter) -> str:
    """Return the identity element of a reduction."""
    dtype = accumulation_dtype(instruction)
    if isinstance(instruction.op, SumOp):
        return emitter.constant(0, dtype)
    if isinstance(instruction.op, ProdOp):
        return emitter.constant(1, dtype)
    bound = dtypes.least(dtype) if isinstance(instruction.op, MaxOp) else dtypes.greatest(dtype)
    return emitter.constant(bound, dtype)


def combine(instruction: Instruction, emitter: ValueEmitter, total: str, value: str) -> str:
    """Return the combination of an accumulator with a value or another accumulator."""
    dtype = accumulation_dtype(instruction)
    if isinstance(instruction.op, SumOp | ProdOp):
        sign = "+" if isinstance(instruction.op, SumOp) else "*"
        if not dtypes.is_integer(dtype):
            return f"{total} {sign} {value}"
        pair = (emitter.unsigned(dtype, each) for each in (total, value))
        return emitter.signed(dtype, f"({f' {sign} '.join(pair)})")
    sign = ">" if isinstance(instruction.op, MaxOp) else "<"
    return emitter.extremum(dtype, sign, total, value)


def is_blocked(instruction: Instruction) -> bool:
    """Whether a reduction is a sum of floats, which is accumulated in blocks."""
    return isinstance(instruction.op, SumOp) and dtypes.is_float(accumulation_dtype(instruction))


def is_compensated(instruction: Instruction) -> bool:
    """Whether a reduction is a product of floats, which is compensated at each step."""
    return isinstance(instruction.op, ProdOp) and dtypes.is_float(accumulation_dtype(instruction))


@dataclass(frozen=True)
class CompensatedAccumulator:
    """An accumulator of floats in two variables, or elements of arrays.

    Attributes
    ----------
    dtype
        The dtype of both.
    emitter
        The emitter of both, scalars or vectors.
    total, error
        The names of the rounded total and of the accumulated rounding error.
    """

    dtype: DType
    emitter: ValueEmitter
    total: str
    error: str

    def add(self, code: Code, value: str) -> None:
        """Write the addition of a value (two-sum)."""
        kind, total = f"const {self.emitter.type(self.dtype)}", self.total
        value = code.define(kind, "value", value)
        after = code.define(kind, "after", f"{total} + {value}")
        share = code.define(kind, "share", f"{after} - {total}")
        code.line(f"{self.error} += ({total} - ({after} - {share})) + ({value} - {share});")
        code.line(f"{total} = {after};")

    def multiply(self, code: Code, value: str, error_of_value: str | None = None) -> None:
        """Write the multiplication by a value (two-product by FMA), which may have an error."""
        kind, total, error = f"const {self.emitter.type(self.dtype)}", self.total, self.error
        value = code.define(kind, "value", value)
        after = code.define(kind, "after", f"{total} * {value}")
        of_value = "" if error_of_value is None else f" + {total} * {error_of_value}"
        code.line(f"{error} = FMA({total}, {value}, -{after}) + {error} * {value}{of_value};")
        code.line(f"{total} = {after};")

    def accumulate(self, code: Code, instruction: Instruction, value: str) -> None:
        """Write the update by a value, an addition or multiplication according to the reduction."""
        (self.multiply if isinstance(instruction.op, ProdOp) else self.add)(code, value)

    @property
    def rounded(self) -> str:
        """The total with its error added; just the total where the error is not finite, or is 0.

        The sum of -0.0 and an error of 0 would be 0.0.
        """
        zero, inf = (self.emitter.constant(bound, self.dtype) for bound in (0, math.inf))
        has_error = f"((fabs({self.error}) > {zero}) & (fabs({self.error}) < {inf}))"
        return self.emitter.select(has_error, f"{self.total} + {self.error}", self.total)
