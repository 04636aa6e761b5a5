"""The thread policy of a program: weft's pool or BLAS's own threads.

Only one of them is used, since BLAS's threads spin while they wait, which takes the cores from the
pool. BLAS packs an operand once for all of its threads, while tiles of a product are packed one by
one, and its threads are awake; so it is faster where most of the work is products.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.kernels import VIEWS, FusedOp
from weft.ops.pointwise.elementwise import ElementwiseOp
from weft.ops.products.linalg import MatmulOp
from weft.ops.reductions.reduction import ReductionOp
from weft.passes.unsupported import NOT_COMPUTED
from weft_numpy.costs import (
    BLAS_THREADING_LIMIT,
    FLOP,
    MIN_BLAS_THREADED,
    MIN_THREADED,
    MIN_THREADED_MATMUL,
    PACKING_OVERHEAD,
    WAKE_UP,
    per_element,
    product_flops,
    width,
)
from weft_numpy.machine import Machine
from weft_numpy.rules.sliding import WORK


class Times(NamedTuple):
    """The nanoseconds of a kernel in one thread: of its product, and of the rest."""

    product: float
    rest: float

    def in_pool(self, threads: int) -> float:
        """Return the time with the pool's threads and one thread of BLAS."""
        if self.product + self.rest < (MIN_THREADED_MATMUL if self.product else MIN_THREADED):
            return self.product + self.rest
        return (PACKING_OVERHEAD * self.product + self.rest) / threads + WAKE_UP

    def in_blas(self, threads: int) -> float:
        """Return the time with BLAS's threads."""
        return self.product / (threads if self.product > BLAS_THREADING_LIMIT else 1) + self.rest


def prefers_blas_threads(ops: Iterable[Op], machine: Machine) -> bool:
    """Whether BLAS's threads should compute the products of a program, and one thread the rest."""
    threads = machine.threads
    if threads == 1 or machine.blas_threads != threads:
        return False
    computed = [op for op in ops if not isinstance(op, NOT_COMPUTED)]
    if any(isinstance(op, tuple(WORK)) for op in computed):
        return False
    times = [_times(op) for op in computed]
    if max((each.product for each in times), default=0) < MIN_BLAS_THREADED:
        return False
    ahead = sum(each.in_pool(threads) - each.in_blas(threads) for each in times)
    return ahead > 0


def product_time(op: Op) -> float:
    """Return the nanoseconds that a matrix product takes one thread."""
    return FLOP * width(op.dtype) * 2.0 * prod((*op.axes.shape, op.args[0].axes.shape[-1]))


def _times(op: Op) -> Times:
    if isinstance(op, MatmulOp):
        return Times(product_time(op), 0.0)
    if isinstance(op, FusedOp):
        product = rest = 0.0
        for each in op.kernel.body:
            if isinstance(each.op, MatmulOp):
                product = FLOP * width(each.dtype) * product_flops(op.kernel)
            elif not isinstance(each.op, VIEWS):
                rest += _time(each.op, each.dtype, op.kernel.size)
        return Times(product, rest)
    if isinstance(op, ElementwiseOp | ReductionOp):
        size = max(prod(each.axes.shape) for each in (op, *op.args))
        return Times(0.0, _time(op, op.dtype, size))
    return Times(0.0, 0.0)


def _time(op: Op, dtype: DType, size: int) -> float:
    return per_element(op) * width(dtype) * size
