"""FFT convolution: computes convolutions with large filters by Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable

import weft
from weft.fft import irfftn, rfftn
from weft.ir import dtypes
from weft.ir.tensor import TensorOp
from weft.nn.spatial.windows import moved_ends
from weft.ops.reductions import reduction
from weft.passes.interface import PeepholeGraphPass
from weft.passes.visitors import visit
from weft.plugins import hookimpl
from weft.signal.convolutions import fast_length, transform_work

IMAGES, FILTERS, OUTPUTS = 2, 0, 3
"""The roles, each with the axis of (images, groups, outputs, channels) that it lacks."""

ROLES = {
    weft.ConvolutionOp: (IMAGES, FILTERS, OUTPUTS),
    weft.ConvolutionInputOp: (OUTPUTS, FILTERS, IMAGES),
    weft.ConvolutionFilterOp: (IMAGES, OUTPUTS, FILTERS),
}
"""For each op the roles of its operands and of its result."""


class FFTConvolution(PeepholeGraphPass):
    """Replace convolutions, where an estimate says that transforms are quicker."""

    @visit.on_type(*ROLES)
    def visit_convolution(self, op: weft.BilinearConvolutionOp) -> None:
        """Replace one op, of floats and known lengths, without strides and dilation."""
        if op.dtype not in (dtypes.float32, dtypes.float64) or {*op.stride, *op.dilation} != {1}:
            return
        lengths = (n for x in (*op.args, op) for n in x.axes.lengths)
        if all(isinstance(n, int) and n for n in lengths):
            spectral = SpectralConvolution(op)
            if spectral.is_quicker():
                self.replace_op(op, spectral.result())


class SpectralConvolution:
    """A convolution, its transpose or its filter gradient as a product of two spectra.

    Spectra have the axes images, groups, outputs and channels of a group, and frequencies. The
    product is summed over the axis that the result lacks.
    """

    def __init__(self, op: weft.BilinearConvolutionOp) -> None:
        self.op = op
        self.roles = ROLES[type(op)]
        parts = dict(zip(self.roles, (*op.args, op), strict=True))
        images, (filters, channels, *kernel) = parts[IMAGES].axes.shape, parts[FILTERS].axes.shape
        self.sizes = images[0], op.groups, filters // op.groups, channels
        self.extents = op.sliding(kernel).padded(images[2:])
        self.lengths = [fast_length(n) for n in self.extents]

    def is_quicker(self) -> bool:
        """Whether the op takes longer, by counts of operations.

        As measured on one core with the native backend, sums over several channels make 110
        GFLOP/s and those over one 55, transforms 12 to 30, and products of spectra 3 to 6. These
        have 8 operations for each frequency, and half as many frequencies as there are elements.
        """
        products = math.prod(self.sizes)
        transforms = sum(products // self.sizes[role] for role in self.roles)
        work = 6 * transform_work(transforms, self.lengths)
        work += 24 * 4 * products * math.prod(self.lengths)
        return self.op.flops * (2 if self.sizes[-1] == 1 else 1) > work

    def result(self) -> TensorOp:
        """Return the op by transforms."""
        op, (*roles, role) = self.op, self.roles
        first, second = map(self.spectrum, op.args, roles)
        product = reduction.sum(first * (second if role == IMAGES else weft.conj(second)), role)
        found = irfftn(product, self.lengths, range(3, product.rank))
        kept = self.extents if role == IMAGES else op.axes.lengths[2:]
        cut = weft.cast_axes(found[(..., *map(slice, kept))], (*op.axes.lengths[:2], *kept))
        if role != IMAGES:
            return cut
        return moved_ends(cut, tuple((-before, -after) for before, after in op.padding))

    def spectrum(self, x: TensorOp, role: int) -> TensorOp:
        """Return the spectrum of an operand, which is followed by zeros."""
        if role == IMAGES:
            more = (n - extent for n, extent in zip(self.lengths, self.extents, strict=True))
            pairs = zip(self.op.padding, more, strict=True)
            x = moved_ends(x, tuple((a, b if b < 0 else b + zeros) for (a, b), zeros in pairs))
        found = rfftn(x, self.lengths, range(2, x.rank))
        lead = [1 if place == role else n for place, n in enumerate(self.sizes)]
        return weft.cast_axes(found, (*lead, *found.axes.lengths[2:]))


@hookimpl
def weft_register_passes(register: Callable[[str, type], None]) -> None:
    """Register the pass."""
    register("fft-convolution", FFTConvolution)
