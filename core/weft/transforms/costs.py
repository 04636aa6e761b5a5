"""Cost model: the estimated time of an op, from its sizes."""

from __future__ import annotations

import math

from weft.ir.op import Op
from weft.nn.spatial.convolutions import BilinearConvolutionOp
from weft.ops.products.linalg import MatmulOp

PRODUCTS_PER_ELEMENT = 64
"""The products of a matrix multiplication in the time of one elementwise element."""


def work_of(op: Op) -> int:
    """Return the estimated time of an op, in elements of an elementwise op.

    The number of products of a matrix multiplication is the square root of the product of the three
    sizes; for a convolution that is a few times too low.
    """
    works = [_work(each) for each in op.contained or (op,)]
    return sum(works)


def _work(op: Op) -> int:
    sizes = [each.axes.size for each in (op, *op.args)]
    if isinstance(op, MatmulOp | BilinearConvolutionOp):
        return int(max(sizes) + math.sqrt(math.prod(sizes)) / PRODUCTS_PER_ELEMENT)
    return int(max(sizes))
