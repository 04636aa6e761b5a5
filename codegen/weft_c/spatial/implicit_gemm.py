"""Implicit GEMM: convolutions as matrix products whose elements are looked up in images."""

from __future__ import annotations

from weft.ir.description import TensorDescription
from weft.nn.spatial.convolutions import BilinearConvolutionOp, ConvolutionInputOp, ConvolutionOp
from weft_c.loops.parallel import parallel_for, unravel_index
from weft_c.lowering import KernelBuilder, Lowering
from weft_c.matmul.accumulators import Accumulator
from weft_c.matmul.shared_tiles import Index, MatmulOperands
from weft_c.source.index_types import index_type, is_wide
from weft_c.source.values import ValueEmitter
from weft_tiling.spatial import Geometry, product_lengths


def matmul_operands(
    op: BilinearConvolutionOp, g: Geometry, lowering: Lowering, acc: Accumulator
) -> MatmulOperands:
    """Return the operands of the matrix product of a convolution or a gradient."""
    kind = index_type(is_wide(*lowering.args, lowering.out))
    batch, m, n, k = product_lengths(op, g)
    lookup = _Lookup(g, lowering.args, acc, kind)
    if isinstance(op, ConvolutionOp):
        return MatmulOperands(
            batch, m, n, k, lookup.filter_row, lookup.seen_column, (True, True), kind
        )
    if isinstance(op, ConvolutionInputOp):
        return MatmulOperands(
            batch, m, n, k, lookup.filter_column, lookup.laid_out, (True, True), kind
        )
    return MatmulOperands(batch, m, n, k, lookup.output_row, lookup.seen_row, (True, False), kind)


def write_implicit_product(
    lowering: Lowering, product: MatmulOperands, out: TensorDescription, acc: Accumulator
) -> None:
    """Write a loop over the sums of a product, without tiles."""
    builder = lowering.kernel("convolution")
    target, code = builder.array("out", out, written=True), builder.code

    def add(indices: tuple[str, ...], emitter: ValueEmitter) -> None:
        *at, i, j = indices
        total = code.define(acc.scalar_type, "total", "0")
        with code.block(f"for ({product.kind} k = 0; k < {product.k}; k++)"):
            one = product.first(builder, tuple(at), i, "k")
            other = product.second(builder, tuple(at), "k", j)
            code.line(f"{total} += {one} * {other};")
        code.line(acc.store(target, total, *indices))

    parallel_for(builder, out.shape, add, wide=product.kind == "i64", cost=max(product.k, 1))


class _Lookup:
    """Loads the operands' elements from images, filters and outputs."""

    def __init__(
        self,
        geometry: Geometry,
        args: tuple[TensorDescription, ...],
        acc: Accumulator,
        kind: str,
    ) -> None:
        self.g, self.args, self.acc, self.kind = geometry, args, acc, kind

    def filter_row(self, builder: KernelBuilder, at: Index, i: str, k: str) -> str:
        """Return element k of filter i of a group."""
        g = self.g
        channel, *tap = self._unravel(builder, (g.channels, *g.sliding.kernel), k)
        row = f"{at[1]} * {g.filters} + {i}"
        return self.acc.load(builder.array("filters", self.args[1]), row, channel, *tap)

    def filter_column(self, builder: KernelBuilder, at: Index, i: str, k: str) -> str:
        """Return the filter element of input channel i and term k."""
        g = self.g
        number, *tap = self._unravel(builder, (g.filters, *g.sliding.kernel), k)
        row = f"{at[1]} * {g.filters} + {number}"
        return self.acc.load(builder.array("filters", self.args[1]), row, i, *tap)

    def output_row(self, builder: KernelBuilder, at: Index, i: str, k: str) -> str:
        """Return the output gradient of filter i at window k."""
        g = self.g
        image, *window = self._unravel(builder, (g.batch, *g.counts), k)
        row = f"{at[0]} * {g.filters} + {i}"
        return self.acc.load(builder.array("delta", self.args[1]), image, row, *window)

    def seen_column(self, builder: KernelBuilder, at: Index, k: str, j: str) -> str:
        """Return the image element that window j reads for term k; 0 in the padding."""
        g = self.g
        channel, *tap = self._unravel(builder, (g.channels, *g.sliding.kernel), k)
        window = self._unravel(builder, g.counts, j)
        return self._seen(builder, at[0], f"{at[1]} * {g.channels} + {channel}", window, tap)

    def seen_row(self, builder: KernelBuilder, at: Index, k: str, j: str) -> str:
        """Return the image element that window k reads for filter element j; 0 in the padding."""
        g = self.g
        image, *window = self._unravel(builder, (g.batch, *g.counts), k)
        channel, *tap = self._unravel(builder, (g.channels, *g.sliding.kernel), j)
        return self._seen(builder, image, f"{at[0]} * {g.channels} + {channel}", window, tap)

    def _seen(
        self,
        builder: KernelBuilder,
        image: str,
        channel: str,
        window: tuple[str, ...] | list[str],
        tap: tuple[str, ...] | list[str],
    ) -> str:
        _, stride, padding, dilation = self.g.sliding
        places, inside = [], []
        axes = zip(window, tap, stride, padding, dilation, self.g.lengths, strict=True)
        for i, k, step, (before, _), gap, length in axes:
            text = f"{i} * {step} + {k} * {gap} - {before}"
            place = builder.code.define(f"const {self.kind}", "place", text)
            places.append(place)
            inside.append(f"{place} >= 0 && {place} < {length}")
        value = self.acc.load(builder.array("x", self.args[0]), image, channel, *places)
        return f"({' && '.join(inside)} ? {value} : 0)"

    def laid_out(self, builder: KernelBuilder, at: Index, k: str, j: str) -> str:
        """Return the output gradient that reaches element j of an image by term k, or 0."""
        g = self.g
        number, *tap = self._unravel(builder, (g.filters, *g.sliding.kernel), k)
        image = self._unravel(builder, g.lengths, j)
        _, stride, padding, dilation = g.sliding
        places, inside = [], []
        axes = zip(image, tap, stride, padding, dilation, g.counts, strict=True)
        for i, t, step, (before, _), gap, count in axes:
            text = f"{i} + {before} - {t} * {gap}"
            offset = builder.code.define(f"const {self.kind}", "offset", text)
            place = builder.code.define(f"const {self.kind}", "place", f"{offset} / {step}")
            places.append(place)
            inside.append(f"{offset} >= 0 && {offset} % {step} == 0 && {place} < {count}")
        channel = f"{at[1]} * {g.filters} + {number}"
        source = builder.array("delta", self.args[0])
        value = self.acc.load(source, at[0], channel, *places)
        return f"({' && '.join(inside)} ? {value} : 0)"

    def _unravel(
        self, builder: KernelBuilder, shape: tuple[int, ...], place: str
    ) -> tuple[str, ...]:
        """Return the index along each dimension, which both operands of a product share.

        Intel's compiler for processors ends the process at some kernels that divide twice.
        """
        code = builder.code
        return code.shared((shape, place), lambda: unravel_index(code, shape, place, self.kind))
