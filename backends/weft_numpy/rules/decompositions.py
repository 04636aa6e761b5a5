"""Lowering rules of matrix decompositions, computed by numpy.linalg."""

from __future__ import annotations

from weft.ir.op import Op
from weft.ops.products import decompositions
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(decompositions.CholeskyOp, decompositions.SolveOp)
@rules.on_type(decompositions.DeterminantOp, decompositions.InverseOp)
def decomposition_rule(op: Op, emit: Emitter) -> None:
    """Call the reference, which replaces NumPy's errors by NaN; solvers have no output argument."""
    reference = emit.bind(op.reference, "linear_algebra")
    emit.line(f"copyto({emit.out}, {reference}({', '.join(emit.args)}))")
