"""Totals: how reductions combine values so that rounding errors do not grow with their number.

Sums of floats are blocked and compensated: a sweep makes `BLOCK` plain additions, then puts what
they come to aside, where each addition keeps its rounding error (Knuth, The Art of Computer
Programming 2, 4.2.2). Products keep the rounding error of every multiplication (Ogita, Rump and
Oishi, Accurate sum and dot product, 2005).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir import dtypes
from weft.ir.dtypes import DType, accumulator_dtype
from weft.kernels.kernel import Instruction
from weft.ops.reduction import MaxOp, MinOp, ProdOp, SumOp
from weft_c.source.code import Code
from weft_c.source.expressions import extremum
from weft_c.source.values import Emitter

REDUCTIONS = (SumOp, ProdOp, MaxOp, MinOp)

BLOCK = 64
"""The most values that a total takes by plain additions, one after the other."""


def accumulation_dtype(instruction: Instruction) -> DType:
    """Return the dtype in which a reduction adds up."""
    return (
        accumulator_dtype(instruction.dtype)
        if isinstance(instruction.op, SumOp | ProdOp)
        else instruction.dtype
    )


def identity_element(instruction: Instruction, emitter: Emitter) -> str:
    """Return the value that a reduction begins with."""
    dtype = accumulation_dtype(instruction)
    if isinstance(instruction.op, SumOp):
        return emitter.constant(0, dtype)
    if isinstance(instruction.op, ProdOp):
        return emitter.constant(1, dtype)
    bound = dtypes.least(dtype) if isinstance(instruction.op, MaxOp) else dtypes.greatest(dtype)
    return emitter.constant(bound, dtype)


def combine(instruction: Instruction, emitter: Emitter, total: str, value: str) -> str:
    """Return a total with one more value, or with another total."""
    dtype = accumulation_dtype(instruction)
    if isinstance(instruction.op, SumOp | ProdOp):
        sign = "+" if isinstance(instruction.op, SumOp) else "*"
        if not dtypes.is_integer(dtype):
            return f"{total} {sign} {value}"
        pair = (emitter.unsigned(dtype, each) for each in (total, value))
        return emitter.signed(dtype, f"({f' {sign} '.join(pair)})")
    return extremum(dtype, ">" if isinstance(instruction.op, MaxOp) else "<", total, value)


def is_blocked(instruction: Instruction) -> bool:
    """Whether a reduction adds up floats, which `BLOCK` plain additions may round."""
    return isinstance(instruction.op, SumOp) and dtypes.is_float(accumulation_dtype(instruction))


def is_compensated(instruction: Instruction) -> bool:
    """Whether a reduction multiplies floats, each of which rounds the whole product."""
    return isinstance(instruction.op, ProdOp) and dtypes.is_float(accumulation_dtype(instruction))


@dataclass(frozen=True)
class CompensatedAccumulator:
    """A total of floats in two variables, or places of arrays.

    Attributes
    ----------
    dtype
        That of both.
    form
        What both are, numbers or vectors.
    total, error
        The rounded total, and what its roundings have lost.
    """

    dtype: DType
    emitter: Emitter
    total: str
    error: str

    def add(self, code: Code, value: str) -> None:
        """Write what adds one more value."""
        kind, total = f"const {self.emitter.type(self.dtype)}", self.total
        value = code.define(kind, "value", value)
        after = code.define(kind, "after", f"{total} + {value}")
        share = code.define(kind, "share", f"{after} - {total}")
        code.line(f"{self.error} += ({total} - ({after} - {share})) + ({value} - {share});")
        code.line(f"{total} = {after};")

    def multiply(self, code: Code, value: str) -> None:
        """Write what multiplies with one more value."""
        kind, total, error = f"const {self.emitter.type(self.dtype)}", self.total, self.error
        value = code.define(kind, "value", value)
        after = code.define(kind, "after", f"{total} * {value}")
        code.line(f"{error} = FMA({total}, {value}, -{after}) + {error} * {value};")
        code.line(f"{total} = {after};")

    def accumulate(self, code: Code, instruction: Instruction, value: str) -> None:
        """Write what adds a value, or multiplies with it, as a reduction does."""
        (self.multiply if isinstance(instruction.op, ProdOp) else self.add)(code, value)

    @property
    def rounded(self) -> str:
        """The total as one number; beside infinities there is no error."""
        return f"({self.error} == {self.error} ? {self.total} + {self.error} : {self.total})"
