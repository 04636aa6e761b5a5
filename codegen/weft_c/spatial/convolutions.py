"""Lowering rules of convolutions and their gradients.

Serial devices use direct convolution on zero-padded copies of the images; other devices, and large
filters or strides, use implicit GEMM.
"""

from __future__ import annotations

from math import prod

from weft.nn.spatial.convolutions import (
    BilinearConvolutionOp,
    ConvolutionFilterOp,
    ConvolutionInputOp,
    ConvolutionOp,
)
from weft_c.lowering import Lowering, needs_scratch, rules
from weft_c.matmul.accumulators import VECTOR, accumulator
from weft_c.matmul.epilogues import StoreEpilogue
from weft_c.matmul.shared_tiles import multiply_shared, partial_bytes
from weft_c.processor import Processor
from weft_c.spatial.direct_convolution import DirectConvolution, write_direct_convolution
from weft_c.spatial.filter_gradients import plan_filter_gradient, write_filter_gradient
from weft_c.spatial.filter_products import plan_filter_product, write_filter_product
from weft_c.spatial.geometry import forward, transposed
from weft_c.spatial.implicit_gemm import matmul_operands, write_implicit_product
from weft_tiling.counters import needs_wide_counter
from weft_tiling.spatial import Geometry, geometry_of, product_lengths, result_of_product

MAX_TAPS = 1024
"""The most elements of a filter for direct convolution, which has tables of them."""

MAX_PHASES = 9
"""The most phases of the stride for direct convolution, which has loops for each."""


@rules.on_type(ConvolutionOp, ConvolutionInputOp, ConvolutionFilterOp)
def convolve(op: BilinearConvolutionOp, lowering: Lowering) -> None:
    """Lower a convolution, or its gradient of the input or of the filter."""
    if not lowering.out.size:
        return
    processor, g = lowering.processor, geometry_of(op)
    acc = accumulator(op.dtype, processor)
    if is_direct(op, g, processor) and isinstance(op, ConvolutionFilterOp):
        sums = plan_filter_product(g, acc, processor)
        if sums is not None:
            write_filter_product(lowering, sums, acc)
        else:
            write_filter_gradient(lowering, plan_filter_gradient(g, acc, processor), acc)
        return
    if is_direct(op, g, processor) and lowering.args[1].is_contiguous:
        is_transposed = isinstance(op, ConvolutionInputOp)
        write_direct_convolution(lowering, _direct_convolution(op, g), acc, is_transposed)
        return
    product, out = matmul_operands(op, g, lowering, acc), result_of_product(op, g, lowering.out)
    if processor.is_serial:
        write_implicit_product(lowering, product, out, acc)
    else:
        multiply_shared(lowering, product, StoreEpilogue(out, acc), "convolution")


@needs_scratch(ConvolutionOp, ConvolutionInputOp, ConvolutionFilterOp)
def convolution_bytes(op: BilinearConvolutionOp, processor: Processor) -> int:
    """Return the bytes of scratch memory of a convolution or a gradient."""
    g = geometry_of(op)
    if not op.axes.size:
        return 0
    acc = accumulator(op.dtype, processor)
    if not processor.is_serial:
        batch, m, n, k = product_lengths(op, g)
        return partial_bytes(prod(batch), m, n, k, acc, processor)
    if not is_direct(op, g, processor):
        return 0
    if isinstance(op, ConvolutionFilterOp):
        sums = plan_filter_product(g, acc, processor)
        return (sums or plan_filter_gradient(g, acc, processor)).scratch(acc)
    return _direct_convolution(op, g).scratch(acc, processor) + 256


def is_direct(op: BilinearConvolutionOp, g: Geometry, processor: Processor) -> bool:
    """Whether direct convolution is used; its padded copies are indexed in 32 bits."""
    is_short = not isinstance(op, ConvolutionInputOp) or prod(g.sliding.stride) <= MAX_PHASES
    is_filled = all(each.axes.size for each in op.args)
    if not processor.is_serial or not is_short or not is_filled or g.taps > MAX_TAPS:
        return False
    planes, _ = transposed(g) if isinstance(op, ConvolutionInputOp) else forward(g)
    copied = (g.channels + g.filters) * (planes.size + VECTOR)
    channels = g.groups * max(g.channels, g.filters)
    return not any(map(needs_wide_counter, (copied, channels, prod(g.lengths), prod(g.counts))))


def _direct_convolution(op: BilinearConvolutionOp, g: Geometry) -> DirectConvolution:
    if isinstance(op, ConvolutionOp):
        return DirectConvolution(g.batch, g.groups, g.channels, g.filters, *forward(g))
    return DirectConvolution(g.batch, g.groups, g.filters, g.channels, *transposed(g))
