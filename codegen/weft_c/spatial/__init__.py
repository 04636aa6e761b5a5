"""Lowering rules of convolutions and pooling.

Imports `weft_c.matmul`, `weft_c.reductions` and what lies below them. Start reading at
`convolutions`, which chooses between direct convolution and implicit GEMM, and `pooling`.
"""

from weft_c.spatial import convolutions, pooling

__all__ = ["convolutions", "pooling"]
