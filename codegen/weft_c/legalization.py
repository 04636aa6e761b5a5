"""Legalization: what kernels in C compute in the place of an op."""

from __future__ import annotations

from weft.ir.op import Op
from weft.nn.quantization import DequantizeOp
from weft.ops.products.linalg import MatmulOp
from weft_c.fourier.mixed_radix import legalized_transform
from weft_c.matmul.grouped import legalized_grouped, takes_codes
from weft_c.matmul.packed_panels import legalized_product
from weft_c.processor import Processor
from weft_c.quantized import legalized_quantized
from weft_c.spatial.packed_filters import legalized_convolution


def legalized(op: Op, processor: Processor) -> Op | None:
    """Return a faster op in the place of a matrix product or a convolution, or None.

    Serial devices with vectors multiply packed matrices and filters, of words of 8-bit integers
    where factors are quantized.
    """
    transform = legalized_transform(op, processor)
    if transform is not None:
        return transform
    if isinstance(op, DequantizeOp) and not takes_codes(processor):
        return op.decompose(*op.args)
    if not processor.is_serial:
        return None
    found = legalized_quantized(op, processor)
    if found is not None:
        return found
    if isinstance(op, MatmulOp):
        grouped = legalized_grouped(op, processor)
        return legalized_product(op, processor) if grouped is None else grouped
    return legalized_convolution(op, processor)
