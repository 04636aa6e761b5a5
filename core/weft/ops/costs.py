"""Cost model: the estimated time of an op, from its sizes."""

from __future__ import annotations

import math

from weft.ir.op import Op
from weft.ops.convolutions import BilinearConvolutionOp
from weft.ops.linalg import MatmulOp

PRODUCTS_PER_ELEMENT = 64
"""How many products of a matrix multiplication take the time of an element of another op."""


def work_of(op: Op) -> int:
    """Return about how long an op takes, in elements of an elementwise op.

    The square root of three sizes is the number of products of matrices; for a convolution it is a
    few times less.
    """
    works = [_work(each) for each in op.contained or (op,)]
    return sum(works)


def _work(op: Op) -> int:
    sizes = [each.axes.size for each in (op, *op.args)]
    if isinstance(op, MatmulOp | BilinearConvolutionOp):
        return int(max(sizes) + math.sqrt(math.prod(sizes)) / PRODUCTS_PER_ELEMENT)
    return int(max(sizes))
