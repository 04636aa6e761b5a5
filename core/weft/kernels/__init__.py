"""Kernels: groups of ops that run as one sweep over memory, described without any device.

`Kernel` is the description, `FusedOp` the op that stands for one in a graph; `place` says where the
axes of an op lie in a kernel's domain, and `fused` puts kernels in the place of groups of ops.
"""

from weft.kernels.fused_op import FusedOp
from weft.kernels.fusion import Group, fused, in_effect_order
from weft.kernels.indexing_maps import VIEWS, IndexingMap, operand_indexing_map, place
from weft.kernels.kernel import Instruction, Kernel, Operand

__all__ = [
    "VIEWS",
    "FusedOp",
    "Group",
    "IndexingMap",
    "Instruction",
    "Kernel",
    "Operand",
    "fused",
    "in_effect_order",
    "operand_indexing_map",
    "place",
]
