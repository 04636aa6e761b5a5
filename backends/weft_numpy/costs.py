"""Cost estimates of kernels, for decisions on tiles and threads.

Times are of one thread, on processors with 8 to 16 floats a vector.
"""

from __future__ import annotations

from weft.ir.dtypes import DType
from weft.ir.op import Op
from weft.kernels import VIEWS, Kernel
from weft.ops.pointwise import comparison, elementwise, math
from weft.ops.products import linalg
from weft.ops.reductions.reduction import ReductionOp
from weft_numpy.kernels.kernel_values import KernelValues

BYTE = 0.03
"""Nanoseconds to move a byte between memory and a processor."""

FLOP = 0.004
"""Nanoseconds for a float32 operation of a matrix product."""

MIN_THREADED = 80_000.0
"""The work in nanoseconds from which on several threads pay off."""

MIN_THREADED_MATMUL = 160_000.0
"""The same for matrix products, which BLAS's own threads, already awake, compute as well."""

MIN_BLAS_THREADED = 40_000.0
"""Nanoseconds of a product in one thread below which BLAS's threads do not pay off."""

BLAS_THREADING_LIMIT = FLOP * 2 * 2**18
"""Nanoseconds of the largest product that OpenBLAS computes in one thread."""

MIN_THREADED_BLOCKS = 400_000.0
"""The work of a convolution or of pooling, in nanoseconds, from which on several threads pay off.

It is more than for the tiles of kernels: work in blocks takes many steps, and between two steps a
thread waits for the interpreter lock.
"""

WAKE_UP = 30_000.0
"""Nanoseconds to start the pool's threads and to wait for them."""

PACKING_OVERHEAD = 1.1
"""The time of a product in tiles relative to a single call of BLAS."""

COLUMN_COPY = 0.2
"""Nanoseconds to copy an element to a column, or from one."""

POOLING_STEP = 0.25
"""Nanoseconds for an element in one step of pooling."""

MIN_ELEMENTS = 2**13
"""The elements of a domain from which on tiles or threads may pay off."""

_CHEAP = 0.1
"""Nanoseconds for an element of any op that vectorizes well."""

_ELEMENT: dict[type[Op], float] = {
    math.ExpOp: 0.5,
    math.TanhOp: 0.4,
    math.LogOp: 0.6,
    math.SqrtOp: 0.35,
    math.PowerOp: 8.0,
    comparison.WhereOp: 0.45,
    elementwise.DivideOp: 0.15,
    elementwise.FloorDivideOp: 2.0,
    elementwise.ModOp: 2.0,
}
"""Nanoseconds for an element of float32, for ops above the minimum."""

_FUNCTION = 2.0
"""Nanoseconds for an element of any other function of floats, such as a sine."""

_SIMPLE = (elementwise.ArithmeticOp, elementwise.OrderedOp, elementwise.RealNumberOp)


def nanoseconds(values: KernelValues) -> float:
    """Return the nanoseconds that one thread takes for a kernel."""
    kernel = values.kernel
    total = BYTE * sum(each.nbytes for each in (*values.operands, *values.results))
    for number, each in enumerate(kernel.body, len(kernel.operands)):
        op = each.op
        if isinstance(op, VIEWS):
            continue
        sizes = [values.size(number), *(values.size(arg) for arg in each.args)]
        if isinstance(op, linalg.MatmulOp):
            total += FLOP * width(op.dtype) * product_flops(kernel)
        else:
            total += per_element(op) * width(op.dtype) * max(sizes)
    return total


def per_element(op: Op) -> float:
    """Return the nanoseconds for an element of float32."""
    cost = _ELEMENT.get(type(op))
    if cost is not None:
        return cost
    return _CHEAP if isinstance(op, (*_SIMPLE, ReductionOp, elementwise.CastOp)) else _FUNCTION


def product_flops(kernel: Kernel) -> float:
    """Return the operations of the matrix product of a kernel."""
    assert kernel.product is not None
    terms: int = kernel.product.op.args[0].axes.shape[-1]
    return 2.0 * kernel.size * terms


def width(dtype: DType) -> float:
    """Return the cost of a dtype relative to float32."""
    return max(dtype.itemsize / 4, 0.5)


def may_need_tiles(kernel: Kernel) -> bool:
    """Whether a kernel may be large enough for tiles or threads, by its size alone."""
    first = kernel.body[0].op  # of a prologue, if there is one
    if max(kernel.size, first.axes.size if kernel.prologue else 0) >= MIN_ELEMENTS:
        return True
    return kernel.product is not None and FLOP * product_flops(kernel) >= MIN_THREADED_MATMUL
