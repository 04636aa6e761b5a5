"""Lowering rules of convolutions and pooling.

Imports `weft_c.matmul`, `weft_c.reductions` and what lies below them. Start reading at
`convolutions`, which chooses between direct convolution and implicit GEMM, `packed_filters`, which
chooses convolutions whose filters are packed for `packed_convolution`, and `pooling`.
"""

from weft_c.spatial import convolutions, packed_convolution, pooling

__all__ = ["convolutions", "packed_convolution", "pooling"]
