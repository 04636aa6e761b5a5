"""Lowering rules of ops whose functions in NumPy have no output argument, and of random bits."""

from __future__ import annotations

from functools import partial

from weft.ir.op import Op
from weft.nn.spatial.pooling import MaxPoolIndexOp
from weft.ops.pointwise.complex_parts import ViewAsComplexOp
from weft.ops.products.decompositions import (
    CholeskyOp,
    DeterminantOp,
    InverseOp,
    SolveOp,
    TriangularSolveOp,
)
from weft.ops.products.fourier import FourierOp, InverseRealFourierOp, RealFourierOp
from weft.ops.random import philox
from weft.ops.reductions.sorting import ArgsortOp, SearchSortedOp
from weft_numpy.emitter import Emitter
from weft_numpy.rules.table import rules


@rules.on_type(CholeskyOp, SolveOp, TriangularSolveOp, DeterminantOp, InverseOp)
@rules.on_type(FourierOp, RealFourierOp)
@rules.on_type(InverseRealFourierOp, ViewAsComplexOp, ArgsortOp, SearchSortedOp, MaxPoolIndexOp)
def reference_rule(op: Op, emit: Emitter) -> None:
    """Compute an op by its NumPy reference, and copy the result."""
    reference = emit.bind(op.reference, type(op).__name__.removesuffix("Op").lower())
    emit.line(f"copyto({emit.out}, {reference}({', '.join(emit.args)}))")


@rules.on_type(philox.RandomBitsOp)
def random_bits_rule(op: philox.RandomBitsOp, emit: Emitter) -> None:
    """Run Philox on blocks that fit the cache."""
    fill = emit.bind(partial(philox.fill_bits, op.domain), "random_bits")
    emit.line(f"{fill}({', '.join([*emit.args, emit.out])})")
