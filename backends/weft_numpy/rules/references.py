"""The lowering rule of ops whose functions in NumPy have no output argument."""

from __future__ import annotations

from weft.ir.op import Op
from weft.nn.spatial.pooling import MaxPoolIndexOp
from weft.ops.products.decompositions import CholeskyOp, DeterminantOp, InverseOp, SolveOp
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp
from weft.ops.reductions.sorting import ArgsortOp, SearchSortedOp
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(CholeskyOp, SolveOp, DeterminantOp, InverseOp)
@rules.on_type(FourierOp, RealFourierOp, InverseRealFourierOp)
@rules.on_type(ArgsortOp, SearchSortedOp, MaxPoolIndexOp)
def reference_rule(op: Op, emit: Emitter) -> None:
    """Compute an op by its NumPy reference, and copy the result."""
    reference = emit.bind(op.reference, type(op).__name__.removesuffix("Op").lower())
    emit.line(f"copyto({emit.out}, {reference}({', '.join(emit.args)}))")
