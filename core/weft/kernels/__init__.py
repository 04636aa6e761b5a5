"""Fused kernels: groups of ops that run in one loop nest, independent of any device.

`Kernel` is the description, `FusedOp` its op in a graph; `place` gives the indexing map of an op in
a kernel's iteration domain, and `fused` replaces groups of ops by kernels.
"""

from weft.kernels.fused_op import FusedOp
from weft.kernels.fusion import Group, fused, in_effect_order
from weft.kernels.indexing_maps import VIEWS, IndexingMap, operand_indexing_map, place
from weft.kernels.kernel import Instruction, Kernel, Operand
from weft.kernels.piecewise import Piece, PiecewiseOp, as_piecewise

__all__ = [
    "VIEWS",
    "FusedOp",
    "Group",
    "IndexingMap",
    "Instruction",
    "Kernel",
    "Operand",
    "Piece",
    "PiecewiseOp",
    "as_piecewise",
    "fused",
    "in_effect_order",
    "operand_indexing_map",
    "place",
]
