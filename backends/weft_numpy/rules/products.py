"""Rules for products of tensors."""

from __future__ import annotations

import numpy as np

from weft.op import Op
from weft.ops import linalg
from weft_numpy.codegen import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(linalg.MatmulOp)
def matmul_rule(op: Op, emit: Emitter) -> None:
    """Call the matrix product; transposed operands go to BLAS as they are."""
    emit.line(f"{emit.bind(np.matmul, 'matmul')}({', '.join([*emit.args, emit.out])})")
