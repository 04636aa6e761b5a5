"""Lowering rules of matrix products."""

from __future__ import annotations

import numpy as np

from weft.ir import dtypes
from weft.ir.op import Op
from weft.ops.products import linalg
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(linalg.MatmulOp)
def matmul_rule(op: Op, emit: Emitter) -> None:
    """Call `numpy.matmul`; transposed operands are passed to BLAS without copies.

    Floats of 16 bits, which BLAS lacks, are multiplied in float32, which is also far faster.
    """
    matmul = emit.bind(np.matmul, "matmul")
    x, y = emit.args
    wide = dtypes.accumulator_dtype(op.dtype)
    if wide == op.dtype:
        emit.line(f"{matmul}({x}, {y}, {emit.out})")
        return
    dtype = emit.bind(wide, "wide")
    product = f"{matmul}({x}.astype({dtype}), {y}.astype({dtype}))"
    emit.line(f"copyto({emit.out}, {product}, 'unsafe')")
